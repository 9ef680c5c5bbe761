// The CUDA kernels behind edge_attention and sample_sbm_edges. Without CUDA in the build, a stub whose
// refusals say so.
#pragma once

#include <string>

#include <edgewise/ops/sample.h>

#include "ops/attention/attention_impl.h"

namespace edgewise::ops {

// Which kernel a call takes on a GPU, and why; `kernel` is empty when none does and `reason` then says why
// not.
struct CudaChoice {
  std::string kernel;  // "tiles", "gather", "windows and tiles" or ""
  std::string reason;
};
// Why the kernels do not serve a learner of this kind; empty when they do. EdgeCredit and SbmEdgesOptions
// both say.
template <typename Rules>
std::string cuda_learner_refusal(int64_t clusters, const Rules& rules) {
  if (clusters > 128) return "more than 128 clusters";
  if (rules.estimator != Estimator::kCounterfactual) return "";
  if (rules.present_form == PresentForm::kLeaveOneOut)
    return "the leave_one_out form of the counterfactual estimator";
  if (rules.law == EdgeLaw::kPoisson) return "the counterfactual estimator under the poisson law";
  return "";
}
CudaChoice choose_cuda_attention(const AttentionInputs& in, const EdgeCredit* credit);

// How many edges there are; asks the device, and waits for it, unless a stream is being captured.
std::optional<int64_t> cuda_edge_count(const EdgeSet& edges);

AttentionForward cuda_forward(const AttentionInputs& in);
// Also fills in the gradients of the memberships when the request has a learner.
AttentionBackward cuda_backward(const AttentionInputs& in, const AttentionForward& forward,
                                const at::Tensor& grad_output, const CreditRequest& credit);

// Samplers: bit tiles, or lists where there are too many pairs for them. `refusal` is empty when they take
// the call.
std::string cuda_sample_refusal(const at::Tensor& query_membership, const EdgeShape& shape, Sampler sampler);
EdgeSet cuda_sample(const at::Tensor& query_membership, const at::Tensor& key_side, const EdgeShape& shape,
                    const SampleOptions& options);
std::string cuda_probe_refusal(const EdgeSet& edges, int64_t probe_unit);
EdgeSet cuda_sample_probes(const EdgeSet& edges, const std::vector<double>& rates,
                           const SampleOptions& options);

}  // namespace edgewise::ops
