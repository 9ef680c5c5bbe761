#include <edgewise/models/block.h>

#include <torch/nn/functional.h>

#include "models/layers.h"

namespace edgewise {

PreNormBlockImpl::PreNormBlockImpl(const PreNormBlockOptions& options, SelfAttentionPtr attention)
    : dropout_(options.dropout) {
  self_attn = register_module("self_attn", std::move(attention));
  linear1 = register_module("linear1", torch::nn::Linear(options.dim, options.hidden));
  linear2 = register_module("linear2", torch::nn::Linear(options.hidden, options.dim));
  if (!options.norm) return;
  norm1 = register_module("norm1", make_norm(options.dim));
  norm2 = register_module("norm2", make_norm(options.dim));
}

AttentionOutput PreNormBlockImpl::forward(AttentionInput input, const ActivationWatcher& watch,
                                          const std::string& name) {
  const bool training = is_training();
  const at::Tensor x = input.x;
  input.x = normed(norm1, x);
  if (input.memory.defined()) input.memory = normed(norm1, input.memory);
  AttentionOutput result = self_attn->attend(input);
  if (watch) watch(name + "self_attn", result.output);
  const at::Tensor attended = ops::add_dropped(x, result.output, dropout_, training);
  const at::Tensor hidden =
      torch::dropout(torch::gelu(projected(linear1, normed(norm2, attended, ops::NormOutput::kForProducts))),
                     dropout_, training);
  result.output = ops::add_dropped(attended, projected(linear2, hidden), dropout_, training);
  if (watch) watch(name + "mlp", result.output);
  return result;
}

at::Tensor StackOutput::add(AttentionOutput layer) {
  layer_densities_.push_back(layer.density);
  if (layer.penalty.defined()) layer_penalties_.push_back(layer.penalty.mean());
  edge_count = edge_count.defined() ? edge_count + layer.edge_count : layer.edge_count;
  for (EdgePolicy& policy : policies) policy.reaches_own_query_only = false;
  if (layer.policy)
    policies.push_back(*std::move(layer.policy)), policies.back().reaches_own_query_only = true;
  if (layer.edges && !layer.view) layer.view.emplace();
  if (layer.view) {
    layer.view->edges = layer.edges;
    views.push_back(*std::move(layer.view));
  }
  if (layer.edges) edges.push_back(*std::move(layer.edges));
  return layer.output;
}

void StackOutput::finish() {
  densities = at::stack(layer_densities_);
  if (!layer_penalties_.empty()) penalty = at::stack(layer_penalties_).mean();
}

}  // namespace edgewise
