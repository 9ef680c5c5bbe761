#include <edgewise/attention/multihead_attention.h>

#include <cmath>
#include <ostream>

#include <torch/nn/functional.h>
#include <torch/nn/init.h>

#include <edgewise/ops/functional.h>

#include "attention/attend_choice.h"
#include "attention/masking.h"
#include "ops/layers/state_rows.h"
#include "ops/step_inputs.h"

namespace edgewise {
namespace {

void check_input(const MultiheadEdgeAttentionOptions& options, const at::Tensor& x,
                 const std::optional<at::Tensor>& key_mask) {
  TORCH_CHECK_VALUE(x.dim() == 3 && x.size(2) == options.embed_dim,
                    "MultiheadEdgeAttention: expected x [B, N, ", options.embed_dim,
                    "] (embed_dim last); got ", x.sizes());
  if (!key_mask) return;
  TORCH_CHECK_TYPE(key_mask->scalar_type() == at::kBool,
                   "MultiheadEdgeAttention: expected a bool key_mask, true = valid token; got ",
                   key_mask->scalar_type(), ". Convert it with mask.to(torch::kBool).");
  TORCH_CHECK_VALUE(key_mask->dim() == 2 && key_mask->size(0) == x.size(0) && key_mask->size(1) == x.size(1),
                    "MultiheadEdgeAttention: expected key_mask [", x.size(0), ", ", x.size(1),
                    "] to match x ", x.sizes(), "; got ", key_mask->sizes());
}

// x [B, H, N, D] with the pairs of neighbouring columns turned by the places of their rows.
at::Tensor turned(const at::Tensor& x, int64_t first) {
  const int64_t half = x.size(3) / 2;
  const auto wide = at::TensorOptions().dtype(at::kFloat).device(x.device());
  const at::Tensor rate = at::exp(at::arange(half, wide) * (-std::log(10000.0) / static_cast<double>(half)));
  const at::Tensor angle = at::arange(first, first + x.size(2), wide).unsqueeze(1) * rate;  // [N, D / 2]
  const at::Tensor cos = angle.cos().to(x.scalar_type()), sin = angle.sin().to(x.scalar_type());
  const at::Tensor pairs = x.unflatten(3, {half, 2}), a = pairs.select(4, 0), b = pairs.select(4, 1);
  return at::stack({a * cos - b * sin, a * sin + b * cos}, 4).flatten(3);
}

}  // namespace

struct MultiheadEdgeAttentionImpl::Heads {
  at::Tensor query, key, value;  // [B, H, N, D]

  EdgeShape shape() const { return {query.size(0), query.size(1), query.size(2), key.size(2)}; }
};

MultiheadEdgeAttentionOptions::MultiheadEdgeAttentionOptions(int64_t embed_dim_, int64_t num_heads_)
    : embed_dim(embed_dim_), num_heads(num_heads_) {}

MultiheadEdgeAttentionImpl::MultiheadEdgeAttentionImpl(MultiheadEdgeAttentionOptions options_)
    : options(std::move(options_)) {
  TORCH_CHECK_VALUE(
      options.num_heads > 0 && options.embed_dim > 0 && options.embed_dim % options.num_heads == 0,
      "MultiheadEdgeAttention: expected embed_dim to be a positive multiple of num_heads; got embed_dim ",
      options.embed_dim, " and num_heads ", options.num_heads);
  TORCH_CHECK_VALUE(options.dropout_p >= 0 && options.dropout_p < 1,
                    "MultiheadEdgeAttention: expected dropout_p in [0, 1); got ", options.dropout_p);
  TORCH_CHECK_VALUE(!options.source || !options.method,
                    "MultiheadEdgeAttention: expected an edge source or a method, not both");
  TORCH_CHECK_VALUE(
      !options.method || !options.is_causal,
      "MultiheadEdgeAttention: expected attention over edges, or dense attention, for is_causal; got "
      "a method, which sees the whole sequence");
  TORCH_CHECK_VALUE(!options.rotary || options.embed_dim / options.num_heads % 2 == 0,
                    "MultiheadEdgeAttention: expected an even width of heads for rotary positions; got ",
                    options.embed_dim / options.num_heads);
  const int64_t rows = (options.shared_qk ? 2 : 3) * options.embed_dim;
  in_proj_weight = register_parameter("in_proj_weight", torch::empty({rows, options.embed_dim}));
  if (options.in_proj_bias) in_proj_bias = register_parameter("in_proj_bias", torch::empty({rows}));
  out_proj = register_module("out_proj", torch::nn::Linear(options.embed_dim, options.embed_dim));
  if (options.source) register_module("edges", options.source);
  if (options.method) register_module("method", options.method);
  reset_parameters();
}

void MultiheadEdgeAttentionImpl::reset_parameters() {
  // As three separate torch Linear layers would start (the published model), not Xavier as
  // nn.MultiheadAttention does.
  const double bound = 1 / std::sqrt(static_cast<double>(options.embed_dim));
  torch::nn::init::uniform_(in_proj_weight, -bound, bound);
  if (in_proj_bias.defined()) torch::nn::init::uniform_(in_proj_bias, -bound, bound);
  out_proj->reset_parameters();
}

MultiheadEdgeAttentionImpl::Heads MultiheadEdgeAttentionImpl::project(const at::Tensor& x,
                                                                      int64_t first) const {
  const int64_t head_dim = options.embed_dim / options.num_heads;
  const auto projected = ops::linear(x, in_proj_weight, in_proj_bias)
                             .view({x.size(0), x.size(1), -1, options.num_heads, head_dim})
                             .permute({2, 0, 3, 1, 4})  // [3 or 2, B, H, N, D]
                             .unbind(0);
  const at::Tensor key = options.shared_qk
                             ? torch::nn::functional::normalize(
                                   projected[0], torch::nn::functional::NormalizeFuncOptions().dim(-1))
                             : projected[1];
  if (options.rotary)
    return {turned(projected[0], first), turned(key.to(projected[0].scalar_type()), first), projected.back()};
  return {projected[0], key.to(projected[0].scalar_type()), projected.back()};
}

MultiheadEdgeAttentionImpl::Heads MultiheadEdgeAttentionImpl::project_across(
    const AttentionInput& input) const {
  const int64_t width = options.embed_dim;
  const auto part = [&](const at::Tensor& x, int64_t first, int64_t count) {  // of query, key and value
    return ops::linear(
               x, in_proj_weight.narrow(0, first * width, count * width),
               in_proj_bias.defined() ? in_proj_bias.narrow(0, first * width, count * width) : at::Tensor())
        .view({x.size(0), x.size(1), count, options.num_heads, width / options.num_heads})
        .permute({2, 0, 3, 1, 4})  // [count, B, H, N, D]
        .unbind(0);
  };
  Heads heads{.query = part(input.x, 0, 1)[0], .key = {}, .value = {}};
  if (input.cache && input.cache->key.size() > 0) {
    heads.key = input.cache->key.rows();
    heads.value = input.cache->value.rows();
    return heads;
  }
  const auto keys_and_values = part(input.source, 1, 2);
  heads.key = input.cache ? input.cache->key.append(keys_and_values[0]) : keys_and_values[0];
  heads.value = input.cache ? input.cache->value.append(keys_and_values[1]) : keys_and_values[1];
  return heads;
}

// What attention across sequences can do, and what it needs to be given.
void MultiheadEdgeAttentionImpl::check_across(const AttentionInput& input) const {
  TORCH_CHECK_VALUE(!options.is_causal && !options.method && !options.shared_qk && !options.rotary,
                    "MultiheadEdgeAttention: expected neither is_causal, a method, shared_qk nor rotary "
                    "positions across sequences, whose tokens have no places in common");
  check_input(options, input.x, input.query_mask);
  const bool known = input.cache && input.cache->key.size() > 0;
  TORCH_CHECK_VALUE(
      known || (input.source.defined() && input.source.dim() == 3 &&
                input.source.size(0) == input.x.size(0) && input.source.size(2) == options.embed_dim),
      "MultiheadEdgeAttention: expected source [", input.x.size(0), ", S, ", options.embed_dim,
      "] to attend to; got ", input.source.defined() ? c10::str(input.source.sizes()) : "none");
  if (!known) check_input(options, input.source, input.key_mask);
}

AttentionOutput MultiheadEdgeAttentionImpl::attend(const AttentionInput& input) {
  TORCH_CHECK_VALUE(!input.memory.defined(),
                    "MultiheadEdgeAttention: expected no memory, which its positions do not reach; got ",
                    input.memory.sizes());
  if (input.is_cross) {
    check_across(input);
    return attend_heads(project_across(input), input);
  }
  TORCH_CHECK_VALUE(!input.cache, "MultiheadEdgeAttention: expected no cache; use CausalEdgeAttention");
  check_input(options, input.x, input.key_mask);
  return attend_heads(project(input.x), input);
}

AttentionOutput MultiheadEdgeAttentionImpl::forward(const at::Tensor& x,
                                                    const std::optional<at::Tensor>& key_mask,
                                                    const RandomStream& random, bool keep_edges) {
  return attend({.x = x, .key_mask = key_mask, .random = random, .keep_edges = keep_edges});
}

AttentionOutput MultiheadEdgeAttentionImpl::attend_heads(const Heads& heads, const AttentionInput& input) {
  AttentionOutput result = options.source   ? attend_edges(heads, input)
                           : options.method ? attend_method(heads, input)
                                            : attend_dense(heads, input);
  if (input.keep_edges && !options.method) {
    if (!result.view) result.view.emplace();
    result.view->query = heads.query.detach();
    result.view->key = heads.key.detach();
  }
  result.output = ops::linear(result.output.transpose(1, 2).flatten(2), out_proj->weight, out_proj->bias);
  return result;
}

AttentionOutput MultiheadEdgeAttentionImpl::attend_dense(const Heads& heads,
                                                         const AttentionInput& input) const {
  const std::optional<at::Tensor>&key_mask = input.key_mask,
        &query_mask = input.is_cross ? input.query_mask : key_mask;
  const double dropout_p = is_training() ? options.dropout_p : 0;
  const EdgeShape shape = heads.shape();
  AttentionOutput result;
  if (!key_mask && !query_mask && shape.queries == shape.keys) {
    result.output = at::scaled_dot_product_attention(heads.query, heads.key, heads.value, std::nullopt,
                                                     dropout_p, options.is_causal);
  } else if (!key_mask && !query_mask) {  // across; or behind a cache, whose end the queries are
    std::optional<at::Tensor> allowed;
    if (options.is_causal && shape.queries > 1)
      allowed = at::ones({shape.queries, shape.keys}, heads.query.options().dtype(at::kBool))
                    .tril(shape.keys - shape.queries);
    result.output =
        at::scaled_dot_product_attention(heads.query, heads.key, heads.value, allowed, dropout_p, false);
  } else {
    // [B, 1, 1, S], or [B, 1, N, N] when causal
    at::Tensor allowed = key_mask ? key_mask->unsqueeze(1).unsqueeze(1)
                                  : at::ones({1, 1, 1, shape.keys}, query_mask->options());
    if (options.is_causal) {
      allowed = allowed & at::ones({shape.queries, shape.keys}, allowed.options()).tril();
    }
    // A row with nothing to attend to would be a softmax over nothing, which some back ends turn into NaN:
    // let it attend to everything and discard the result. The same removes padding queries, as the sparse
    // path does. The mask stays as small as it is: spread over the queries it would take N^2 numbers an item.
    const at::Tensor unused = allowed.any(-1, true).logical_not();  // [B, 1, 1 or N, 1]
    const at::Tensor discard =
        query_mask ? unused | query_mask->logical_not().unsqueeze(1).unsqueeze(-1) : unused;  // [B, 1, N, 1]
    result.output = at::scaled_dot_product_attention(heads.query, heads.key, heads.value, allowed | unused,
                                                     dropout_p, false)
                        .masked_fill(discard, 0);
  }
  result.density = at::ones({shape.heads}, heads.query.options().dtype(at::kDouble).requires_grad(false));
  const auto count = [shape, masks = PairMasks{key_mask, query_mask},
                      causal = options.is_causal](const ops::StreamShift&) {
    return at::full({}, shape.heads * allowed_pairs(shape, masks, causal), at::kLong);
  };
  // A number on the host, unless a pass is recorded.
  result.edge_count = ops::StepInputs::recording() ? ops::on_device(heads.query.device(), count) : count({});
  return result;
}

AttentionOutput MultiheadEdgeAttentionImpl::attend_edges(const Heads& heads, const AttentionInput& input) {
  const std::optional<at::Tensor>& key_mask = input.key_mask;
  EdgeRequest request{heads.query, heads.key, key_mask, options.is_causal, input.random};
  request.tokens = input.x;
  if (input.is_cross) {
    request.is_cross = true;
    request.cross_mask = input.query_mask;
    request.key_tokens = input.source;
    if (!input.rows.empty()) request.query_offset = input.rows.front();
  } else {
    request.query_offset = heads.key.size(2) - heads.query.size(2);
  }
  request.relations = input.relations;
  if (input.cache) request.known_keys = &input.cache->features;
  const EdgeChoice choice = allowed_choice(*options.source, request);
  functional::EdgeAttentionOptions attention;
  attention.dropout_p = is_training() ? options.dropout_p : 0;
  attention.random = input.random;
  AttentionOutput result = attend_choice(heads.query, heads.key, heads.value, request, choice, attention);
  if (input.keep_edges) {
    result.edges = choice.edges;
    result.view.emplace();
    if (choice.learner && choice.learner->query_membership.defined()) {
      result.view->query_membership = choice.learner->query_membership.detach();
      result.view->key_side = choice.learner->key_side.detach();
    }
  }
  return result;
}

AttentionOutput MultiheadEdgeAttentionImpl::attend_method(const Heads& heads,
                                                          const AttentionInput& input) const {
  const NoAutocast no_autocast(heads.query.device().type());
  const auto wide = [](const at::Tensor& x) { return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat); };
  AttentionOutput result;
  result.output = options.method->attend({.query = wide(heads.query),
                                          .key = wide(heads.key),
                                          .value = wide(heads.value),
                                          .key_mask = input.key_mask,
                                          .dropout_p = is_training() ? options.dropout_p : 0,
                                          .random = input.random});
  result.density = at::full({options.num_heads}, options.method->density(heads.query.size(2)),
                            heads.query.options().dtype(at::kDouble).requires_grad(false));
  result.edge_count = at::zeros({}, at::kLong);
  return result;
}

void MultiheadEdgeAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::MultiheadEdgeAttention(embed_dim=" << options.embed_dim
         << ", num_heads=" << options.num_heads << ", dropout_p=" << options.dropout_p
         << (options.is_causal ? ", causal" : "") << (options.source || options.method ? "" : ", dense")
         << (options.shared_qk ? ", shared_qk" : "") << ")";
}

CausalEdgeAttentionImpl::CausalEdgeAttentionImpl(MultiheadEdgeAttentionOptions options_)
    : MultiheadEdgeAttentionImpl([&] {
        options_.is_causal = true;
        return std::move(options_);
      }()) {}

AttentionOutput CausalEdgeAttentionImpl::attend(const AttentionInput& input) {
  if (!input.cache) return MultiheadEdgeAttentionImpl::attend(input);
  check_input(options, input.x, std::nullopt);
  Heads heads = project(input.x, input.cache->key.size());
  heads.key = input.cache->key.append(heads.key);
  heads.value = input.cache->value.append(heads.value);
  return attend_heads(heads, input);
}

std::string CausalEdgeAttentionImpl::causal_refusal() const {
  return options.source ? options.source->causal_refusal() : std::string();
}

std::string CausalEdgeAttentionImpl::cache_refusal() const {
  return options.source ? options.source->growth_refusal() : std::string();
}

}  // namespace edgewise
