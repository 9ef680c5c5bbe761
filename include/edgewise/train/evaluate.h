// Evaluation of a model on a split: every example once, in order, without gradients.
#pragma once

#include <edgewise/models/model.h>
#include <edgewise/tasks/task.h>
#include <edgewise/train/precision.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace edgewise::train {

class Ranks;

struct EvaluationOptions {
  int64_t batch_size = 32;
  uint64_t seed = 0;
  // Edges are drawn this many times and the logits averaged. The draws are fixed by the seed: they depend
  // neither on the training step nor on batch_size, so two evaluations of the same weights agree.
  int64_t draws = 1;
  int64_t max_examples = 0;    // 0 = all
  bool count_padding = false;  // whether the model's densities do (density_counts_padding of its recipe)
  bool count_valid = false;    // with count_padding: the density of valid pairs too
  bool writes = false;         // what the model writes (tasks::Task::write) is judged too, and by that
  at::Device device = at::kCPU;
  Precision precision = Precision::kFp32;
  std::function<bool()> stop;  // asked between batches; true ends the evaluation early
  // Told before the first batch and after every one: examples done, of all.
  std::function<void(int64_t done, int64_t total)> progress;
  // Told the answers to every batch: examples of the split, and logits, averaged over the draws.
  std::function<void(const std::vector<int64_t>& indices, const at::Tensor& logits)> answers;
  // Of several processes that evaluate together, each a part of every batch; all get the whole result. What
  // the model writes is written by the first one. `answers` is told this process's part.
  Ranks* ranks = nullptr;
};

// Of a model that chooses edges by a policy: the task's metric with edges that are drawn, and with the
// likeliest ones. Where the two differ much the policy has not decided.
struct PolicyFigures {
  double sampled = 0, greedy = 0;
  double entropy = 0;                                   // of a prediction in nats, mean over layers and items
  std::optional<double> sampled_recall, greedy_recall;  // Evaluation::edge_recall
};

struct Evaluation {
  double loss = 0;                                   // mean over targets
  double accuracy = 0;                               // of targets
  const tasks::Metric* metric = &tasks::accuracy();  // of the task
  // [layers, H] double on the CPU: edges over valid pairs of all examples together, whatever the batch size.
  // Two towers: their average, batches weighted by the pairs of both.
  at::Tensor density;
  // Pairs of valid tokens over the pairs of sequences of the longest length; 1 where nothing is masked. Times
  // a density over valid pairs it is that over all pairs.
  double valid_pairs = 1;
  at::Tensor valid_density;  // [layers, H], with count_valid where padding is counted: over valid pairs
  // For tasks that know their right edges, over all layers and heads and the queries that have a right edge:
  // chosen edges that are right, and right edges that are chosen.
  std::optional<double> edge_precision, edge_recall;
  std::optional<PolicyFigures> policy = {};
  // Of all answers together, for tasks that give one an example; and of what is written.
  std::vector<tasks::Figure> figures = {};
  std::vector<tasks::WrittenText> texts = {};
  int64_t examples = 0;
  bool complete = true;  // false when stopped early

  double value() const;                                    // of the metric
  double score() const { return metric->score(value()); }  // what the best checkpoint has most of
};

// The random numbers of evaluation: a range of steps that no training run reaches.
RandomStream evaluation_stream(uint64_t seed, int64_t draw, int64_t first_item);

// A text is read in batch_size parallel parts, each from its beginning (Task::evaluation_order): a model with
// a memory carries it along, so that its figures depend a little on batch_size.
//
// Models with a policy are run three times: with edges decoded as their options say, drawn, and greedily.
//
// Leaves the model in the mode (training or not) it was in.
Evaluation evaluate(Model& model, const tasks::Task& task, data::Split split,
                    const EvaluationOptions& options = {});

}  // namespace edgewise::train
