// Task: a kind of problem over a data set: which examples make a batch, which model answers, how its answers
// are scored, and what a figure is worth. Training, evaluation, costs and reports ask the task, never the
// data what it is.
//
// A task of one's own derives from Task and is registered with a name for recipes
// (edgewise/train/task_kinds.h).
#pragma once

#include <edgewise/attention/attention_cost.h>
#include <edgewise/data/batches.h>
#include <edgewise/data/dataset.h>
#include <edgewise/models/classifier.h>
#include <edgewise/models/graph_network.h>
#include <edgewise/models/language_model.h>
#include <edgewise/tasks/figures.h>
#include <edgewise/tasks/metric.h>
#include <edgewise/tasks/objective.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::tasks {

// What a recipe says of a model; vocabulary, classes and lengths are the data's.
struct ModelPlan {
  EncoderOptions encoder;
  CausalAttentionFactory decoder;  // the layers of a language model as a whole, in place of encoder.edges
  Pooling pooling = Pooling::kMean;
  bool tied = true;                // language models: the output layer is the token embedding
  GraphNetworkOptions graph = {};  // of a graph's network what the encoder does not say
  // Translation: edges among the tokens of the decoder and across, where encoder.edges are those of the
  // encoder; empty: dense.
  EdgeSourceFactory decoder_edges = {}, cross_edges = {};
};

// What a model writes of the examples of a split, with figures of all of it together.
struct WrittenText {
  std::string name;  // of a set of examples
  std::vector<std::string> lines;
};
struct Writing {
  std::vector<WrittenText> texts;
  std::vector<Figure> figures;
  const Metric* metric = nullptr;  // one of the figures: what the writing is judged by
};
struct WritingOptions {
  at::Device device = at::kCPU;
  int64_t batch_size = 32;
  RandomStream random = {};  // of edges, for example 0
  std::function<bool()> stop = {};
  std::function<void(int64_t done, int64_t total)> progress = {};
};

class Task {
 public:
  explicit Task(std::shared_ptr<const data::Dataset> data) : data_(std::move(data)) {}
  virtual ~Task() = default;

  const data::Dataset& data() const { return *data_; }
  // The batches of training; and those that evaluate the first `size` examples of a split.
  virtual std::unique_ptr<data::Order> training_order(int64_t batch, uint64_t seed) const;
  virtual std::unique_ptr<data::Order> evaluation_order(int64_t size, int64_t batch) const;
  // Batches of training of up to so many tokens; throws for data without.
  virtual std::unique_ptr<data::Order> training_order_by_tokens(int64_t tokens, uint64_t seed) const;

  virtual ModelPtr make_model(const ModelPlan& plan) const = 0;
  // Throws unless a model means the same by its inputs as the data does.
  virtual void check_model(const Model& /*model*/) const {}
  virtual int64_t towers() const { return 1; }  // uses of the encoder per example
  // What the model computes behind the encoder for a sequence of n tokens of this width.
  virtual Operations head_operations(double n, double width) const;

  virtual const Objective& objective() const { return cross_entropy(); }
  // The same with smoothed labels, for training; throws where nothing is a class.
  std::shared_ptr<const Objective> smoothed_objective(double smoothing) const;
  // Why passes of training cannot be recorded in CUDA graphs; empty when they can.
  virtual std::string recording_refusal() const { return {}; }

  virtual const Metric& metric() const { return accuracy(); }
  // What the metric is without any attention.
  virtual std::vector<data::Baseline> baselines(data::Split split) const { return data().baselines(split); }

  // Whether every example gets one answer, which figures() judge together.
  virtual bool gives_answers() const { return false; }
  // [B, classes] -> [B]: numbers of classes, or numbers.
  virtual std::vector<double> answers_of(const at::Tensor& /*logits*/) const { return {}; }
  // Of the answers to the examples `indices` of a split.
  virtual std::vector<Figure> figures(const std::vector<int64_t>& /*indices*/,
                                      const std::vector<double>& /*answers*/, data::Split) const {
    return {};
  }

  // What a mean loss on a split comes to in other units.
  virtual std::vector<Figure> loss_figures(double /*loss*/, data::Split) const { return {}; }

  // What the model writes by itself, such as translations, for tasks that let it; many passes an example, so
  // for tests alone. None when options.stop ended it.
  virtual bool writes() const { return false; }
  virtual std::optional<Writing> write(Model& /*model*/, data::Split, const WritingOptions&) const {
    return std::nullopt;
  }

 private:
  std::shared_ptr<const data::Dataset> data_;
};
using TaskPtr = std::shared_ptr<const Task>;

// One label per sequence.
class SequenceLabels : public Task {
 public:
  using Task::Task;
  ModelPtr make_model(const ModelPlan& plan) const override;
};

// One label per pair of sequences.
class PairLabels : public Task {
 public:
  using Task::Task;
  ModelPtr make_model(const ModelPlan& plan) const override;
  int64_t towers() const override { return 2; }
  Operations head_operations(double n, double width) const override;
};

// A label for every token, or for some.
class TokenLabels : public Task {
 public:
  using Task::Task;
  ModelPtr make_model(const ModelPlan& plan) const override;
  Operations head_operations(double n, double width) const override;
  std::string recording_refusal() const override;
};

// The next character of a text, from those up to it. Row r of a batch goes on where row r of the one before
// ended, so that models with a memory carry it along.
class NextCharacters : public Task {
 public:
  using Task::Task;
  std::unique_ptr<data::Order> training_order(int64_t batch, uint64_t seed) const override;
  std::unique_ptr<data::Order> evaluation_order(int64_t size, int64_t batch) const override;
  ModelPtr make_model(const ModelPlan& plan) const override;
  void check_model(const Model& model) const override;
  const Metric& metric() const override { return bits_per_character(); }
};

// The same in the pieces of a tokeniser (edgewise/data/examples/token_text.h). Beside the loss per token
// stands what it is in bits per byte of the text, which compares runs with different tokenisers.
class NextTokens : public NextCharacters {
 public:
  using NextCharacters::NextCharacters;
  ModelPtr make_model(const ModelPlan& plan) const override;
  void check_model(const Model& model) const override;
  const Metric& metric() const override;
  std::vector<Figure> loss_figures(double loss, data::Split split) const override;
};

// The model of NextCharacters, whose vocabulary are bytes, or of so many tokens; plan.encoder.max_length is
// its context.
LanguageModel make_language_model(const ModelPlan& plan, std::vector<uint8_t> bytes, int64_t tokens = 0);

}  // namespace edgewise::tasks
