#include "ops/squares/square_edge_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <edgewise/ops/cpu_level.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cmath>

#include "ops/attention/attention_call.h"
#include "ops/squares/square_kernels.h"
#include "ops/step_inputs.h"
#include "ops/streams.h"

namespace edgewise::ops {
namespace {

using functional::Backend;
using functional::EdgeAttentionOptions;
using functional::LearnedAttention;

// Everything the backward pass needs that is not a tensor input.
struct SquareState : torch::CustomClassHolder {
  SquareCall call;  // without query, key and value, which autograd holds
  EdgeSet edges;
  std::optional<EdgeLearner> learner;
  Backend backend = Backend::kAuto;
  at::Tensor absent;  // [B, 1, L, 1] bool: queries that take no part; undefined: none
  at::Tensor lse;

  // Rows of queries that take no part are 0, in what comes in and in what goes out: then nothing of them
  // reaches keys, values or squares, and the kernels need not know them.
  at::Tensor cleared(const at::Tensor& rows) const {
    return absent.defined() ? rows.masked_fill(absent, 0) : rows;
  }
};

SquareForward forward_of(const SquareState& state, const SquareCall& call) {
  RECORD_FUNCTION("edgewise::edge_attention", {});
  SquareForward result = square_forward(call, state.backend);
  result.output = state.cleared(result.output);
  return result;
}

SquareBackward backward_of(const SquareState& state, const SquareCall& call, const SquareForward& forward,
                           const at::Tensor& grad, const SquareCredit& credit) {
  RECORD_FUNCTION("edgewise::edge_attention_backward", {});
  SquareBackward result = square_backward(call, forward, state.cleared(grad), credit, state.backend);
  result.query = state.cleared(result.query);
  return result;
}

struct SquareFunction : torch::autograd::Function<SquareFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query, const at::Tensor& key,
                                                const at::Tensor& value, const at::Tensor& query_membership,
                                                const at::Tensor& key_side, const at::Tensor&,  // values,
                                                const at::Tensor&,  // probe_values
                                                const c10::intrusive_ptr<SquareState>& state) {
    context->set_materialize_grads(false);  // a density that nobody penalises sends nothing back
    const SquareForward result = forward_of(*state, state->call);
    state->lse = result.lse;
    context->save_for_backward({query, key, value, query_membership, key_side, result.output});
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    state->call.query = state->call.key = state->call.value = at::Tensor();
    if (!state->learner || !state->learner->query_membership.defined()) return {result.output};
    const EdgeLearner& learner = *state->learner;
    const EdgeSet decided = learner.fixed ? state->edges.minus(*learner.fixed) : state->edges;
    return {result.output, over(decided.edges_per_head().sum(0).to(result.lse.scalar_type()),
                                at_least_one(pairs_per_head(learner)))};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const auto saved = context->get_saved_variables();
    const auto state =
        c10::static_intrusive_pointer_cast<SquareState>(context->saved_data["state"].toCapsule());
    SquareCall call = state->call;
    call.query = state->cleared(saved[0]), call.key = saved[1], call.value = saved[2];
    const at::Tensor grad = grads[0].defined() ? grads[0] : at::zeros_like(saved[5]);
    SquareCredit request;
    if (state->learner) {
      request.rule = kernel_rule(state->learner->rule);
      if (state->learner->probes) request.probes = *state->learner->probes->squares();
    }
    const SquareBackward result = backward_of(*state, call, {saved[5], state->lse}, grad, request);
    SquareMembershipGrads membership;
    SquareValueGrads values;
    if (state->learner && state->learner->values.defined())
      values = square_value_grads(*state->learner, state->edges, result);
    else if (state->learner)
      membership = square_membership_grads(*state->learner, state->edges, result, grads[1]);
    return {result.query,        result.key,    result.value,        membership.query,
            membership.key_side, values.values, values.probe_values, {}};
  }
};

}  // namespace

LearnedAttention square_edge_attention(const at::Tensor& query, const at::Tensor& key,
                                       const at::Tensor& value, const EdgeSet& given,
                                       const EdgeLearner* learner, const EdgeAttentionOptions& options) {
  TORCH_CHECK_VALUE(query.dim() == 4, "edge_attention: expected query [B, H, L, D]; got ", query.sizes());
  TORCH_CHECK_VALUE(!options.scale || std::isfinite(*options.scale),
                    "edge_attention: expected a finite scale; got ", options.scale.value_or(0));
  TORCH_CHECK_VALUE(!learner || !options.is_causal,
                    "edge_attention: with a learner, ask it for causal edges instead of is_causal");
  if (learner) check_square_learner(*learner, given);
  auto state = c10::make_intrusive<SquareState>();
  state->edges = options.is_causal ? given.causal() : given;
  state->backend = options.backend;
  const graph::SquarePairs& pairs = state->edges.square_pairs();
  if (pairs.query_mask.defined())
    state->absent = pairs.query_mask.logical_not().view({query.size(0), 1, pairs.query_mask.size(1), 1});
  state->call = {.query = state->cleared(query.detach()),
                 .key = key.detach(),
                 .value = value.detach(),
                 .squares = *state->edges.squares(),
                 .key_bits = pairs.key_bits,
                 .is_causal = pairs.is_causal,
                 .query_offset = pairs.query_offset,
                 .scale = options.scale.value_or(
                     1 / std::sqrt(static_cast<double>(std::max<int64_t>(query.size(3), 1)))),
                 .dropout_p = options.dropout_p,
                 .head_keys = {}};
  if (options.dropout_p > 0)
    state->call.head_keys =
        StepInputs::recording()
            ? stream_keys_on(query.device(), options.random, kernels::Purpose::kDropout, given.shape())
            : stream_keys(options.random, kernels::Purpose::kDropout, given.shape());
  const bool differentiable =
      at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  if (!learner && !differentiable) return {forward_of(*state, state->call).output, at::Tensor()};
  // Autograd wants defined inputs: empty tensors stand for those that a learner has not.
  const at::Tensor none = at::empty({0});
  std::array<at::Tensor, 4> taught = {none, none, none, none};
  if (learner) {
    state->learner = *learner;
    EdgeLearner& kept = *state->learner;
    at::Tensor* const inputs[] = {&kept.query_membership, &kept.key_side, &kept.values, &kept.probe_values};
    for (size_t n = 0; n < taught.size(); ++n) {
      if (!inputs[n]->defined()) continue;
      taught[n] = *inputs[n];
      *inputs[n] = inputs[n]->detach();  // the copy in the state must not hold the graph
    }
  }
  const auto outputs =
      SquareFunction::apply(query, key, value, taught[0], taught[1], taught[2], taught[3], state);
  return {outputs[0], outputs.size() > 1 ? outputs[1] : at::Tensor()};
}

AttentionChoice explain_square_attention(const at::Tensor& query, const at::Tensor& key,
                                         const at::Tensor& value, const EdgeSet& edges) {
  SquareCall call;
  call.query = query, call.key = key, call.value = value, call.squares = *edges.squares();
  AttentionChoice result;
  for (const SquareKernel& kernel : square_kernels())
    result.kernels.push_back({kernel.name, kernel.refusal(call, Backend::kAuto)});
  result.implementation = choose_square_kernel(call, Backend::kAuto).name;
  if (query.is_cpu()) result.cpu_level = query.scalar_type() == at::kDouble ? "scalar" : cpu_level();
  return result;
}

}  // namespace edgewise::ops
