#include <edgewise/train/evaluate.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <torch/types.h>
#include <torch/utils.h>

#include "train/density_pairs.h"
#include "train/evaluation_mode.h"

namespace edgewise::train {
namespace {

// Whether any source of the model chooses by a policy.
bool decode_by(const Model& model, std::optional<PolicyDecoding> decoding) {
  bool has_policy = false;
  for (const auto& module : model.modules())
    if (auto* const source = dynamic_cast<EdgeSource*>(module.get()))
      has_policy = source->decode_by(decoding) || has_policy;
  return has_policy;
}

class DecodingBy {
 public:
  DecodingBy(const Model& model, PolicyDecoding decoding) : model_(model) { decode_by(model_, decoding); }
  ~DecodingBy() { decode_by(model_, std::nullopt); }
  DecodingBy(const DecodingBy&) = delete;
  DecodingBy& operator=(const DecodingBy&) = delete;

 private:
  const Model& model_;
};

// Edges of the queries that have a right one.
struct RightEdges {
  double chosen = 0, right = 0, found = 0;

  void add(const EdgeSet& edges, const at::Tensor& right_edges) {  // [B, N, N]
    const at::Tensor mask = edges.to_mask(), wanted = right_edges.unsqueeze(1).expand_as(mask);
    chosen += (mask & wanted.any(-1, true)).sum().item<double>();
    right += wanted.sum().item<double>();
    found += (mask & wanted).sum().item<double>();
  }
};

// Edges between valid tokens, of a model whose densities count padding: attention computes no others, so they
// are the ones that it keeps.
struct ValidEdges {
  at::Tensor counts;  // [layers, H] double

  void add(const std::vector<EdgeSet>& edges, size_t towers) {
    const size_t layers = edges.size() / towers;
    std::vector<at::Tensor> sums(layers);
    for (size_t n = 0; n < edges.size(); ++n) {  // the layers of one tower, then those of the next
      const at::Tensor count = edges[n].edges_per_head().sum(0).to(at::kCPU, at::kDouble);  // [H]
      at::Tensor& sum = sums[n % layers];
      sum = sum.defined() ? sum + count : count;
    }
    const at::Tensor all = at::stack(sums);
    counts = counts.defined() ? counts + all : all;
  }
};

// The mean over layers and items of what policies say of their entropy.
struct MeanEntropy {
  double sum = 0, count = 0;

  void add(const std::vector<EdgePolicy>& policies) {
    for (const EdgePolicy& policy : policies) {
      sum += policy.entropy.sum().item<double>();
      count += static_cast<double>(policy.entropy.numel());
    }
  }
};

Evaluation run_evaluation(Model& model, const tasks::Task& task, data::Split split,
                          const EvaluationOptions& options, MeanEntropy& entropy) {
  TORCH_CHECK_VALUE(options.batch_size > 0 && options.draws > 0,
                    "evaluate: expected a positive batch size and number of draws; got ", options.batch_size,
                    " and ", options.draws);
  const data::Dataset& dataset = task.data();
  int64_t size = dataset.size(split);
  if (options.max_examples > 0) size = std::min(size, options.max_examples);
  TORCH_CHECK_VALUE(size > 0, "evaluate: expected examples in the ", data::to_string(split), " split of ",
                    dataset.name(), "; it has none");
  torch::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  const PrecisionGuard guard(options.precision, options.device);
  Evaluation result;
  result.metric = &task.metric();
  RightEdges right;
  const bool counts_valid = options.count_valid && options.count_padding;
  ValidEdges valid_edges;
  double loss = 0, valid_pairs = 0, all_pairs = 0;
  at::Tensor layer_pairs;  // [layers, 1], over all batches and draws
  bool has_masks = false;
  int64_t correct = 0, targets = 0;
  std::vector<int64_t> answered;
  std::vector<double> answers;
  const std::unique_ptr<data::Order> order = task.evaluation_order(size, options.batch_size);
  std::vector<std::vector<at::Tensor>> memories(static_cast<size_t>(options.draws));  // of models, per draw
  const auto tell_progress = [&] {
    if (options.progress) options.progress(result.examples, size);
  };
  tell_progress();
  for (int64_t first = 0; first < size; first += options.batch_size) {
    if (options.stop && options.stop()) {
      result.complete = false;
      break;
    }
    const std::vector<int64_t> indices = order->indices(first / options.batch_size);
    const Batch host = dataset.batch(split, indices), batch = to_device(host, options.device);
    const std::vector<double> tower_pairs = density_pairs(host, options.count_padding);
    const double batch_pairs = std::accumulate(tower_pairs.begin(), tower_pairs.end(), 0.0);
    for (const double of_tower : density_pairs(host, /*count_padding=*/false)) valid_pairs += of_tower;
    for (const Tower& tower : host.towers) {
      has_masks = has_masks || tower.mask.defined();
      const double longest = static_cast<double>(std::max(dataset.max_length(), tower.length()));
      all_pairs += static_cast<double>(host.size()) * longest * longest;
    }
    const at::Tensor right_edges = dataset.right_edges(batch);
    at::Tensor logits;
    for (int64_t draw = 0; draw < options.draws; ++draw) {
      ModelInput input{.batch = batch,
                       .random = evaluation_stream(options.seed, draw, first),
                       .keep_edges = right_edges.defined() || counts_valid};
      std::vector<at::Tensor>& memory = memories[static_cast<size_t>(draw)];
      if (order->is_beginning(first / options.batch_size)) memory.clear();
      // The last batch of a text may lack the shorter rows.
      for (const at::Tensor& layer : memory) input.memories.push_back(layer.narrow(0, 0, batch.size()));
      const ModelOutput output = model.forward(input);
      memory = output.memories;
      entropy.add(output.policies);
      if (right_edges.defined())
        for (const EdgeSet& edges : output.edges) right.add(edges, right_edges);
      if (counts_valid) valid_edges.add(output.edges, batch.towers.size());
      logits = draw == 0 ? output.logits : logits + output.logits;
      const at::Tensor of_layers = output.layer_pairs.defined()
                                       ? output.layer_pairs.unsqueeze(1)
                                       : at::full({output.densities.size(0), 1}, batch_pairs, at::kDouble);
      const at::Tensor weighted = output.densities.cpu() * of_layers;
      result.density = result.density.defined() ? result.density + weighted : weighted;
      layer_pairs = layer_pairs.defined() ? layer_pairs + of_layers : of_layers;
    }
    logits = logits / static_cast<double>(options.draws);
    const tasks::Score score = task.objective().score(logits, batch);
    if (task.gives_answers()) {
      const std::vector<double> given = task.answers_of(logits);
      answered.insert(answered.end(), indices.begin(), indices.end());
      answers.insert(answers.end(), given.begin(), given.end());
    }
    if (options.answers) options.answers(indices, logits);
    loss += score.loss.item<double>();
    correct += score.correct.item<int64_t>();
    targets += task.objective().count_targets(host);
    result.examples += std::ssize(indices);  // an item may hold several: graphs side by side
    tell_progress();
  }
  if (result.examples == 0) return result;
  if (task.gives_answers()) result.figures = task.figures(answered, answers, split);
  if (has_masks && all_pairs > 0) result.valid_pairs = valid_pairs / all_pairs;
  if (valid_edges.counts.defined())
    result.valid_density =
        valid_edges.counts / (std::max(valid_pairs, 1.0) * static_cast<double>(options.draws));
  if (right.chosen > 0) result.edge_precision = right.found / right.chosen;
  if (right.right > 0) result.edge_recall = right.found / right.right;
  result.loss = loss / static_cast<double>(std::max<int64_t>(targets, 1));
  for (const tasks::Figure& figure : task.loss_figures(result.loss, split)) result.figures.push_back(figure);
  result.accuracy = static_cast<double>(correct) / static_cast<double>(std::max<int64_t>(targets, 1));
  result.density /= layer_pairs.clamp_min(1);
  if (options.writes && task.writes()) {
    const tasks::WritingOptions writing{.device = options.device,
                                        .batch_size = options.batch_size,
                                        .random = evaluation_stream(options.seed, 0, 0),
                                        .stop = options.stop,
                                        .progress = options.progress};
    std::optional<tasks::Writing> written = task.write(model, split, writing);
    result.complete = written.has_value();
    if (!written) return result;
    result.figures.insert(result.figures.end(), written->figures.begin(), written->figures.end());
    result.texts = std::move(written->texts);
    result.metric = written->metric;
  }
  return result;
}

}  // namespace

RandomStream evaluation_stream(uint64_t seed, int64_t draw, int64_t first_item) {
  constexpr uint64_t kFirstStep = uint64_t{1} << 63;
  return {
      .seed = seed, .step = kFirstStep + static_cast<uint64_t>(draw), .layer = 0, .first_item = first_item};
}

double Evaluation::value() const {
  if (metric->of) return metric->of(loss, accuracy);
  const auto found = std::ranges::find(figures, metric->name, &tasks::Figure::name);
  return found == figures.end() ? 0 : found->value;
}

Evaluation evaluate(Model& model, const tasks::Task& task, data::Split split,
                    const EvaluationOptions& options) {
  MeanEntropy entropy;
  Evaluation result = run_evaluation(model, task, split, options, entropy);
  if (!decode_by(model, std::nullopt) || !result.complete) return result;
  const auto decoded = [&](PolicyDecoding decoding) {
    const DecodingBy guard(model, decoding);
    entropy = {};
    EvaluationOptions again = options;
    again.answers = {};  // told once
    return run_evaluation(model, task, split, again, entropy);
  };
  const Evaluation greedy = decoded(PolicyDecoding::kGreedy), sampled = decoded(PolicyDecoding::kSample);
  result.complete = greedy.complete && sampled.complete;
  result.policy = {.sampled = sampled.value(),
                   .greedy = greedy.value(),
                   .entropy = entropy.sum / std::max(entropy.count, 1.0),
                   .sampled_recall = sampled.edge_recall,
                   .greedy_recall = greedy.edge_recall};
  return result;
}

}  // namespace edgewise::train
