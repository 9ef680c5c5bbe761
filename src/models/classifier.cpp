#include <edgewise/models/classifier.h>

#include <torch/nn/functional.h>

#include "models/layers.h"

namespace edgewise {

Pooling parse_pooling(std::string_view name) {
  if (name == "mean") return Pooling::kMean;
  if (name == "mean_padded") return Pooling::kMeanPadded;
  TORCH_CHECK_VALUE(false, "pooling: expected mean or mean_padded; got '", name, "'");
}

std::string_view to_string(Pooling pooling) {
  return pooling == Pooling::kMean ? "mean" : "mean_padded";
}

namespace {

// The states' mean where those that the mask excludes are 0.
at::Tensor mean_of(const at::Tensor& states, const std::optional<at::Tensor>& mask, Pooling pooling,
                   int64_t length) {
  if (length == 0) length = states.size(1);
  if (!mask && (pooling == Pooling::kMean || length == states.size(1))) return states.mean(1);
  const at::Tensor sum = states.sum(1);  // [B, dim]
  if (!mask || pooling == Pooling::kMeanPadded) return sum / static_cast<double>(length);
  return sum / mask->sum(1, true).clamp_min(1).to(states.scalar_type());
}

}  // namespace

at::Tensor pool(const at::Tensor& states, const std::optional<at::Tensor>& mask, Pooling pooling,
                int64_t length) {
  return mean_of(mask ? states.masked_fill(mask->logical_not().unsqueeze(-1), 0) : states, mask, pooling,
                 length);
}

Classifier::Classifier(ClassifierOptions options_) : options(std::move(options_)) {
  TORCH_CHECK_VALUE(options.classes > 0, "Classifier: expected at least one class; got ", options.classes);
  encoder = register_module("encoder", Encoder(options.encoder));
}

std::vector<at::Tensor> Classifier::encode(const ModelInput& input, size_t towers, ModelOutput& output) {
  const std::vector<Tower>& given = input.batch.towers;
  TORCH_CHECK_VALUE(given.size() == towers, "Classifier: expected ", towers, " tower(s); got ", given.size(),
                    ". Use TwoTowerClassifier for pairs of sequences.");
  std::vector<at::Tensor> result, densities;
  for (size_t index = 0; index < towers; ++index) {
    EncoderInput tower{.tower = given[index], .random = input.random, .keep_edges = input.keep_edges};
    // Towers are separate uses of the same layers: separate layer numbers keep their randomness apart.
    tower.random.layer += static_cast<uint32_t>(index * static_cast<size_t>(options.encoder.layers));
    if (input.watch) {
      tower.watch =
          [&, prefix = towers > 1 ? "tower " + std::to_string(index) + " encoder." : std::string("encoder.")](
              const std::string& name, const at::Tensor& value) { input.watch(prefix + name, value); };
    }
    EncoderOutput encoded = encoder->forward(tower);
    densities.push_back(encoded.densities);
    if (encoded.penalty.defined()) output.tower_penalties.push_back(encoded.penalty);
    output.edge_count =
        output.edge_count.defined() ? output.edge_count + encoded.edge_count : encoded.edge_count;
    for (EdgeSet& edges : encoded.edges) output.edges.push_back(std::move(edges));
    for (AttentionView& view : encoded.views) output.views.push_back(std::move(view));
    for (EdgePolicy& policy : encoded.policies) output.policies.push_back(std::move(policy));
    result.push_back(encoded.states);
  }
  output.densities = at::stack(densities).mean(0);
  if (!output.tower_penalties.empty()) output.penalty = at::stack(output.tower_penalties).mean();
  return result;
}

at::Tensor Classifier::pooled(const ModelInput& input, const std::vector<at::Tensor>& states,
                              size_t tower) const {
  return mean_of(states[tower], input.batch.towers[tower].key_mask(), options.pooling,
                 input.batch.sequence_length);
}

ClassifierHeadImpl::ClassifierHeadImpl(int64_t features, int64_t hidden, int64_t classes) {
  linear1 = register_module("linear1", torch::nn::Linear(features, hidden));
  linear2 = register_module("linear2", torch::nn::Linear(hidden, classes));
}

at::Tensor ClassifierHeadImpl::forward(const at::Tensor& features) {
  return linear2->forward(torch::relu(linear1->forward(features)));
}

SequenceClassifierImpl::SequenceClassifierImpl(ClassifierOptions options_) : Classifier(std::move(options_)) {
  head = register_module("head", ClassifierHead(options.encoder.dim, options.hidden, options.classes));
}

ModelOutput SequenceClassifierImpl::forward(const ModelInput& input) {
  ModelOutput result;
  result.logits = head->forward(pooled(input, encode(input, 1, result), 0));
  if (input.watch) input.watch("head", result.logits);
  return result;
}

TokenClassifierImpl::TokenClassifierImpl(ClassifierOptions options_) : Classifier(std::move(options_)) {
  head = register_module("head", torch::nn::Linear(options.encoder.dim, options.classes));
}

ModelOutput TokenClassifierImpl::forward(const ModelInput& input) {
  ModelOutput result;
  const at::Tensor states = encode(input, 1, result)[0];
  const at::Tensor* const places = input.batch.places();
  result.logits = head->forward(places ? at_places(states, *places) : states);
  if (input.watch) input.watch("head", result.logits);
  return result;
}

TwoTowerClassifierImpl::TwoTowerClassifierImpl(ClassifierOptions options_) : Classifier(std::move(options_)) {
  head = register_module("head", ClassifierHead(4 * options.encoder.dim, options.hidden, options.classes));
}

ModelOutput TwoTowerClassifierImpl::forward(const ModelInput& input) {
  ModelOutput result;
  const std::vector<at::Tensor> states = encode(input, 2, result);
  const at::Tensor x0 = pooled(input, states, 0), x1 = pooled(input, states, 1);
  result.logits = head->forward(at::cat({x0, x1, x0 * x1, x0 - x1}, 1));
  if (input.watch) input.watch("head", result.logits);
  return result;
}

}  // namespace edgewise
