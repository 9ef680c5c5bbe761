// Checks on the inputs of edge_attention and the choice of implementation.
#include <edgewise/ops/functional.h>

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <cmath>
#include <numeric>

#include "graph/checks.h"
#include "ops/attention/attention_impl.h"
#include "ops/attention/cpu_choice.h"
#include "ops/attention/cuda_impl.h"
#include "ops/attention/reference.h"

namespace edgewise::functional {

void check_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
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

void check_differentiated_once() {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !at::GradMode::is_enabled(),
      "edge_attention: expected to be differentiated once; got create_graph=True. Second derivatives "
      "are not implemented; use scaled_dot_product_attention with a mask for those");
}

}  // namespace edgewise::functional

namespace edgewise::ops {

using functional::Backend;

namespace {

// On a GPU what our kernels refuse runs in plain ATen: dense matrices win unless edges are rare; the edge
// list keeps memory linear.
Backend resolve(Backend backend, const AttentionInputs& in, const EdgeCredit* learner) {
  if (in.query.is_cpu()) return backend == Backend::kAuto ? Backend::kKernel : backend;
  if (backend != Backend::kAuto && backend != Backend::kKernel) return backend;
  const CudaChoice choice = choose_cuda_attention(in, learner);
  if (!choice.kernel.empty()) return Backend::kKernel;
  TORCH_CHECK_VALUE(backend != Backend::kKernel, "edge_attention: no kernel takes this call on ",
                    in.query.device(), ": ", choice.reason, ". Use Backend::kAuto");
  const double pairs = static_cast<double>(in.edges.shape().pairs());
  const double edges = static_cast<double>(in.edges.edge_count());
  return pairs < 0x1.0p32 && edges > pairs / 64 ? Backend::kDense : Backend::kReference;
}

// Dense attention in place of edges on CPU. A learner wants a number per edge, whatever the density.
bool is_complete(Backend backend, const AttentionInputs& in, const EdgeCredit* learner) {
  return in.query.is_cpu() && backend == Backend::kAuto && !learner && choose_cpu_attention(in).dense;
}

}  // namespace

AttentionInputs attention_inputs(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 const EdgeSet& edges, std::optional<double> scale) {
  AttentionInputs in;
  in.query = query;
  in.key = key;
  in.value = value;
  in.edges = edges;
  in.scale = scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(query.size(3), 1))));
  if (query.is_cuda() && query.scalar_type() == at::kFloat) {
    in.matmul = float32_matmul();
    if (in.matmul != Float32Matmul::kIeee) in.known_edges = cuda_edge_count(edges);
  }
  return in;
}

void serve_learner(AttentionInputs& in, const EdgeCredit& credit) {
  in.learner_clusters = credit.query_membership.size(3);
  in.learner_fixes = credit.fixed.has_value();
  in.learner_rule = credit_rule(credit);
  if (credit.probes && !credit.probe_rates.empty())
    in.learner_probes = std::accumulate(credit.probe_rates.begin(), credit.probe_rates.end(), 0.0) /
                        static_cast<double>(credit.probe_rates.size());
}

AttentionForward run_forward(const AttentionInputs& in, Backend backend, const EdgeCredit* learner) {
  RECORD_FUNCTION("edgewise::edge_attention", {});
  if (is_complete(backend, in, learner)) return complete_forward(in);
  const Backend chosen = resolve(backend, in, learner);
  const auto compute = [&] {
    switch (chosen) {
      case Backend::kKernel:
        return in.query.is_cpu() ? kernel_forward(in, backend == Backend::kKernel) : cuda_forward(in);
      case Backend::kDense:
        return reference::dense_forward(in);
      default:
        return reference::edge_list_forward(in);
    }
  };
  AttentionForward result = compute();
  result.backend = chosen;
  return result;
}

AttentionBackward run_backward(const AttentionInputs& in, const AttentionForward& forward,
                               const at::Tensor& grad, const CreditRequest& credit, Backend backend) {
  RECORD_FUNCTION("edgewise::edge_attention_backward", {});
  // Credit is a number per edge too, whoever asks for it.
  if (credit.rule == kernels::CreditRule::kNone && !credit.probes && is_complete(backend, in, credit.learner))
    return complete_backward(in, forward, grad);
  switch (forward.backend ? *forward.backend : resolve(backend, in, credit.learner)) {
    case Backend::kKernel:
      return in.query.is_cpu() ? kernel_backward(in, forward, grad, credit, backend == Backend::kKernel)
                               : cuda_backward(in, forward, grad, credit);
    case Backend::kDense:
      return reference::dense_backward(in, forward, grad, credit);
    default:
      return reference::edge_list_backward(in, forward, grad, credit);
  }
}

kernels::CreditRule credit_rule(const EdgeCredit& credit) {
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

}  // namespace edgewise::ops
