// functional::edge_attention: checks, choice of implementation, autograd.
#include <edgewise/ops/functional.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "graph/checks.h"
#include "ops/attention_impl.h"
#include "ops/reference.h"
#include "ops/streams.h"

namespace edgewise::functional {
namespace {

using ops::AttentionBackward;
using ops::AttentionForward;
using ops::AttentionInputs;
using ops::CreditRequest;

void check_inputs(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const EdgeSet& edges, const EdgeAttentionOptions& options) {
  const char* const name = "edge_attention";
  TORCH_CHECK_VALUE(query.dim() == 4 && key.dim() == 4 && value.dim() == 4, name,
                    ": expected query [B, H, L, D], key [B, H, S, D] and value [B, H, S, Dv]; got ",
                    query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  TORCH_CHECK_VALUE(
      key.size(0) == query.size(0) && key.size(1) == query.size(1) && key.size(3) == query.size(3), name,
      ": expected key [", query.size(0), ", ", query.size(1), ", S, ", query.size(3), "] to match query ",
      query.sizes(), "; got ", key.sizes());
  TORCH_CHECK_VALUE(
      value.size(0) == key.size(0) && value.size(1) == key.size(1) && value.size(2) == key.size(2), name,
      ": expected value [", key.size(0), ", ", key.size(1), ", ", key.size(2), ", Dv] to match key ",
      key.sizes(), "; got ", value.sizes());
  TORCH_CHECK_TYPE(query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type(),
                   name, ": expected query, key and value of one dtype; got ", query.scalar_type(), ", ",
                   key.scalar_type(), " and ", value.scalar_type());
  TORCH_CHECK_TYPE(query.scalar_type() == at::kFloat || query.scalar_type() == at::kDouble ||
                       query.scalar_type() == at::kBFloat16,
                   name, ": expected float32, float64 or bfloat16; got ", query.scalar_type());
  TORCH_CHECK_VALUE(
      query.device() == key.device() && query.device() == value.device() && query.device() == edges.device(),
      name, ": expected query, key, value and edges on one device; got ", query.device(), ", ", key.device(),
      ", ", value.device(), " and ", edges.device());
  graph::check_same_shape(name, {query.size(0), query.size(1), query.size(2), key.size(2)}, edges.shape());
  TORCH_CHECK_VALUE(options.dropout_p >= 0 && options.dropout_p <= 1, name,
                    ": expected dropout_p in [0, 1]; got ", options.dropout_p);
  TORCH_CHECK_VALUE(!options.scale || std::isfinite(*options.scale), name, ": expected a finite scale; got ",
                    options.scale.value_or(0));
}

// Dense matrices win on a GPU unless edges are rare; the edge list keeps memory linear.
Backend resolve(Backend backend, const AttentionInputs& in) {
  if (backend == Backend::kKernel)
    TORCH_CHECK_VALUE(in.query.is_cpu(), "edge_attention: the kernel back end runs on CPU tensors; got ",
                      in.query.device(), ". Use Backend::kAuto");
  if (backend != Backend::kAuto) return backend;
  if (in.query.is_cpu()) return Backend::kKernel;
  const double pairs = static_cast<double>(in.edges.shape().pairs());
  const double edges = static_cast<double>(in.edges.edge_count());
  return pairs < 4e9 && edges > pairs / 64 ? Backend::kDense : Backend::kReference;
}

AttentionForward run_forward(Backend backend, const AttentionInputs& in) {
  switch (backend) {
    case Backend::kKernel:
      return ops::kernel_forward(in);
    case Backend::kDense:
      return ops::reference::dense_forward(in);
    default:
      return ops::reference::edge_list_forward(in);
  }
}

AttentionBackward run_backward(Backend backend, const AttentionInputs& in, const AttentionForward& forward,
                               const at::Tensor& grad, const CreditRequest& credit) {
  switch (backend) {
    case Backend::kKernel:
      return ops::kernel_backward(in, forward, grad, credit);
    case Backend::kDense:
      return ops::reference::dense_backward(in, forward, grad, credit);
    default:
      return ops::reference::edge_list_backward(in, forward, grad, credit);
  }
}

kernels::CreditRule rule_of(const EdgeCredit& credit) {
  switch (credit.estimator) {
    case Estimator::kPaper:
      return kernels::CreditRule::kPaper;
    case Estimator::kLogit:
      return kernels::CreditRule::kLogit;
    case Estimator::kCounterfactual:
      return credit.present_form == PresentForm::kSoftmax ? kernels::CreditRule::kLogit
                                                          : kernels::CreditRule::kLeaveOneOut;
  }
  TORCH_INTERNAL_ASSERT(false);
}

// dP/dp of the law at the given edges. The straight-through estimators pass it by (they treat the draw as the
// identity); the counterfactual one is a derivative of the expectation and needs it.
at::Tensor law_slope(const EdgeCredit& credit, const EdgeSet& edges) {
  const at::Tensor p = ops::edge_dot(edges, credit.query_membership.detach(), credit.key_side.detach());
  return at::where(p < 1, (-p).exp(), at::zeros_like(p));
}

// Everything the backward pass needs that is not a tensor input.
struct Call : torch::CustomClassHolder {
  AttentionInputs inputs;
  std::optional<EdgeCredit> credit;
  Backend backend = Backend::kAuto;
  at::Tensor lse;
};

// The gradients of the memberships from the gradients of attention and of the sampled density.
std::pair<at::Tensor, at::Tensor> membership_grads(const Call& call, const AttentionBackward& backward,
                                                   const at::Tensor& density_grad) {
  const EdgeCredit& credit = *call.credit;
  const EdgeSet& edges = call.inputs.edges;
  const EdgeShape& shape = edges.shape();
  const at::ScalarType value_type = backward.credit.scalar_type();
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
  at::Tensor values = clipped(penalised ? backward.credit + density_part(edges) : backward.credit);
  if (credit.decided) values = values.masked_fill(credit.decided->logical_not(), 0);
  const bool slope = credit.law == EdgeLaw::kPoisson && credit.estimator == Estimator::kCounterfactual;
  if (slope) values = values * law_slope(credit, edges).to(value_type);

  // Memberships may be of another dtype than the attention; values follow them.
  const at::ScalarType target =
      credit.query_membership.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor query_grad = ops::multiply_rows(edges, values.to(target), credit.key_side.detach());
  at::Tensor key_grad = ops::multiply_columns(edges, values.to(target), credit.query_membership.detach());
  const auto add = [&](const EdgeSet& set, const at::Tensor& more) {
    query_grad = query_grad + ops::multiply_rows(set, more.to(target), credit.key_side.detach());
    key_grad = key_grad + ops::multiply_columns(set, more.to(target), credit.query_membership.detach());
  };
  if (credit.discarded && penalised) add(*credit.discarded, clipped(density_part(*credit.discarded)));
  if (backward.probe_credit.defined()) {
    at::Tensor probe_values = backward.probe_credit / credit.probe_rate;
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
    const AttentionForward result = run_forward(call->backend, call->inputs);
    call->lse = result.lse;
    context->save_for_backward({query, key, value, query_membership, key_side, result.output});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    at::Tensor density;
    if (call->credit) {
      const EdgeCredit& credit = *call->credit;
      const EdgeSet decided = credit.decided ? call->inputs.edges.kept(*credit.decided) : call->inputs.edges;
      at::Tensor counts = decided.edges_per_head().sum(0);
      if (credit.discarded) counts = counts + credit.discarded->edges_per_head().sum(0);
      density = counts.to(result.lse.scalar_type()) / std::max(credit.pairs_per_head, 1.0);
    } else {
      density = at::zeros({call->inputs.edges.shape().heads}, result.lse.options());
    }
    // The call no longer holds the inputs: autograd's saved variables do, and check that nobody changed them.
    call->inputs.query = call->inputs.key = call->inputs.value = at::Tensor();
    return {result.output, density};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    AttentionInputs inputs = call->inputs;
    inputs.query = saved[0];
    inputs.key = saved[1];
    inputs.value = saved[2];
    const at::Tensor grad = grads[0].defined() ? grads[0] : at::zeros_like(saved[5]);
    CreditRequest request;
    if (call->credit) {
      request.rule = rule_of(*call->credit);
      request.probes = call->credit->probes;
    }
    const AttentionBackward result =
        run_backward(call->backend, inputs, {saved[5], call->lse}, grad, request);
    std::pair<at::Tensor, at::Tensor> membership;
    if (call->credit) membership = membership_grads(*call, result, grads[1]);
    return {result.query, result.key, result.value, membership.first, membership.second, {}};
  }
};

LearnedAttention run(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const EdgeSet& given, const EdgeCredit* credit, const EdgeAttentionOptions& options) {
  check_inputs(query, key, value, given, options);
  const EdgeSet edges = options.is_causal ? given.causal() : given;
  auto call = c10::make_intrusive<Call>();
  call->inputs.query = query.detach();
  call->inputs.key = key.detach();
  call->inputs.value = value.detach();
  call->inputs.edges = edges;
  call->inputs.scale =
      options.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(query.size(3), 1))));
  call->inputs.dropout_p = options.dropout_p;
  if (options.dropout_p > 0)
    call->inputs.head_keys = ops::stream_keys(options.random, kernels::Purpose::kDropout, edges.shape());
  call->backend = resolve(options.backend, call->inputs);
  at::Tensor query_membership, key_side;
  if (credit) {
    TORCH_CHECK_VALUE(!options.is_causal,
                      "edge_attention: with a learner, ask it for causal edges instead of is_causal");
    call->credit = *credit;
    query_membership = credit->query_membership;
    key_side = credit->key_side;
    // Saved as graph inputs; the copy in the call must not hold the graph.
    call->credit->query_membership = query_membership.detach();
    call->credit->key_side = key_side.detach();
  }
  const auto outputs = AttentionFunction::apply(query, key, value, query_membership, key_side, call);
  return {outputs[0], outputs[1]};
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
