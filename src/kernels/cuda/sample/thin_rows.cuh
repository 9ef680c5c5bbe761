// One row of SBM edges by thinning: the points of a Poisson process on the keys, and which of them are edges.
// The law is at the top of thin_sample.cu; a warp draws a row, 32 points at a time.
#pragma once

#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kThinThreads = 512, kThinWarps = kThinThreads / 32;
constexpr uint32_t kThinLane = 10;     // beside the lanes of philox.h and pair_numbers.h
constexpr float kLargestBound = 0.5f;  // of any row: kappa stays below 1.4

__device__ float to_float(float x) {
  return x;
}
__device__ float to_float(Bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
template <typename T>
__device__ T element(const T* from) {
  return __ldg(from);
}
template <>
__device__ Bf16 element(const Bf16* from) {
  return {__ldg(reinterpret_cast<const unsigned short*>(from))};
}

template <typename T>
struct Sides {
  HeadTensor<const T> query, key;
};
template <typename T>
Sides<T> sides_of(const TileSampleParams& p);
template <>
Sides<Bf16> sides_of<Bf16>(const TileSampleParams& p) {
  return {p.query_membership, p.key_side};
}
template <>
Sides<float> sides_of<float>(const TileSampleParams& p) {
  return {p.exact_query_membership, p.exact_key_side};
}

template <int C>
struct Clusters {
  static constexpr int kCount = C;
};
// body(Clusters, Sides) for the number of clusters and the type that a call has.
template <typename Body>
cudaError_t with_memberships(const TileSampleParams& p, const Body& body) {
  const auto of_type = [&](const auto& sides) -> cudaError_t {
    switch (p.clusters) {
      case 32:
        return body(Clusters<32>(), sides);
      case 64:
        return body(Clusters<64>(), sides);
      case 128:
        return body(Clusters<128>(), sides);
      case 256:
        return body(Clusters<256>(), sides);
    }
    return cudaErrorInvalidValue;
  };
  return p.exact_query_membership.data ? of_type(sides_of<float>(p)) : of_type(sides_of<Bf16>(p));
}

__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}
// In [0, 1); never 0 where `word` is not.
__device__ float uniform(uint32_t word) {
  return __uint2float_rz(word) * 0x1.0p-32f;
}

// Places on the keys are fixed-point numbers below 2^31. Below 2^17 keys their resolution is the same for
// all, so that the padding of a batch does not move them.
__device__ int place_fraction(int keys) {
  return min(14, 31 - (32 - __clz(keys)));
}

// What follows from a row's bound.
struct ThinRow {
  float kappa, sure, gap;  // sure: a hit below this part of its probability is an edge; gap: mean, in places

  template <bool kPoisson>
  __device__ static ThinRow of(float bound, int fraction) {
    const float kappa = kPoisson ? 1 : -log1pf(-bound) / bound;
    return {kappa, 1 / kappa, ldexpf(1, fraction) / (kappa * bound)};
  }
};

// The memberships of one row, C / 32 neighbours to a lane.
template <typename T, int C>
__device__ void load_membership(const T* row, int lane, float (&q)[C / 32]) {
#pragma unroll
  for (int n = 0; n < C / 32; ++n) q[n] = to_float(element(row + lane * (C / 32) + n));
}

// The bounds of the block's rows, `first` .. + 127, in shared memory, -1 for rows that take no part; and
// whether thinning pays for them: it must not depend on how the edges are kept. The whole block takes part.
template <typename T, int C>
__device__ bool block_thins(const TileSampleParams& p, const Sides<T>& sides, int head_index, int first,
                            const float* tops, float (&bounds)[kThinRows]) {
  const int lane = threadIdx.x % 32;
  const int item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  const int rows = min(kThinRows, static_cast<int>(p.shape.queries) - first);
  // A row belongs to neighbouring lanes, which read 16 bytes each at a time: at high densities this is all
  // that thinning does, and a row to a warp, two bytes to a lane, waited for one row after the other.
  constexpr int kEach = 16 / sizeof(T), kPieces = C / kEach, kLanes = kPieces < 32 ? kPieces : 32;
  static_assert(kThinRows % (kThinThreads / kLanes) == 0, "all lanes exchange in every turn");
  const int part = lane % kLanes;
  for (int r = threadIdx.x / kLanes; r < kThinRows; r += kThinThreads / kLanes) {
    const int row = first + r;
    const bool counts =
        r < rows && !(p.query_mask && !p.query_mask[static_cast<int64_t>(item) * p.shape.queries + row]);
    float bound = 0;
    if (counts) {
      const T* const from = sides.query.head(item, head) + row * sides.query.row_stride;
#pragma unroll
      for (int n = 0; n < kPieces / kLanes; ++n) {
        const int at = (n * kLanes + part) * kEach;
        alignas(16) T loaded[kEach];
        *reinterpret_cast<uint4*>(loaded) = __ldg(reinterpret_cast<const uint4*>(from + at));
#pragma unroll
        for (int e = 0; e < kEach; ++e) bound = fmaf(to_float(loaded[e]), tops[at + e], bound);
      }
    }
#pragma unroll
    for (int step = kLanes / 2; step; step /= 2) bound += __shfl_xor_sync(~0u, bound, step);
    if (part == 0) bounds[r] = counts ? bound + p.exploration : -1;
  }
  __syncthreads();
  // Every warp comes to the same decision.
  float total = 0, most = 0, counted = 0;
#pragma unroll
  for (int r = lane; r < kThinRows; r += 32)
    if (!(bounds[r] < 0)) total += bounds[r], most = fmaxf(most, bounds[r]), ++counted;
#pragma unroll
  for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  total = warp_sum(total);
  return most <= kLargestBound && total <= p.thin.limit * warp_sum(counted);  // false for NaN
}

// emit(is an edge, column) in all lanes for every 32 points; columns ascend, each comes once. `sums` is the
// warp's own, [C].
template <typename T, int C, bool kPoisson, typename Emit>
__device__ void draw_thin_row(const TileSampleParams& p, const Sides<T>& sides, int head_index, int row,
                              int lane, const float (&q)[C / 32], const float* tops, float* sums,
                              const ThinRow& thin, int fraction, const Emit& emit) {
  constexpr int kPer = C / 32;
  const int item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  const int keys = p.shape.keys;
  const T* const key_side = sides.key.head(item, head);
  const uint8_t* const key_mask = p.key_mask ? p.key_mask + static_cast<int64_t>(item) * keys : nullptr;
  const uint64_t stream = p.edge_keys[head_index];
  // Running sums of the clusters' weights.
  float running[kPer], before = 0;
#pragma unroll
  for (int n = 0; n < kPer; ++n) running[n] = before = fmaf(q[n], tops[lane * kPer + n], before);
  float upto = before;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(~0u, upto, step);
    if (lane >= step) upto += other;
  }
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kPer; ++n) sums[lane * kPer + n] = upto - before + running[n];
  __syncwarp();
  const float clusters = sums[C - 1], bound = clusters + p.exploration, gap = thin.gap, sure = thin.sure;
  const uint32_t end = static_cast<uint32_t>(p.is_causal ? min(row + 1, keys) : keys) << fraction;
  uint32_t base = 0;
  int last = -1;  // the last key that was hit
  for (uint32_t call = lane; base < end; call += 32) {
    const PairWords random = philox7(row, call, 0, kThinLane, stream);
    // Sums stop at 2^31 - 1, beyond any key, so that they do not overflow.
    constexpr uint32_t kBeyond = 0x7FFFFFFFu;
    uint32_t place = __float2uint_rn(
        fminf(-__logf(fmaf(__uint2float_rn(random.word[0]), 0x1.0p-32f, 0x1.0p-33f)) * gap, 2147483520.0f));
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(~0u, place, step);
      if (lane >= step) place = min(place + other, kBeyond);
    }
    place = min(place + base, kBeyond);
    base = __shfl_sync(~0u, place, 31);
    const int column = static_cast<int>(place >> fraction);
    bool hit = place < end;
    float number = 0, part = 1;  // for a hit number / part is uniform in [0, 1)
    if (hit) {
      const float share = uniform(random.word[1]) * bound;
      if (share < clusters || p.exploration == 0) {
        int c = 0;
#pragma unroll
        for (int step = C / 2; step; step /= 2)
          if (sums[c + step - 1] <= share) c += step;
        part = to_float(element(key_side + column * sides.key.row_stride + c));
        number = uniform(random.word[2]) * tops[c];
        hit = number < part;
      } else {
        number = uniform(random.word[2]);
      }
      if (key_mask && hit) hit = key_mask[column];
    }
    // Hits of one pair are neighbours; the first one stands for it.
    const unsigned hits = __ballot_sync(~0u, hit), earlier = hits & ((1u << lane) - 1);
    const int neighbour = __shfl_sync(~0u, column, earlier ? 31 - __clz(earlier) : lane);
    bool edge = hit && column != (earlier ? neighbour : last);
    if (hits) last = __shfl_sync(~0u, column, 31 - __clz(hits));
    if constexpr (!kPoisson) {
      unsigned open = __ballot_sync(~0u, edge && number >= sure * part);
      for (; open; open &= open - 1) {
        const int from = __ffs(static_cast<int>(open)) - 1, j = __shfl_sync(~0u, column, from);
        const T* const other = key_side + j * sides.key.row_stride + lane * kPer;
        float exact = 0;
#pragma unroll
        for (int n = 0; n < kPer; ++n) exact = fmaf(q[n], to_float(element(other + n)), exact);
        exact = warp_sum(exact) + p.exploration;
        if (lane == from) edge = number * -expm1f(-thin.kappa * exact) < exact * part;
      }
    }
    emit(edge, column);
  }
}

}  // namespace
}  // namespace edgewise::kernels::cuda
