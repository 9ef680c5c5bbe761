#include <edgewise/models/block.h>

#include <torch/nn/functional.h>

#include "models/layers.h"

namespace edgewise {

Activation parse_activation(std::string_view name) {
  if (name == "gelu") return Activation::kGelu;
  if (name == "relu") return Activation::kRelu;
  TORCH_CHECK_VALUE(false, "activation: expected gelu or relu; got '", name, "'");
}

TransformerBlockImpl::TransformerBlockImpl(const BlockOptions& options, SelfAttentionPtr attention,
                                           SelfAttentionPtr cross_attention)
    : dropout_(options.dropout), style_(options.style) {
  self_attn = register_module("self_attn", std::move(attention));
  if (cross_attention) multihead_attn = register_module("multihead_attn", std::move(cross_attention));
  linear1 = register_module("linear1", torch::nn::Linear(options.dim, options.hidden));
  linear2 = register_module("linear2", torch::nn::Linear(options.hidden, options.dim));
  if (!style_.norm) return;
  norm1 = register_module("norm1", make_norm(options.dim));
  norm2 = register_module("norm2", make_norm(options.dim));
  if (multihead_attn) norm3 = register_module("norm3", make_norm(options.dim));
}

AttentionOutput TransformerBlockImpl::attend(SelfAttention& attention, const torch::nn::LayerNorm& norm,
                                             AttentionInput input) {
  if (style_.norm_first) {
    input.x = normed(norm, input.x);
    if (input.memory.defined()) input.memory = normed(norm, input.memory);
  }
  return attention.attend(input);
}

at::Tensor TransformerBlockImpl::add(const at::Tensor& x, const at::Tensor& branch,
                                     const torch::nn::LayerNorm& norm) {
  const at::Tensor sum = ops::add_dropped(x, branch, dropout_, is_training());
  return style_.norm_first ? sum : normed(norm, sum);
}

at::Tensor TransformerBlockImpl::mlp(const at::Tensor& x) {
  const torch::nn::LayerNorm& norm = multihead_attn ? norm3 : norm2;
  const at::Tensor inner =
      projected(linear1, style_.norm_first ? normed(norm, x, ops::NormOutput::kForProducts) : x);
  const at::Tensor hidden =
      torch::dropout(style_.activation == Activation::kRelu ? torch::relu(inner) : torch::gelu(inner),
                     style_.hidden_dropout.value_or(dropout_), is_training());
  return add(x, projected(linear2, hidden), norm);
}

AttentionOutput TransformerBlockImpl::forward(AttentionInput input, const ActivationWatcher& watch,
                                              const std::string& name) {
  AttentionOutput result = attend(*self_attn, norm1, input);
  if (watch) watch(name + "self_attn", result.output);
  result.output = mlp(add(input.x, result.output, norm1));
  if (watch) watch(name + "mlp", result.output);
  return result;
}

TransformerBlockImpl::Decoded TransformerBlockImpl::decode(AttentionInput input, AttentionInput cross,
                                                           const ActivationWatcher& watch,
                                                           const std::string& name) {
  Decoded result{.self = attend(*self_attn, norm1, input), .across = {}};
  if (watch) watch(name + "self_attn", result.self.output);
  cross.x = add(input.x, result.self.output, norm1);
  result.across = attend(*multihead_attn, norm2, cross);
  if (watch) watch(name + "multihead_attn", result.across.output);
  result.across.output = mlp(add(cross.x, result.across.output, norm2));
  if (watch) watch(name + "mlp", result.across.output);
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
