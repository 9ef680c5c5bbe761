#include "ops/cuda_choice.h"

#include <algorithm>

#include "graph/cuda_launch.h"
#include "kernels/cuda/gather_params.h"
#include "kernels/cuda/window_params.h"
#include "ops/cuda_sampling.h"

namespace edgewise::ops {
namespace {

// Below this density visiting edges one by one beats tiles (docs/kernels/cuda-gather.md).
constexpr double kGatherDensity = 0.022;
// With dropout windows go on longer, by prediction: nobody has timed lists with it.
constexpr double kGatherDensityWithDropout = 0.004;
// The lists of windows get a quarter of the device's memory.
constexpr int64_t kListsOverTiles = 6, kListsOfMemory = 4;

double forward_window_density(int64_t head_dim, std::optional<double> backward, bool dropout) {
  if (!backward) return head_dim == 32 ? 0.03 : 0.024;
  return dropout ? *backward : std::min(head_dim == 32 ? 0.045 : 0.04, *backward);
}

// Whether the host knows that the edges are at most this part of all pairs.
bool rarer_than(double density, const EdgeSet& edges) {
  return edges.has_csr() &&
         static_cast<double>(edges.edge_count()) < density * static_cast<double>(edges.shape().pairs());
}

// Milliseconds of a call in float32, forward and, if gradients follow, backward, from what an H200 was
// measured to take with all its SMs at work (docs/kernels/cuda-tiles.md, "fp32"), in picoseconds: an edge
// costs its gathered rows and, where there are only tiles yet, its places in the lists; a pair of a tile its
// products.
struct FloatCosts {
  double gather_ms, tiles_ms;
};
FloatCosts float_costs(const AttentionInputs& in, int64_t edge_count) {
  const double edges = static_cast<double>(edge_count), pairs = static_cast<double>(in.edges.shape().pairs()),
               dim = static_cast<double>(in.query.size(3)), probes = in.learner_probes * (pairs - edges),
               clusters =
                   in.learner_clusters > 0 ? static_cast<double>(padded_clusters(in.learner_clusters)) : 0;
  constexpr double kList = 12, kListByKeys = 128;  // of an edge that only tiles have
  const bool once = in.matmul == Float32Matmul::kTf32, listed = in.edges.has_csr();
  double gather_ps = edges * (6 + dim + (listed ? 0 : kList));
  double pair_ps = once ? 0.35 + 0.0235 * dim : 0.0685 * dim;
  if (in.gradients_follow) {
    gather_ps += (edges + probes) * (2 * dim + 1.2 * clusters) + (listed ? 0 : edges * kListByKeys) +
                 probes * (kList + kListByKeys);
    pair_ps += once ? 0.7 + 0.095 * dim + 0.06 * clusters : 0.244 * dim + 0.11 * clusters;
  }
  return {gather_ps * 1e-9, pairs * pair_ps * 1e-9};
}

// What a launch takes, and what one would give room to.
bool tiles_take(const EdgeShape& shape) {
  return shape.batch * shape.heads <= 65535 && shape.pairs() / 8 < kLargestFloatTiles;
}

// Why float32 goes the way it does.
std::string float_reason(const AttentionInputs& in) {
  std::string reason =
      "float32 products by " + std::string(to_string(in.matmul)) + " (" + float32_matmul_reason() + ")";
  if (in.matmul == Float32Matmul::kIeee) return reason + ": tensor cores have none";
  if (in.learner_fixes) return reason + ": only tiles know edges that the learner did not decide";
  if (!tiles_take(in.edges.shape())) return reason + ": too many pairs for tiles";
  if (!in.known_edges) return reason + ": nobody has counted the edges";
  const FloatCosts costs = float_costs(in, *in.known_edges);
  return c10::str(reason, ": predicted ", costs.gather_ms, " ms by gather, ", costs.tiles_ms, " ms by tiles");
}

}  // namespace

double backward_window_density(int64_t head_dim, int64_t clusters, bool dropout) {
  if (head_dim == 32) return clusters != 32 ? 0.045 : dropout ? 0.06 : 0.055;
  return clusters == 0 ? 0.03 : 0.04;
}

bool by_gather(const AttentionInputs& in) {
  if (in.query.scalar_type() == at::kFloat && in.matmul == Float32Matmul::kIeee) return true;
  if (in.query.scalar_type() == at::kFloat) {
    if (in.learner_fixes) return false;  // only tiles know these
    if (!tiles_take(in.edges.shape())) return true;
    if (!in.known_edges) return false;
    const FloatCosts costs = float_costs(in, *in.known_edges);
    return costs.gather_ms < costs.tiles_ms;
  }
  if (!fits_tiles(in.edges.shape())) return in.edges.has_csr();
  if (in.learner_fixes) return false;
  const bool has_windows = kernels::cuda::window_forward_takes(in.query.size(3)) &&
                           windows_fit(in.edges.shape(), in.query.device());
  return rarer_than(in.dropout_p > 0 && has_windows ? kGatherDensityWithDropout : kGatherDensity, in.edges);
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
  const auto memory = static_cast<int64_t>(at::cuda::getDeviceProperties(device.index())->totalGlobalMem);
  return shape.batch * shape.heads <= 65535 &&  // what a launch takes
         shape.pairs() / 8 <= memory / (kListsOverTiles * kListsOfMemory);
}

bool by_windows(const AttentionInputs& in) {
  if (by_gather(in) || in.query.scalar_type() == at::kFloat) return false;
  if (!kernels::cuda::window_forward_takes(in.query.size(3))) return false;
  if (!windows_fit(in.edges.shape(), in.query.device())) return false;
  return !in.edges.has_csr() || rarer_than(forward_window_density(in), in.edges);
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
  if (in.edges.has_csr() && !rarer_than(backward_window_density(dim, clusters, in.dropout_p > 0), in.edges))
    return "too many edges";
  return "";
}

CudaChoice choose_cuda_attention(const AttentionInputs& in, const EdgeCredit* credit) {
  const auto dtype = in.query.scalar_type();
  const int64_t dim = in.query.size(3);
  if (!in.query.is_cuda()) return {"", "the tensors are not on a CUDA device"};
  if (!graph::is_hopper(in.query.device()))
    return {"", "the kernels are built for Hopper (compute capability 9.0)"};
  if (dtype != at::kBFloat16 && dtype != at::kFloat) return {"", "the kernels take bfloat16 and float32"};
  if (in.value.size(3) != dim) return {"", "value and key of different head dims"};
  if (in.edges.shape().pairs() == 0) return {"", "no pairs"};
  const bool gather = by_gather(in);
  if (!gather && in.edges.shape().batch * in.edges.shape().heads > 65535)
    return {"", "more than 65,535 items x heads in tiles"};
  if (!gather && dtype == at::kFloat && !tiles_take(in.edges.shape()))
    return {"", "too many pairs for tiles, which a union with a pattern needs in float32"};
  const int64_t clusters = credit ? padded_clusters(credit->query_membership.size(3)) : 0;
  if (gather && credit && credit->fixed)
    return {"", "edges that the learner did not decide (a union with a pattern), one by one"};
  if (credit)
    if (const std::string refusal = cuda_learner_refusal(credit->query_membership.size(3), *credit);
        !refusal.empty())
      return {"", refusal};
  if (gather ? !kernels::cuda::gather_takes(dim, clusters)
             : !kernels::cuda::tile_forward_takes(dim) || !kernels::cuda::tile_backward_takes(dim, clusters))
    return {"", "head dim " + std::to_string(dim) + " with " + std::to_string(clusters) +
                    " clusters is not built"};
  if (dtype == at::kFloat) return {gather ? "gather" : "tiles", float_reason(in)};
  if (gather) return {"gather", "edges are rare"};
  if (by_windows(in)) {
    const std::string refusal = window_backward_refusal(in, credit);
    return {"windows and tiles",
            refusal.empty()
                ? "by windows for heads with few edges, as the device counts them, else by tiles"
                : "forward by windows for heads with few edges, as the device counts them, else by tiles; "
                  "backward by tiles: " +
                      refusal};
  }
  return {"tiles", in.edges.has_csr() ? "edges are dense enough" : "the edges are tiles already"};
}

}  // namespace edgewise::ops
