#include "ops/attention/cuda_choice.h"

#include "graph/cuda_launch.h"
#include "kernels/cuda/lists/gather_params.h"
#include "kernels/cuda/windows/window_params.h"
#include "ops/sample/cuda_sampling.h"

namespace edgewise::ops {
namespace {

CudaCall call_of(const AttentionInputs& in) {
  CudaCall call;
  call.shape = in.edges.shape();
  call.dtype = in.query.scalar_type();
  call.dim = in.query.size(3), call.value_dim = in.value.size(3);
  if (in.edges.has_csr()) call.listed_edges = in.edges.edge_count();
  call.known_edges = in.known_edges;
  call.matmul = in.matmul;
  call.dropout_p = in.dropout_p;
  call.gradients_follow = in.gradients_follow;
  call.learner_clusters = in.learner_clusters;
  call.learner_probes = in.learner_probes;
  call.learner_fixes = in.learner_fixes;
  return call;
}

}  // namespace

double backward_window_density(int64_t head_dim, int64_t clusters, bool dropout) {
  if (head_dim == 32) return clusters != 32 ? 0.045 : dropout ? 0.06 : 0.055;
  return clusters == 0 ? 0.03 : 0.04;
}

bool by_gather(const AttentionInputs& in) {
  const bool has_windows = in.dropout_p > 0 && kernels::cuda::window_forward_takes(in.query.size(3)) &&
                           windows_fit(in.edges.shape(), in.query.device());
  return by_gather(call_of(in), has_windows, fits_tiles(in.edges.shape()));
}

std::optional<double> backward_lists(const AttentionInputs& in) {
  const int64_t dim = in.query.size(3),
                clusters = in.learner_clusters > 0 ? padded_clusters(in.learner_clusters) : 0;
  if (!in.gradients_follow || !kernels::cuda::window_backward_takes(dim, clusters)) return std::nullopt;
  return backward_window_density(dim, clusters, in.dropout_p > 0);
}
double forward_window_density(const AttentionInputs& in) {
  return forward_window_density(in.query.size(3), backward_lists(in), in.dropout_p > 0);
}

bool windows_fit(const EdgeShape& shape, at::Device device) {
  return windows_fit(shape,
                     static_cast<int64_t>(at::cuda::getDeviceProperties(device.index())->totalGlobalMem));
}

bool by_windows(const AttentionInputs& in) {
  if (by_gather(in) || in.query.scalar_type() == at::kFloat) return false;
  if (!kernels::cuda::window_forward_takes(in.query.size(3))) return false;
  if (!windows_fit(in.edges.shape(), in.query.device())) return false;
  return !in.edges.has_csr() || rarer_than(forward_window_density(in), call_of(in));
}

std::string window_backward_refusal(const AttentionInputs& in, const EdgeCredit* credit) {
  const int64_t dim = in.query.size(3),
                clusters = credit ? padded_clusters(credit->query_membership.size(3)) : 0;
  if (in.query.scalar_type() == at::kFloat) return "float32";
  if (!kernels::cuda::window_backward_takes(dim, clusters))
    return "head dim " + std::to_string(dim) + " with " + std::to_string(clusters) + " clusters";
  if (!windows_fit(in.edges.shape(), in.query.device())) return "lists of windows would be large";
  if (credit && credit->fixed) return "edges that the learner did not decide";
  if (credit && credit->discarded) return "edges that were drawn but not attended";
  if (credit && credit->probes && !credit->probes->units()) return "probes that come one by one";
  if (in.edges.has_csr() &&
      !rarer_than(backward_window_density(dim, clusters, in.dropout_p > 0), call_of(in)))
    return "too many edges";
  return "";
}

CudaChoice choose_cuda_attention(const AttentionInputs& in, const EdgeCredit* credit) {
  if (!in.query.is_cuda()) return {"", "the tensors are not on a CUDA device"};
  if (!graph::is_hopper(in.query.device()))
    return {"", "the kernels are built for Hopper (compute capability 9.0)"};
  const CudaCall call = call_of(in);
  const bool gather = by_gather(in);
  if (const std::string refusal = shape_refusal(call, gather); !refusal.empty()) return {"", refusal};
  const int64_t clusters = credit ? padded_clusters(credit->query_membership.size(3)) : 0;
  if (gather && credit && credit->fixed)
    return {"", "edges that the learner did not decide (a union with a pattern), one by one"};
  if (credit)
    if (const std::string refusal = cuda_learner_refusal(credit->query_membership.size(3), *credit);
        !refusal.empty())
      return {"", refusal};
  if (gather ? !kernels::cuda::gather_takes(call.dim, clusters)
             : !kernels::cuda::tile_forward_takes(call.dim) ||
                   !kernels::cuda::tile_backward_takes(call.dim, clusters))
    return {"", not_built(call.dim, clusters)};
  const bool windows = by_windows(in);
  CudaChoice choice = taken(call, gather, windows);
  if (windows)
    if (const std::string refusal = window_backward_refusal(in, credit); !refusal.empty())
      choice.reason = "forward " + choice.reason + "; backward by tiles: " + refusal;
  return choice;
}

}  // namespace edgewise::ops
