// functional::edge_attention: autograd around the kernels of kernel_table.cpp.
#include <edgewise/ops/functional.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "ops/attention/learners/learner_grads.h"
#include "ops/squares/square_edge_attention.h"
#include "ops/step_inputs.h"
#include "ops/streams.h"

namespace edgewise::functional {
namespace {

using ops::AttentionBackward;
using ops::AttentionForward;
using ops::AttentionInputs;

// dP/dp of the law at the given edges. The straight-through estimators pass it by (they treat the draw as the
// identity); the counterfactual one is a derivative of the expectation and needs it.
at::Tensor law_slope(const EdgeLearner& learner, const EdgeSet& edges) {
  const at::Tensor p = ops::edge_dot(edges, learner.query_membership, learner.key_side) + learner.exploration;
  return at::where(p < 1, (-p).exp(), at::zeros_like(p));
}

// Everything the backward pass needs that is not a tensor input.
struct Call : torch::CustomClassHolder {
  // Without query, key, value and output: autograd holds them, and checks that they have not been changed.
  AttentionInputs inputs;
  AttentionForward forward;
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
std::pair<at::Tensor, at::Tensor> membership_grads(const AttentionInputs& in,
                                                   const AttentionBackward& backward,
                                                   const at::Tensor& density_grad) {
  const EdgeLearner& learner = *in.learner;
  const EdgeSet& edges = in.edges;
  const EdgeShape& shape = edges.shape();
  const at::ScalarType value_type = in.accumulator();
  // What the sampled density sends to each edge of a set: [E].
  const auto density_part = [&](const EdgeSet& set) {
    const at::Tensor heads =
        set.edge_rows().div(std::max<int64_t>(shape.queries, 1), "floor").remainder(shape.heads);
    return (density_grad / learner.pairs_per_head).to(value_type).index_select(0, heads);
  };
  const auto clipped = [&](const at::Tensor& values) {
    return learner.gradient_clip > 0 ? values.clamp(-learner.gradient_clip, learner.gradient_clip) : values;
  };
  const bool penalised = density_grad.defined() && learner.pairs_per_head > 0;
  // Memberships may be of another dtype than the attention; values follow them.
  const at::ScalarType target =
      learner.query_membership.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor query_grad = backward.query_membership, key_grad = backward.key_side;
  const auto add = [&](const EdgeSet& set, const at::Tensor& values) {
    const at::Tensor rows = ops::multiply_rows(set, values.to(target), learner.key_side);
    const at::Tensor columns = ops::multiply_columns(set, values.to(target), learner.query_membership);
    query_grad = query_grad.defined() ? query_grad.add_(rows) : rows;
    key_grad = key_grad.defined() ? key_grad.add_(columns) : columns;
  };
  if (backward.credit.defined()) {
    at::Tensor values = clipped(penalised ? backward.credit + density_part(edges) : backward.credit);
    if (learner.fixed) values = values.masked_fill(edges.contained_in(*learner.fixed), 0);
    if (learner.poisson_slope) values = values * law_slope(learner, edges).to(value_type);
    add(edges, values);
  }
  if (learner.discarded && penalised && !backward.has_discarded)
    add(*learner.discarded, clipped(density_part(*learner.discarded)));
  if (backward.probe_credit.defined()) {
    at::Tensor probe_values = backward.probe_credit;
    divide_by_rates(probe_values, *learner.probes, learner.probe_rates);
    if (learner.poisson_slope)
      probe_values = probe_values * law_slope(learner, *learner.probes).to(value_type);
    add(*learner.probes, probe_values);
  }
  return {query_grad, key_grad};
}

}  // namespace
}  // namespace edgewise::functional

namespace edgewise::ops {

LearnerGrads learner_grads(const AttentionInputs& in, const AttentionBackward& backward,
                           const at::Tensor& density_grad) {
  LearnerGrads result;
  if (in.learns.clusters > 0) {
    std::tie(result.query_membership, result.key_side) =
        functional::membership_grads(in, backward, density_grad);
  } else if (in.learner) {
    const EdgeLearner& learner = *in.learner;
    if (learner.values.defined()) result.values = backward.credit.to(learner.values.scalar_type());
    if (learner.probe_values.defined()) {
      at::Tensor credit = backward.probe_credit;
      result.probe_values = functional::divide_by_rates(credit, *learner.probes, learner.probe_rates)
                                .to(learner.probe_values.scalar_type());
    }
  }
  return result;
}

at::Tensor sampled_density(const EdgeLearner& learner, const EdgeSet& edges, at::ScalarType dtype) {
  const EdgeSet decided = learner.fixed ? edges.minus(*learner.fixed) : edges;
  at::Tensor counts = decided.edges_per_head().sum(0);
  if (learner.discarded) counts = counts + learner.discarded->edges_per_head().sum(0);
  return over(counts.to(dtype), at_least_one(pairs_per_head(learner)));
}

void check_learner(const char* name, const EdgeLearner& learner, const EdgeSet& edges) {
  TORCH_CHECK_VALUE(learner.query_membership.defined() == learner.key_side.defined() &&
                        learner.values.defined() != learner.query_membership.defined(),
                    name, ": expected a learner with values, or with query_membership and key_side; got ",
                    learner.values.defined() ? "both" : "neither or one of the two");
  TORCH_CHECK_VALUE(!learner.values.defined() ||
                        (learner.values.dim() == 1 && learner.values.size(0) == edges.edge_count()),
                    name, ": expected learner.values [", edges.edge_count(), "], one per edge; got ",
                    learner.values.sizes());
  TORCH_CHECK_VALUE(
      !learner.probe_values.defined() || (learner.probes && learner.probe_values.dim() == 1 &&
                                          learner.probe_values.size(0) == learner.probes->edge_count()),
      name, ": expected learner.probe_values [", learner.probes ? learner.probes->edge_count() : 0,
      "], one per probe; got ", learner.probe_values.sizes());
  const bool rates_may_lack = learner.values.defined() && learner.probe_rates.empty();
  TORCH_CHECK_VALUE(!learner.probes || rates_may_lack ||
                        static_cast<int64_t>(learner.probe_rates.size()) == edges.shape().batch,
                    name, ": expected one probe rate per item (", edges.shape().batch, "); got ",
                    learner.probe_rates.size());
}

}  // namespace edgewise::ops

namespace edgewise::functional {
namespace {

// Without a learner empty tensors stand for its inputs: autograd wants defined ones.
at::Tensor given(const at::Tensor& tensor) {
  return tensor.defined() ? tensor : at::empty({0});
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query, const at::Tensor& key,
                                                const at::Tensor& value, const at::Tensor& query_membership,
                                                const at::Tensor& key_side, const at::Tensor& values,
                                                const at::Tensor& probe_values,
                                                const c10::intrusive_ptr<Call>& call) {
    context->set_materialize_grads(false);  // a density that nobody penalises sends nothing back
    AttentionInputs& in = call->inputs;
    const AttentionForward result = ops::run_forward(in);
    call->forward = result;
    call->forward.output = at::Tensor();
    // Of the learner's tensors only that they have not been changed is asked of autograd.
    context->save_for_backward(
        {query, key, value, result.output, query_membership, key_side, values, probe_values});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    in.query = in.key = in.value = at::Tensor();
    if (!in.learner || in.learns.clusters == 0) return {result.output};
    return {result.output, ops::sampled_density(*in.learner, in.edges, result.lse.scalar_type())};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    check_differentiated_once();
    const auto saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    AttentionInputs in = call->inputs;
    in.query = saved[0], in.key = saved[1], in.value = saved[2];
    AttentionForward computed = call->forward;
    computed.output = saved[3];
    const at::Tensor grad = grads[0].defined() ? grads[0] : at::zeros_like(computed.output),
                     density_grad = grads.size() > 1 ? grads[1] : at::Tensor();
    AttentionBackward result = ops::run_backward(in, computed, grad, density_grad);
    const ops::LearnerGrads learnt = ops::learner_grads(in, result, density_grad);
    return {result.query,    result.key,    result.value,        learnt.query_membership,
            learnt.key_side, learnt.values, learnt.probe_values, {}};
  }
};

LearnedAttention run(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const EdgeSet& given_edges, const EdgeLearner* learner,
                     const EdgeAttentionOptions& options) {
  if (given_edges.squares())
    return ops::square_edge_attention(query, key, value, given_edges, learner, options);
  check_attention(query, key, value, given_edges, options);
  if (learner) {
    TORCH_CHECK_VALUE(!options.is_causal,
                      "edge_attention: with a learner, ask it for causal edges instead of is_causal");
    ops::check_learner("edge_attention", *learner, given_edges);
  }
  const EdgeSet edges = options.is_causal ? given_edges.causal() : given_edges;
  AttentionInputs inputs = ops::attention_inputs(query, key, value, edges, options.scale, learner);
  inputs.backend = options.backend;
  inputs.dropout_p = options.dropout_p;
  if (options.dropout_p > 0)
    inputs.head_keys =
        ops::StepInputs::recording()
            ? ops::stream_keys_on(query.device(), options.random, kernels::Purpose::kDropout, edges.shape())
            : ops::stream_keys(options.random, kernels::Purpose::kDropout, edges.shape());
  // Nobody to differentiate for: autograd's bookkeeping costs as much as attention over a few edges.
  const bool differentiable =
      at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  if (!learner && !differentiable) return {ops::run_forward(inputs).output, at::Tensor()};
  inputs.gradients_follow = at::GradMode::is_enabled();
  auto call = c10::make_intrusive<Call>();
  call->inputs = std::move(inputs);
  const EdgeLearner none, &taught = learner ? *learner : none;
  const auto outputs =
      AttentionFunction::apply(query, key, value, given(taught.query_membership), given(taught.key_side),
                               given(taught.values), given(taught.probe_values), call);
  return {outputs[0], outputs.size() > 1 ? outputs[1] : at::Tensor()};
}

}  // namespace

at::Tensor edge_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const EdgeSet& edges, const EdgeAttentionOptions& options) {
  return run(query, key, value, edges, nullptr, options).output;
}

LearnedAttention edge_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                const EdgeSet& edges, const EdgeLearner& learner,
                                const EdgeAttentionOptions& options) {
  return run(query, key, value, edges, &learner, options);
}

}  // namespace edgewise::functional
