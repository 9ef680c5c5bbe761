// Which CUDA kernel takes a call of edge_attention, as far as its shapes, its dtype and the number of its
// edges decide: what needs no device, so that `edgewise doctor --explain` can ask where there is none. A
// header, since a build without CUDA has no cuda_choice.cpp.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "ops/attention/cuda_impl.h"

namespace edgewise::ops {

// Clusters as the kernels take them: 32 or 128, missing ones 0.
inline int64_t padded_clusters(int64_t clusters) {
  return clusters <= 32 ? 32 : 128;
}

// Bytes of tiles beyond which attention in fp32 goes by edges, one by one.
inline constexpr int64_t kLargestFloatTiles = int64_t{1} << 31;

// A call in numbers. Defaults: no learner, no dropout, no backward pass.
struct CudaCall {
  EdgeShape shape;
  at::ScalarType dtype = at::kBFloat16;
  int64_t dim = 0, value_dim = 0;
  std::optional<int64_t> listed_edges = {};  // how many edges, where they are lists
  std::optional<int64_t> known_edges = {};   // of float32: how many edges, if the host knows
  Float32Matmul matmul = Float32Matmul::kIeee;
  double dropout_p = 0;
  bool gradients_follow = false;
  int64_t learner_clusters = 0;
  double learner_probes = 0;
  bool learner_fixes = false;
};

// Below this density visiting edges one by one beats tiles (docs/kernels/cuda-gather.md).
inline constexpr double kGatherDensity = 0.022;

// Whether the host knows that the edges are at most this part of all pairs.
inline bool rarer_than(double density, const CudaCall& call) {
  return call.listed_edges &&
         static_cast<double>(*call.listed_edges) < density * static_cast<double>(call.shape.pairs());
}

// What a launch takes, of tiles and of windows.
inline bool heads_fit(const EdgeShape& shape) {
  return shape.batch * shape.heads <= 65535;
}

// What a launch in float32 takes, and what one would give room to.
inline bool float_tiles_take(const EdgeShape& shape) {
  return heads_fit(shape) && shape.pairs() / 8 < kLargestFloatTiles;
}

// The lists of windows, up to six times the tiles, get a quarter of the device's memory.
inline bool windows_fit(const EdgeShape& shape, int64_t device_bytes) {
  constexpr int64_t kListsOverTiles = 6, kListsOfMemory = 4;
  return heads_fit(shape) && shape.pairs() / 8 <= device_bytes / (kListsOverTiles * kListsOfMemory);
}

// Milliseconds of a call in float32, forward and, if gradients follow, backward, from what an H200 was
// measured to take with all its SMs at work (docs/kernels/cuda-tiles.md, "fp32"), in picoseconds: an edge
// costs its gathered rows and, where there are only tiles yet, its places in the lists; a pair of a tile its
// products.
struct FloatCosts {
  double gather_ms, tiles_ms;
};
inline FloatCosts float_costs(const CudaCall& call, int64_t edge_count) {
  const double edges = static_cast<double>(edge_count), pairs = static_cast<double>(call.shape.pairs()),
               dim = static_cast<double>(call.dim), probes = call.learner_probes * (pairs - edges),
               clusters = call.learner_clusters > 0
                              ? static_cast<double>(padded_clusters(call.learner_clusters))
                              : 0;
  constexpr double kList = 12, kListByKeys = 128;  // of an edge that only tiles have
  const bool once = call.matmul == Float32Matmul::kTf32, listed = call.listed_edges.has_value();
  double gather_ps = edges * (6 + dim + (listed ? 0 : kList));
  double pair_ps = once ? 0.35 + 0.0235 * dim : 0.0685 * dim;
  if (call.gradients_follow) {
    gather_ps += (edges + probes) * (2 * dim + 1.2 * clusters) + (listed ? 0 : edges * kListByKeys) +
                 probes * (kList + kListByKeys);
    pair_ps += once ? 0.7 + 0.095 * dim + 0.06 * clusters : 0.244 * dim + 0.11 * clusters;
  }
  return {gather_ps * 1e-9, pairs * pair_ps * 1e-9};
}

// Edges one by one. `has_windows` counts with dropout alone; `fits_tiles`: a bit a pair fits comfortably.
inline bool by_gather(const CudaCall& call, bool has_windows, bool fits_tiles) {
  // With dropout windows go on longer, by prediction: nobody has timed lists with it.
  constexpr double kGatherDensityWithDropout = 0.004;
  if (call.dtype == at::kFloat) {
    if (call.matmul == Float32Matmul::kIeee) return true;
    if (call.learner_fixes) return false;  // only tiles know these
    if (!float_tiles_take(call.shape)) return true;
    if (!call.known_edges) return false;
    const FloatCosts costs = float_costs(call, *call.known_edges);
    return costs.gather_ms < costs.tiles_ms;
  }
  if (!fits_tiles) return call.listed_edges.has_value();
  if (call.learner_fixes) return false;
  return rarer_than(call.dropout_p > 0 && has_windows ? kGatherDensityWithDropout : kGatherDensity, call);
}

// Heads with fewer edges go by windows forward; `backward`: with how many the pass that may follow wants
// lists.
inline double forward_window_density(int64_t head_dim, std::optional<double> backward, bool dropout) {
  if (!backward) return head_dim == 32 ? 0.03 : 0.024;
  return dropout ? *backward : std::min(head_dim == 32 ? 0.045 : 0.04, *backward);
}

// Why float32 goes the way it does.
inline std::string float_reason(const CudaCall& call) {
  std::string reason =
      "float32 products by " + std::string(to_string(call.matmul)) + " (" + float32_matmul_reason() + ")";
  if (call.matmul == Float32Matmul::kIeee) return reason + ": tensor cores have none";
  if (call.learner_fixes) return reason + ": only tiles know edges that the learner did not decide";
  if (!float_tiles_take(call.shape)) return reason + ": too many pairs for tiles";
  if (!call.known_edges) return reason + ": nobody has counted the edges";
  const FloatCosts costs = float_costs(call, *call.known_edges);
  return c10::str(reason, ": predicted ", costs.gather_ms, " ms by gather, ", costs.tiles_ms, " ms by tiles");
}

// Why no kernel takes a call, on whatever GPU; empty when shapes and dtype are not against it.
inline std::string shape_refusal(const CudaCall& call, bool gather) {
  if (call.dtype != at::kBFloat16 && call.dtype != at::kFloat) return "the kernels take bfloat16 and float32";
  if (call.value_dim != call.dim) return "value and key of different head dims";
  if (call.shape.pairs() == 0) return "no pairs";
  if (!gather && !heads_fit(call.shape)) return "more than 65,535 items x heads in tiles";
  if (!gather && call.dtype == at::kFloat && !float_tiles_take(call.shape))
    return "too many pairs for tiles, which a union with a pattern needs in float32";
  return "";
}
inline std::string not_built(int64_t dim, int64_t clusters) {
  return "head dim " + std::to_string(dim) + " with " + std::to_string(clusters) + " clusters is not built";
}

// Of a call that some kernel takes.
inline CudaChoice taken(const CudaCall& call, bool gather, bool windows) {
  if (call.dtype == at::kFloat) return {gather ? "gather" : "tiles", float_reason(call)};
  if (gather)
    return {"gather", rarer_than(kGatherDensity, call) ? "edges are rare" : "too many pairs for tiles"};
  if (windows)
    return {"windows and tiles",
            "by windows for heads with few edges, as the device counts them, else by tiles"};
  return {"tiles", call.listed_edges ? "edges are dense enough" : "the edges are tiles already"};
}

// What choose_cuda_attention would say on a Hopper GPU with so much memory, of a call without learner,
// dropout and backward pass. A build without CUDA cannot ask the kernels and their sampler, so that their
// limits are here once more: tile_forward_takes, gather_takes, window_forward_takes and fits_tiles.
inline CudaChoice choose_without_device(const CudaCall& call, int64_t device_bytes) {
  const bool fits_tiles = call.shape.pairs() / 8 <= int64_t{16} << 30,
             has_windows = (call.dim == 32 || call.dim == 64) && windows_fit(call.shape, device_bytes),
             gather = by_gather(call, has_windows, fits_tiles);
  if (const std::string refusal = shape_refusal(call, gather); !refusal.empty()) return {"", refusal};
  if (call.dim != 16 && call.dim != 32 && call.dim != 64 && call.dim != 128)
    return {"", not_built(call.dim, 0)};
  const double most = forward_window_density(call.dim, std::nullopt, false);
  return taken(call, gather, has_windows && (!call.listed_edges || rarer_than(most, call)));
}

}  // namespace edgewise::ops
