// Checks on the inputs of edge_attention, and the call in numbers.
#include <edgewise/ops/functional.h>

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <numeric>

#include "graph/checks.h"
#include "graph/edge_plan.h"
#include "ops/attention/attention_call.h"
#include "ops/attention/cuda_limits.h"

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

kernels::CreditRule kernel_rule(CreditRule rule) {
  switch (rule) {
    case CreditRule::kLogit:
      return kernels::CreditRule::kLogit;
    case CreditRule::kPaper:
      return kernels::CreditRule::kPaper;
    case CreditRule::kLeaveOneOut:
      return kernels::CreditRule::kLeaveOneOut;
  }
  TORCH_INTERNAL_ASSERT(false);
}

namespace {

LearnerCall learner_call(const EdgeLearner& learner) {
  LearnerCall result;
  result.rule = kernel_rule(learner.rule);
  if (learner.query_membership.defined()) result.clusters = learner.query_membership.size(3);
  result.has_probes = learner.probes.has_value();
  result.probes_in_units = learner.probes && graph::EdgePlan::of(*learner.probes).units();
  result.has_fixed = learner.fixed.has_value();
  result.has_discarded = learner.discarded.has_value();
  result.poisson_slope = learner.poisson_slope;
  if (learner.probes && !learner.probe_rates.empty())
    result.probe_share = std::accumulate(learner.probe_rates.begin(), learner.probe_rates.end(), 0.0) /
                         static_cast<double>(learner.probe_rates.size());
  return result;
}

}  // namespace

AttentionInputs attention_inputs(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 const EdgeSet& edges, std::optional<double> scale,
                                 const EdgeLearner* learner) {
  AttentionInputs in;
  in.query = query.detach();
  in.key = key.detach();
  in.value = value.detach();
  in.edges = edges;
  in.scale = scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(query.size(3), 1))));
  in.device = query.device().type();
  in.shape = edges.shape();
  in.dtype = query.scalar_type();
  in.head_dim = query.size(3), in.value_dim = value.size(3);
  if (query.is_cuda()) {
    const CudaDevice device = cuda_device(query.device());
    in.no_kernels = device.no_kernels, in.device_bytes = device.bytes;
    in.is_listed = edges.has_csr();
    if (in.dtype == at::kFloat) in.matmul = float32_matmul();
    // Lists are counted; float32 by tensor cores goes by predicted cost, which needs the number too.
    const bool by_cost = in.no_kernels.empty() && in.dtype == at::kFloat && in.matmul != Float32Matmul::kIeee;
    if (in.is_listed || by_cost) in.edge_count = cuda_edge_count(edges);
  } else {
    in.is_listed = true;
    in.edge_count = edges.edge_count();
  }
  if (learner) {
    in.learner = *learner;
    for (at::Tensor* each : {&in.learner->values, &in.learner->probe_values, &in.learner->query_membership,
                             &in.learner->key_side})
      if (each->defined()) *each = each->detach();
    in.learns = learner_call(*in.learner);
  }
  return in;
}

}  // namespace edgewise::ops
