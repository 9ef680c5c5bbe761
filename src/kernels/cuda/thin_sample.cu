// SBM edges of rows whose edges are rare, at a cost that follows their number: exact thinning of a Poisson
// process (docs/math.md, "Laws").
//
// Row i has the bound U_i = sum_c q_ic max_j t_jc + exploration of its probabilities p_ij. Points fall on the
// keys at the rate kappa U_i each: gaps are exponential, so they come in the order of the keys. A point takes
// cluster c with probability q_ic max_j t_jc / U_i, stays with probability t_jc / max_j t_jc, and one of the
// exploration always stays: what stays hits pair (i, j) at the rate kappa p_ij, so a pair is hit with
// probability 1 - exp(-kappa p_ij), pairs independently. Under the Poisson law kappa = 1 and that is all.
// Bernoulli(p) has kappa = -log(1 - U) / U, so that a hit is at least as likely as p, and keeps a hit pair
// with probability p / (1 - exp(-kappa p)), which lies between 1 / kappa and 1: the sum p over all clusters
// is formed only for the few pairs whose number falls in between.
//
// A block owns 128 rows and decides by itself: where its bounds are too large for this to pay it leaves the
// rows to tile_sample.cu, which runs afterwards.
#include "kernels/bit_tiles.h"
#include "kernels/cuda/tile_params.h"
#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
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

// The largest key side of every head and cluster, over valid keys: [B*H, C], must be 0 before. A block takes
// 512 keys.
constexpr int kTopKeys = 512;
template <typename T, int C>
__global__ void key_tops(const __grid_constant__ TileSampleParams p, HeadTensor<const T> key_side) {
  __shared__ unsigned tops[C];
  const int head_index = blockIdx.y, item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  for (int c = threadIdx.x; c < C; c += blockDim.x) tops[c] = 0;
  __syncthreads();
  constexpr int kStep = 8;  // clusters of a thread
  const int cluster = threadIdx.x % (C / kStep) * kStep;
  const int end = min(static_cast<int>(p.shape.keys), (static_cast<int>(blockIdx.x) + 1) * kTopKeys);
  float most[kStep] = {};
  for (int j = blockIdx.x * kTopKeys + threadIdx.x / (C / kStep); j < end; j += blockDim.x / (C / kStep)) {
    if (p.key_mask && !p.key_mask[static_cast<int64_t>(item) * p.shape.keys + j]) continue;
    const T* const from = key_side.head(item, head) + j * key_side.row_stride + cluster;
    T loaded[kStep];
#pragma unroll
    for (int n = 0; n < static_cast<int>(kStep * sizeof(T) / 16); ++n)
      reinterpret_cast<uint4*>(loaded)[n] = __ldg(reinterpret_cast<const uint4*>(from) + n);
#pragma unroll
    for (int n = 0; n < kStep; ++n) most[n] = fmaxf(most[n], to_float(loaded[n]));
  }
#pragma unroll
  for (int n = 0; n < kStep; ++n) atomicMax(tops + cluster + n, __float_as_uint(most[n]));
  __syncthreads();
  for (int c = threadIdx.x; c < C; c += blockDim.x)
    if (tops[c])
      atomicMax(reinterpret_cast<unsigned*>(p.thin.key_tops) + static_cast<int64_t>(head_index) * C + c,
                tops[c]);
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

template <typename T, int C, bool kPoisson>
__global__ void __launch_bounds__(kThreads, 2)
    thin_sample(const __grid_constant__ TileSampleParams p, const __grid_constant__ Sides<T> sides) {
  constexpr int kPer = C / 32;  // clusters of a lane, neighbours
  __shared__ float tops[C], sums[kWarps][C], bounds[kThinRows];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head_index = blockIdx.y, item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  const int first = blockIdx.x * kThinRows, rows = min(kThinRows, static_cast<int>(p.shape.queries) - first);
  const int keys = p.shape.keys;
  for (int c = threadIdx.x; c < C; c += kThreads)
    tops[c] = p.thin.key_tops[static_cast<int64_t>(head_index) * C + c];
  __syncthreads();

  const auto load_row = [&](int row, float(&q)[kPer]) {
    const T* const from = sides.query.head(item, head) + row * sides.query.row_stride + lane * kPer;
#pragma unroll
    for (int n = 0; n < kPer; ++n) q[n] = to_float(element(from + n));
  };
  for (int r = warp; r < kThinRows; r += kWarps) {
    const int row = first + r;
    float bound = -1;  // of a row that takes no part
    if (r < rows && !(p.query_mask && !p.query_mask[static_cast<int64_t>(item) * p.shape.queries + row])) {
      float q[kPer];
      load_row(row, q);
      bound = 0;
#pragma unroll
      for (int n = 0; n < kPer; ++n) bound = fmaf(q[n], tops[lane * kPer + n], bound);
      bound = warp_sum(bound) + p.exploration;
    }
    if (lane == 0) bounds[r] = bound;
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
  const bool thin = most <= kLargestBound && total <= p.thin.limit * warp_sum(counted);  // false for NaN
  if (threadIdx.x == 0) {
    p.thin.blocks[static_cast<int64_t>(head_index) * gridDim.x + blockIdx.x] = thin;
    if (!thin) atomicAdd(p.thin.direct_blocks + head_index, 1u);
  }
  if (!thin) return;

  const int column_tiles = p.shape.column_tiles(), row_tiles = p.shape.row_tiles();
  uint32_t* const strips =
      p.tiles + (static_cast<int64_t>(head_index) * row_tiles + blockIdx.x * (kThinRows / 64)) *
                    column_tiles * kTileWords;
  const int words = min(kThinRows / 64, row_tiles - static_cast<int>(blockIdx.x) * (kThinRows / 64)) *
                    column_tiles * kTileWords;
  for (int n = threadIdx.x; n < words / 4; n += kThreads) reinterpret_cast<uint4*>(strips)[n] = uint4{};
  __syncthreads();

  // What a row needs, once for each.
  __shared__ float surely[kThinRows], kappas[kThinRows], gaps[kThinRows];
  // Places on the keys are fixed-point numbers below 2^31. Below 2^17 keys their resolution is the same for
  // all, so that the padding of a batch does not move them.
  const int fraction = min(14, 31 - (32 - __clz(keys)));
  if (threadIdx.x < kThinRows) {
    const float bound = bounds[threadIdx.x], kappa = kPoisson ? 1 : -log1pf(-bound) / bound;
    kappas[threadIdx.x] = kappa;
    surely[threadIdx.x] = 1 / kappa;
    gaps[threadIdx.x] = ldexpf(1, fraction) / (kappa * bound);
  }
  __syncthreads();

  const uint64_t stream = p.edge_keys[head_index];
  const T* const key_side = sides.key.head(item, head);
  const uint8_t* const key_mask = p.key_mask ? p.key_mask + static_cast<int64_t>(item) * keys : nullptr;
  float* const own_sums = sums[warp];
  unsigned count = 0;
  for (int r = warp; r < rows; r += kWarps) {
    if (!(bounds[r] > 0)) continue;
    const int row = first + r;
    // Running sums of the clusters' weights.
    float q[kPer], running[kPer], before = 0;
    load_row(row, q);
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
    for (int n = 0; n < kPer; ++n) own_sums[lane * kPer + n] = upto - before + running[n];
    __syncwarp();
    const float clusters = own_sums[C - 1], bound = clusters + p.exploration, gap = gaps[r], sure = surely[r];
    const uint32_t end = static_cast<uint32_t>(p.is_causal ? min(row + 1, keys) : keys) << fraction;
    uint32_t* const strip = strips + static_cast<int64_t>(r / 64) * column_tiles * kTileWords +
                            r % 64 / 16 * 32 + r % 8 * 4;  // of the row
    const int shift = 7 + r % 16 / 8 * 16;

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
            if (own_sums[c + step - 1] <= share) c += step;
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
          if (lane == from) edge = number * -expm1f(-kappas[r] * exact) < exact * part;
        }
      }
      if (edge)  // tile_word and tile_bit of (r, column)
        atomicOr(strip + column / 64 * kTileWords + column % 8 / 2,
                 1u << (shift + column % 2 * 8 - column % 64 / 8));
      count += __popc(__ballot_sync(~0u, edge));
    }
  }
  if (lane == 0 && count)
    atomicAdd(reinterpret_cast<unsigned long long*>(p.edge_counts + head_index),
              static_cast<unsigned long long>(count));
}

template <typename T, int C>
cudaError_t launch(const TileSampleParams& p, cudaStream_t stream) {
  const Sides<T> sides = sides_of<T>(p);
  const unsigned heads = static_cast<unsigned>(p.shape.batch * p.shape.heads);
  key_tops<T, C>
      <<<dim3(static_cast<unsigned>((p.shape.keys + kTopKeys - 1) / kTopKeys), heads), 256, 0, stream>>>(
          p, sides.key);
  const dim3 grid(static_cast<unsigned>((p.shape.queries + kThinRows - 1) / kThinRows), heads);
  if (p.poisson)
    thin_sample<T, C, true><<<grid, kThreads, 0, stream>>>(p, sides);
  else
    thin_sample<T, C, false><<<grid, kThreads, 0, stream>>>(p, sides);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_clusters(const TileSampleParams& p, cudaStream_t stream) {
  switch (p.clusters) {
    case 32:
      return launch<T, 32>(p, stream);
    case 64:
      return launch<T, 64>(p, stream);
    case 128:
      return launch<T, 128>(p, stream);
    case 256:
      return launch<T, 256>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

bool thin_sample_takes(int64_t clusters) {
  return clusters == 32 || clusters == 64 || clusters == 128 || clusters == 256;
}

int launch_thin_sample(const TileSampleParams& p, Stream stream) {
  if (p.shape.words() == 0) return cudaSuccess;
  return p.exact_query_membership.data ? launch_clusters<float>(p, static_cast<cudaStream_t>(stream))
                                       : launch_clusters<Bf16>(p, static_cast<cudaStream_t>(stream));
}

}  // namespace edgewise::kernels::cuda
