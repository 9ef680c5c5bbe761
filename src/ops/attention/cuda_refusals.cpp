// Which CUDA kernel takes a call of edge_attention: all limits of these kernels, and by what they are
// preferred to each other.
#include <algorithm>

#include "kernels/cuda/lists/gather_params.h"
#include "kernels/cuda/windows/window_params.h"
#include "ops/attention/cuda_limits.h"
#include "ops/attention/kernel_table.h"

namespace edgewise::ops {

KernelRefusal cuda_tiles_refusal, cuda_float_tiles_refusal;

namespace {

// Below this density visiting edges one by one beats tiles (docs/kernels/cuda-gather.md). With dropout
// windows go on longer, by prediction: lists have not been timed with it.
constexpr double kGatherDensity = 0.022, kGatherDensityWithDropout = 0.004;

// What all of them have in common.
std::string no_cuda_kernel(const AttentionCall& call) {
  if (std::string why = not_for(call, at::kCUDA); !why.empty()) return why;
  if (!call.no_kernels.empty()) return call.no_kernels;
  if (call.dtype != at::kBFloat16 && call.dtype != at::kFloat) return "the kernels take bfloat16 and float32";
  if (call.value_dim != call.head_dim) return "value and key of different head dims";
  if (call.shape.pairs() == 0) return "no pairs";
  return "";
}

std::string not_built(const AttentionCall& call, int64_t clusters) {
  return "head dim " + std::to_string(call.head_dim) + " with " + std::to_string(clusters) +
         " clusters is not built";
}

bool heads_fit(const EdgeShape& shape) {
  return shape.batch * shape.heads <= kernels::cuda::kMostTileHeads;
}
bool float_tiles_fit(const EdgeShape& shape) {
  return heads_fit(shape) && shape.pairs() / 8 < kLargestFloatTiles;
}

bool may_have_windows(const AttentionCall& call) {
  return kernels::cuda::window_forward_takes(call.head_dim) && windows_fit(call.shape, call.device_bytes);
}

std::string tile_refusal(const AttentionCall& call) {
  if (std::string why = no_cuda_kernel(call); !why.empty()) return why;
  if (!heads_fit(call.shape)) return "more than 65,535 items x heads in tiles";
  if (call.learns.exists())
    if (std::string why = cuda_fold_refusal(call.learns); !why.empty()) return why;
  const int64_t clusters = padded_clusters(call.learns.clusters);
  return kernels::cuda::tile_backward_takes(call.head_dim, clusters) ? "" : not_built(call, clusters);
}

// Milliseconds of a call in float32, forward and, if gradients follow, backward, from what an H200 was
// measured to take with all its SMs at work (docs/kernels/cuda-tiles.md, "fp32"), in picoseconds: an edge
// costs its gathered rows and, where there are only tiles yet, its places in the lists; a pair of a tile its
// products.
struct FloatCosts {
  double gather_ms, tiles_ms;

  explicit FloatCosts(const AttentionCall& call) {
    const double edges = static_cast<double>(*call.edge_count),
                 pairs = static_cast<double>(call.shape.pairs()), dim = static_cast<double>(call.head_dim),
                 probes = call.learns.probe_share * (pairs - edges),
                 clusters = static_cast<double>(padded_clusters(call.learns.clusters));
    constexpr double kList = 12, kListByKeys = 128;  // of an edge that only tiles have
    const bool once = call.matmul == Float32Matmul::kTf32;
    double gather_ps = edges * (6 + dim + (call.is_listed ? 0 : kList));
    double pair_ps = once ? 0.35 + 0.0235 * dim : 0.0685 * dim;
    if (call.gradients_follow) {
      gather_ps += (edges + probes) * (2 * dim + 1.2 * clusters) +
                   (call.is_listed ? 0 : edges * kListByKeys) + probes * (kList + kListByKeys);
      pair_ps += once ? 0.7 + 0.095 * dim + 0.06 * clusters : 0.244 * dim + 0.11 * clusters;
    }
    gather_ms = gather_ps * 1e-9, tiles_ms = pairs * pair_ps * 1e-9;
  }
};

// Why a call that tiles would take as well goes by them; empty when it goes edge by edge.
std::string prefers_tiles(const AttentionCall& call) {
  if (call.learns.has_fixed) return "tiles also form the gradients of the memberships beside fixed edges";
  if (call.dtype == at::kFloat) {
    if (!call.edge_count) return "the edges have not been counted";
    const FloatCosts costs(call);
    if (costs.gather_ms < costs.tiles_ms) return "";
    return c10::str("predicted ", costs.gather_ms, " ms, by tiles ", costs.tiles_ms, " ms");
  }
  if (!call.is_listed) return "the edges are tiles already";
  if (!fits_tiles(call.shape)) return "";
  const double most =
      call.dropout_p > 0 && may_have_windows(call) ? kGatherDensityWithDropout : kGatherDensity;
  return call.lists_rarer_than(most) ? ""
                                     : c10::str("from ", most * 100, " % of the pairs on tiles are faster");
}

}  // namespace

bool windows_fit(const EdgeShape& shape, int64_t device_bytes) {
  constexpr int64_t kListsOverTiles = 6, kListsOfMemory = 4;
  return heads_fit(shape) && shape.pairs() / 8 <= device_bytes / (kListsOverTiles * kListsOfMemory);
}

std::string cuda_fold_refusal(const LearnerCall& learns) {
  if (learns.clusters == 0) return "a number per edge";
  if (learns.clusters > 128) return "more than 128 clusters";
  if (learns.rule == kernels::CreditRule::kLeaveOneOut)
    return "the leave_one_out form of the counterfactual estimator";
  if (learns.poisson_slope) return "the counterfactual estimator under the poisson law";
  return "";
}

double backward_window_density(const AttentionCall& call) {
  const int64_t clusters = padded_clusters(call.learns.clusters);
  if (call.head_dim == 32) return clusters != 32 ? 0.045 : call.dropout_p > 0 ? 0.06 : 0.055;
  return clusters == 0 ? 0.03 : 0.04;
}

double forward_window_density(const AttentionCall& call) {
  if (!call.gradients_follow ||
      !kernels::cuda::window_backward_takes(call.head_dim, padded_clusters(call.learns.clusters)))
    return call.head_dim == 32 ? 0.03 : 0.024;
  const double backward = backward_window_density(call);
  return call.dropout_p > 0 ? backward : std::min(call.head_dim == 32 ? 0.045 : 0.04, backward);
}

std::string window_backward_refusal(const AttentionCall& call) {
  const int64_t clusters = padded_clusters(call.learns.clusters);
  if (!kernels::cuda::window_backward_takes(call.head_dim, clusters)) return not_built(call, clusters);
  if (call.learns.has_fixed) return "edges that the learner did not decide";
  if (call.learns.has_discarded) return "edges that were drawn but not attended";
  if (call.learns.has_probes && !call.learns.probes_in_units) return "probes that come one by one";
  return "";
}

std::string cuda_gather_refusal(const AttentionCall& call) {
  if (std::string why = no_cuda_kernel(call); !why.empty()) return why;
  if (!kernels::cuda::gather_takes(call.head_dim, 0)) return not_built(call, 0);
  // Where tiles refuse, edges go one by one whatever it costs: they are at least linear in the edges.
  const bool tiles =
      call.dtype == at::kFloat ? cuda_float_tiles_refusal(call).empty() : cuda_tiles_refusal(call).empty();
  return tiles ? prefers_tiles(call) : "";
}

std::string cuda_windows_refusal(const AttentionCall& call) {
  if (std::string why = cuda_tiles_refusal(call); !why.empty()) return why;
  if (!kernels::cuda::window_forward_takes(call.head_dim)) return not_built(call, 0);
  if (!windows_fit(call.shape, call.device_bytes)) return "lists of windows would be large";
  const double most = forward_window_density(call);
  if (call.is_listed && !call.lists_rarer_than(most))
    return c10::str("too many edges: windows take heads with up to ", most * 100, " % of their pairs");
  return "";
}

std::string cuda_tiles_refusal(const AttentionCall& call) {
  if (std::string why = tile_refusal(call); !why.empty()) return why;
  return call.dtype == at::kBFloat16 ? "" : "only bfloat16";
}

std::string cuda_float_tiles_refusal(const AttentionCall& call) {
  if (std::string why = tile_refusal(call); !why.empty()) return why;
  if (call.dtype != at::kFloat) return "only float32";
  if (call.matmul == Float32Matmul::kIeee)
    return "tensor cores have no IEEE products of float32 (" + float32_matmul_reason() + ")";
  return float_tiles_fit(call.shape) ? "" : "too many pairs for tiles";
}

}  // namespace edgewise::ops
