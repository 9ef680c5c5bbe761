// functional::edge_attention: autograd around the implementations that ops/attention/dispatch.cpp chooses
// from.
#include <edgewise/ops/functional.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/attention/attention_impl.h"
#include "ops/step_inputs.h"
#include "ops/streams.h"

namespace edgewise::functional {
namespace {

using ops::AttentionBackward;
using ops::AttentionForward;
using ops::AttentionInputs;
using ops::CreditRequest;

// dP/dp of the law at the given edges. The straight-through estimators pass it by (they treat the draw as the
// identity); the counterfactual one is a derivative of the expectation and needs it.
at::Tensor law_slope(const EdgeCredit& credit, const EdgeSet& edges) {
  const at::Tensor p =
      ops::edge_dot(edges, credit.query_membership.detach(), credit.key_side.detach()) + credit.exploration;
  return at::where(p < 1, (-p).exp(), at::zeros_like(p));
}

// Everything the backward pass needs that is not a tensor input.
struct Call : torch::CustomClassHolder {
  AttentionInputs inputs;
  std::optional<EdgeCredit> credit;
  Backend backend = Backend::kAuto;
  AttentionForward forward;  // without its output, which autograd holds
};

// values[e] / rates[item of edge e], in place.
at::Tensor& divide_by_rates(at::Tensor& values, const EdgeSet& edges, const std::vector<double>& rates) {
  if (std::adjacent_find(rates.begin(), rates.end(), std::not_equal_to<>()) == rates.end())
    return values.div_(rates.empty() ? 1.0 : rates[0]);
  const EdgeShape& shape = edges.shape();
  const int64_t item_rows = shape.heads * shape.queries;
  if (!values.is_cpu()) {
    const at::Tensor items = edges.edge_rows().div(std::max<int64_t>(item_rows, 1), "floor");
    return values.div_(
        at::tensor(rates, at::kDouble).to(values.device(), values.scalar_type()).index_select(0, items));
  }
  // The edges of an item lie together: no index per edge needed.
  const int64_t* offsets = edges.row_offsets().const_data_ptr<int64_t>();
  for (int64_t item = 0; item < shape.batch; ++item) {
    const int64_t begin = offsets[item * item_rows], count = offsets[(item + 1) * item_rows] - begin;
    values.narrow(0, begin, count).div_(rates[static_cast<size_t>(item)]);
  }
  return values;
}

// The gradients of the memberships from the gradients of attention and of the sampled density.
std::pair<at::Tensor, at::Tensor> membership_grads(const Call& call, const AttentionBackward& backward,
                                                   const at::Tensor& density_grad) {
  const EdgeCredit& credit = *call.credit;
  const EdgeSet& edges = call.inputs.edges;
  const EdgeShape& shape = edges.shape();
  const at::ScalarType value_type = call.forward.lse.scalar_type();
  // What the sampled density sends to each edge of a set: [E].
  const auto density_part = [&](const EdgeSet& set) {
    const at::Tensor heads =
        set.edge_rows().div(std::max<int64_t>(shape.queries, 1), "floor").remainder(shape.heads);
    return (density_grad / credit.pairs_per_head).to(value_type).index_select(0, heads);
  };
  const auto clipped = [&](const at::Tensor& values) {
    return credit.gradient_clip > 0 ? values.clamp(-credit.gradient_clip, credit.gradient_clip) : values;
  };
  const bool penalised = density_grad.defined() && credit.pairs_per_head > 0;
  const bool slope = credit.law == EdgeLaw::kPoisson && credit.estimator == Estimator::kCounterfactual;
  // Memberships may be of another dtype than the attention; values follow them.
  const at::ScalarType target =
      credit.query_membership.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor query_grad = backward.query_membership, key_grad = backward.key_side;
  const auto add = [&](const EdgeSet& set, const at::Tensor& values) {
    const at::Tensor rows = ops::multiply_rows(set, values.to(target), credit.key_side.detach());
    const at::Tensor columns =
        ops::multiply_columns(set, values.to(target), credit.query_membership.detach());
    query_grad = query_grad.defined() ? query_grad.add_(rows) : rows;
    key_grad = key_grad.defined() ? key_grad.add_(columns) : columns;
  };
  if (backward.credit.defined()) {
    at::Tensor values = clipped(penalised ? backward.credit + density_part(edges) : backward.credit);
    if (credit.fixed) values = values.masked_fill(edges.contained_in(*credit.fixed), 0);
    if (slope) values = values * law_slope(credit, edges).to(value_type);
    add(edges, values);
  }
  if (credit.discarded && penalised && !backward.has_discarded)
    add(*credit.discarded, clipped(density_part(*credit.discarded)));
  if (backward.probe_credit.defined()) {
    at::Tensor probe_values = backward.probe_credit;
    divide_by_rates(probe_values, *credit.probes, credit.probe_rates);
    if (slope) probe_values = probe_values * law_slope(credit, *credit.probes).to(value_type);
    add(*credit.probes, probe_values);
  }
  return {query_grad, key_grad};
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query, const at::Tensor& key,
                                                const at::Tensor& value, const at::Tensor& query_membership,
                                                const at::Tensor& key_side,
                                                const c10::intrusive_ptr<Call>& call) {
    context->set_materialize_grads(false);  // a density that nobody penalises sends nothing back
    const AttentionForward result =
        ops::run_forward(call->inputs, call->backend, call->credit ? &*call->credit : nullptr);
    call->forward = result;
    call->forward.output = at::Tensor();
    context->save_for_backward({query, key, value, query_membership, key_side, result.output});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    // The call no longer holds the inputs: autograd's saved variables do, and check that nobody changed them.
    call->inputs.query = call->inputs.key = call->inputs.value = at::Tensor();
    if (!call->credit) return {result.output};
    const EdgeCredit& credit = *call->credit;
    const EdgeSet& edges = call->inputs.edges;
    const EdgeSet decided = credit.fixed ? edges.minus(*credit.fixed) : edges;
    at::Tensor counts = decided.edges_per_head().sum(0);
    if (credit.discarded) counts = counts + credit.discarded->edges_per_head().sum(0);
    return {result.output, ops::over(counts.to(result.lse.scalar_type()),
                                     ops::at_least_one({credit.pairs_per_head, credit.pairs_again}))};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    check_differentiated_once();
    const auto saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    AttentionInputs inputs = call->inputs;
    inputs.query = saved[0];
    inputs.key = saved[1];
    inputs.value = saved[2];
    const at::Tensor grad = grads[0].defined() ? grads[0] : at::zeros_like(saved[5]);
    CreditRequest request;
    if (call->credit) {
      request.rule = ops::credit_rule(*call->credit);
      request.probes = call->credit->probes;
      request.learner = &*call->credit;
      request.density_grad = grads[1];
    }
    AttentionForward computed = call->forward;
    computed.output = saved[5];
    // Overwritten; if there is another backward pass, it forms its own.
    call->forward.scores = call->forward.exponentials = at::Tensor();
    const AttentionBackward result = ops::run_backward(inputs, computed, grad, request, call->backend);
    std::pair<at::Tensor, at::Tensor> membership;
    if (call->credit) membership = membership_grads(*call, result, grads[1]);
    return {result.query, result.key, result.value, membership.first, membership.second, {}};
  }
};

LearnedAttention run(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const EdgeSet& given, const EdgeCredit* credit, const EdgeAttentionOptions& options) {
  check_attention(query, key, value, given, options);
  const EdgeSet edges = options.is_causal ? given.causal() : given;
  AttentionInputs inputs = ops::attention_inputs(query, key, value, edges, options.scale);
  inputs.dropout_p = options.dropout_p;
  if (options.dropout_p > 0)
    inputs.head_keys =
        ops::StepInputs::recording()
            ? ops::stream_keys_on(query.device(), options.random, kernels::Purpose::kDropout, edges.shape())
            : ops::stream_keys(options.random, kernels::Purpose::kDropout, edges.shape());
  // Nobody to differentiate for: autograd's bookkeeping costs as much as attention over a few edges.
  const bool differentiable =
      at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  if (!credit && !differentiable) return {ops::run_forward(inputs, options.backend).output, at::Tensor()};
  inputs.gradients_follow = at::GradMode::is_enabled();
  if (credit) ops::serve_learner(inputs, *credit);
  for (at::Tensor* tensor : {&inputs.query, &inputs.key, &inputs.value}) *tensor = tensor->detach();
  auto call = c10::make_intrusive<Call>();
  call->inputs = std::move(inputs);
  call->backend = options.backend;
  // Without a learner, empty tensors stand for its inputs: autograd wants defined ones.
  at::Tensor query_membership = at::empty({0}), key_side = query_membership;
  if (credit) {
    TORCH_CHECK_VALUE(!options.is_causal,
                      "edge_attention: with a learner, ask it for causal edges instead of is_causal");
    TORCH_CHECK_VALUE(
        !credit->probes || static_cast<int64_t>(credit->probe_rates.size()) == edges.shape().batch,
        "edge_attention: expected one probe rate per item (", edges.shape().batch, "); got ",
        credit->probe_rates.size());
    call->credit = *credit;
    query_membership = credit->query_membership;
    key_side = credit->key_side;
    // Saved as graph inputs; the copy in the call must not hold the graph.
    call->credit->query_membership = query_membership.detach();
    call->credit->key_side = key_side.detach();
  }
  const auto outputs = AttentionFunction::apply(query, key, value, query_membership, key_side, call);
  return {outputs[0], credit ? outputs[1] : at::Tensor()};
}

}  // namespace

at::Tensor edge_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const EdgeSet& edges, const EdgeAttentionOptions& options) {
  return run(query, key, value, edges, nullptr, options).output;
}

LearnedAttention edge_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                const EdgeSet& edges, const EdgeCredit& credit,
                                const EdgeAttentionOptions& options) {
  return run(query, key, value, edges, &credit, options);
}

}  // namespace edgewise::functional
