// What a block model's choice of squares needs besides the draw (square_choice_params.h): how many pairs rows
// have, means of groups, and the sums by which numbers of squares reach memberships. A warp has a row of
// groups, and sums in the order of its list, so that results repeat bit for bit.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/squares/square_choice_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kEvery = ~0u;

__device__ inline int lane_id() {
  return static_cast<int>(threadIdx.x % 32);
}
__device__ inline int64_t warp_row() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}
// Where a row of groups stands. There are fewer than 2^31 rows: the machine divides 32 bits much faster.
struct RowPlace {
  int64_t head_index, item, head, group;

  __device__ RowPlace(int64_t row, int64_t groups, int64_t heads) {
    const unsigned index = static_cast<unsigned>(row) / static_cast<unsigned>(groups),
                   of_batch = index / static_cast<unsigned>(heads);
    head_index = index, item = of_batch;
    head = index - of_batch * static_cast<unsigned>(heads);
    group = row - head_index * groups;
  }
};
__device__ inline uint32_t first_bits(int64_t count) {
  return count >= 16 ? 0xFFFFu : count <= 0 ? 0u : (1u << count) - 1;
}

__device__ inline float number(const float* at) {
  return *at;
}
__device__ inline float number(const Bf16* at) {
  return __uint_as_float(static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(at)) << 16);
}
__device__ inline void set_number(float* at, float x) {
  *at = x;
}
// Rounded to the nearest, ties to even; NaN stays NaN.
__device__ inline void set_number(Bf16* at, float x) {
  const uint32_t bits = __float_as_uint(x);
  *reinterpret_cast<uint16_t*>(at) =
      x != x ? 0x7FC0 : static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

// ---- pairs of rows ----

__global__ void __launch_bounds__(kWarps * 32)
    count_square_pairs(const __grid_constant__ SquareCountParams p) {
  const int query_groups = static_cast<int>(square_groups(p.queries)),
            key_groups = static_cast<int>(square_groups(p.keys));
  const int64_t row = warp_row();
  if (row >= p.batch * p.heads * query_groups) return;
  const RowPlace place(row, query_groups, p.heads);
  const int64_t item = place.item;
  const int group = static_cast<int>(place.group), lane = lane_id();
  const int count = p.squares.count[row], begin = p.squares.begin[row];
  const int64_t query = static_cast<int64_t>(group) * kSquareSide + lane % 16;
  const bool takes_part = query < p.queries && !(p.query_mask && !p.query_mask[item * p.queries + query]);
  const uint32_t queries = __ballot_sync(kEvery, takes_part) & 0xFFFFu;
  int pairs = 0;
  for (int n = lane; n < count; n += 32) {
    const int other = p.squares.groups[begin + n];
    uint32_t keys = first_bits(p.keys - static_cast<int64_t>(other) * kSquareSide);
    if (p.key_bits) keys &= static_cast<uint32_t>(p.key_bits[item * key_groups + other]);
    // Query r meets keys up to r + shift.
    const int64_t shift = p.query_offset + (static_cast<int64_t>(group) - other) * kSquareSide;
    if (!p.is_causal || shift >= 15) {
      pairs += __popc(queries) * __popc(keys);
      continue;
    }
    for (uint32_t rest = queries; rest; rest &= rest - 1)
      pairs += __popc(keys & first_bits(__ffs(static_cast<int>(rest)) + shift));
  }
#pragma unroll
  for (int step = 16; step; step /= 2) pairs += __shfl_xor_sync(kEvery, pairs, step);
  if (lane == 0) p.pairs[row] = pairs;
}

// ---- sums over lists ----

// A lane has pairs of neighbouring clusters. Where half a warp has all of them, the other half takes every
// other square of a list.
template <int kClusters>
struct SumShape {
  static constexpr int kLanes = kClusters < 64 ? kClusters / 2 : 32, kAtOnce = 32 / kLanes,
                       kPairs = kClusters / (2 * kLanes);
};

__device__ inline void add_pair(float (&sums)[2], float weight, const float* at) {
  const uint2 x = __ldg(reinterpret_cast<const uint2*>(at));
  sums[0] = fmaf(weight, __uint_as_float(x.x), sums[0]),
  sums[1] = fmaf(weight, __uint_as_float(x.y), sums[1]);
}
__device__ inline void add_pair(float (&sums)[2], float weight, const Bf16* at) {
  const uint32_t x = __ldg(reinterpret_cast<const unsigned*>(at));
  sums[0] = fmaf(weight, __uint_as_float(x << 16), sums[0]);
  sums[1] = fmaf(weight, __uint_as_float(x & 0xFFFF0000u), sums[1]);
}

// sums[c] += G other[group][first cluster of the lane + 2 kLanes c] over this lane's part of a list.
template <int kClusters, typename T>
__device__ inline void add_list(float (&sums)[SumShape<kClusters>::kPairs][2], const WeightedSquares& list,
                                int64_t row, float scale, float clip, const T* other, int64_t stride,
                                int clusters) {
  using Shape = SumShape<kClusters>;
  if (!list.squares.groups) return;
  const int lane = lane_id(), count = list.squares.count[row], begin = list.squares.begin[row];
  const int own = lane / Shape::kLanes, cluster = 2 * (lane % Shape::kLanes);
  for (int first = 0; first < count; first += 32) {
    int group = 0;
    float value = 0;
    if (first + lane < count) {
      const int at = begin + first + lane;
      group = list.squares.groups[at];
      value = list.values[list.places ? list.places[at] : at];
      if (clip > 0 && value == value) value = fminf(fmaxf(value, -clip), clip);
      value *= scale;
    }
    const int some = min(32, count - first);
#pragma unroll 4
    for (int n = 0; n < some; n += Shape::kAtOnce) {
      const int from = __shfl_sync(kEvery, group, n + own);
      const float weight = __shfl_sync(kEvery, value, n + own);
      if (n + own >= some) continue;
      const T* const numbers = other + from * stride + cluster;
#pragma unroll
      for (int c = 0; c < Shape::kPairs; ++c)
        if (cluster + 2 * Shape::kLanes * c < clusters)
          add_pair(sums[c], weight, numbers + 2 * Shape::kLanes * c);
    }
  }
}

template <typename T, int kClusters>
__global__ void __launch_bounds__(kWarps * 32) sum_squares(const __grid_constant__ SquareSumParams<T> p) {
  using Shape = SumShape<kClusters>;
  int64_t row = warp_row();
  const int64_t heads = p.batch * p.heads, queries = heads * p.sides[0].groups;
  const bool is_key = row >= queries;
  if (is_key) row -= queries;
  const SquareSumSide<T>& side = p.sides[is_key ? 1 : 0];
  if (row >= heads * side.groups) return;
  const RowPlace place(row, side.groups, p.heads);
  const int clusters = static_cast<int>(p.clusters), lane = lane_id();
  const T* const other = side.other.head(place.item, place.head);
  float sums[Shape::kPairs][2] = {};
  add_list<kClusters>(sums, side.present, row, 1.0f, p.clip, other, side.other.row_stride, clusters);
  if (side.probes.squares.groups) {
    const float scale = side.probes.rates ? static_cast<float>(1 / side.probes.rates[place.item]) : 1.0f;
    add_list<kClusters>(sums, side.probes, row, scale, 0.0f, other, side.other.row_stride, clusters);
  }
#pragma unroll
  for (int c = 0; c < Shape::kPairs; ++c)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int step = Shape::kLanes; step < 32; step *= 2)
        sums[c][h] += __shfl_xor_sync(kEvery, sums[c][h], step);
      const int cluster = 2 * (lane % Shape::kLanes) + 2 * Shape::kLanes * c + h;
      if (lane < Shape::kLanes && cluster < clusters)
        set_number(side.out + row * clusters + cluster, sums[c][h]);
    }
}

// ---- means ----

// Tokens of the group that count.
template <typename T>
__device__ inline uint32_t counted(const SquareMeanParams<T>& p, int side, int64_t item, int64_t first) {
  const int64_t token = first + lane_id() % 16;
  const bool counts =
      token < p.tokens[side] && !(p.masks[side] && !p.masks[side][item * p.tokens[side] + token]);
  return __ballot_sync(kEvery, counts) & 0xFFFFu;
}

// Which row of which side a warp has; false: none.
template <typename T>
__device__ inline bool find_row(const SquareMeanParams<T>& p, int& side, int64_t& row) {
  row = warp_row();
  side = 0;
  const int64_t queries = p.batch * p.heads * square_groups(p.tokens[0]);
  if (row >= queries) side = 1, row -= queries;
  return side == 0 || row < p.batch * p.heads * square_groups(p.tokens[1]);
}

// The dims of a token lie in units of kAtOnce numbers: 16 bytes, or one where rows are not made of those. A
// lane has unit lane % units of every so many-th token; `units` is a power of two up to 32, or lanes take
// turns.
template <typename T, int kAtOnce>
struct MeanUnits {
  int units, tokens;  // of a row; that a warp reads at once

  __device__ explicit MeanUnits(int64_t dim)
      : units(static_cast<int>(dim) / kAtOnce), tokens(kAtOnce > 1 && units <= 32 ? 32 / units : 1) {}
  __device__ int first_token() const { return tokens > 1 ? lane_id() / units : 0; }
  __device__ int first_unit() const { return tokens > 1 ? lane_id() % units : lane_id(); }
  __device__ static void read(float (&to)[kAtOnce], const T* from) {
    if constexpr (kAtOnce == 1) {
      to[0] = number(from);
    } else {
      const uint4 x = *reinterpret_cast<const uint4*>(from);
      const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if constexpr (sizeof(T) == 2) {
          to[2 * n] = __uint_as_float(words[n] << 16);
          to[2 * n + 1] = __uint_as_float(words[n] & 0xFFFF0000u);
        } else {
          to[n] = __uint_as_float(words[n]);
        }
      }
    }
  }
  __device__ static void write(T* to, const float (&from)[kAtOnce]) {
    if constexpr (kAtOnce == 1) {
      set_number(to, from[0]);
    } else {
      alignas(16) T numbers[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) set_number(numbers + n, from[n]);
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(numbers);
    }
  }
};

template <typename T, int kAtOnce>
__global__ void __launch_bounds__(kWarps * 32) square_means(const __grid_constant__ SquareMeanParams<T> p) {
  using Units = MeanUnits<T, kAtOnce>;
  int side;
  int64_t row;
  if (!find_row(p, side, row)) return;
  const RowPlace place(row, square_groups(p.tokens[side]), p.heads);
  const int64_t first = place.group * kSquareSide;
  const uint32_t tokens = counted(p, side, place.item, first);
  const float share = tokens ? 1.0f / static_cast<float>(__popc(tokens)) : 0.0f;
  const HeadTensor<const T>& rows = p.rows[side];
  const T* const from = rows.head(place.item, place.head) + first * rows.row_stride;
  const Units lanes(p.dim);
  for (int unit = lanes.first_unit(); unit < lanes.units; unit += 32) {
    float sums[kAtOnce] = {};
#pragma unroll 4
    for (int n = lanes.first_token(); n < 16; n += lanes.tokens) {
      if (!(tokens >> n & 1)) continue;
      float numbers[kAtOnce];
      Units::read(numbers, from + n * rows.row_stride + unit * kAtOnce);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) sums[k] += numbers[k];
    }
    for (int step = lanes.units; lanes.tokens > 1 && step < 32; step *= 2) {
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) sums[k] += __shfl_xor_sync(kEvery, sums[k], step);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) sums[k] *= share;
    if (lanes.first_token() == 0) Units::write(p.means[side] + row * p.dim + unit * kAtOnce, sums);
  }
}

template <typename T, int kAtOnce>
__global__ void __launch_bounds__(kWarps * 32)
    square_mean_grads(const __grid_constant__ SquareMeanParams<T> p) {
  using Units = MeanUnits<T, kAtOnce>;
  int side;
  int64_t row;
  if (!find_row(p, side, row)) return;
  const RowPlace place(row, square_groups(p.tokens[side]), p.heads);
  const int64_t first = place.group * kSquareSide;
  const uint32_t tokens = counted(p, side, place.item, first);
  const float share = tokens ? 1.0f / static_cast<float>(__popc(tokens)) : 0.0f;
  const int there = static_cast<int>(min(kSquareSide, p.tokens[side] - first));
  T* const to = p.row_grads[side] + (place.head_index * p.tokens[side] + first) * p.dim;
  const HeadTensor<const T>& rows = p.rows[side];
  const T* const others = rows.data ? rows.head(place.item, place.head) + first * rows.row_stride : nullptr;
  const Units lanes(p.dim);
  for (int unit = lanes.first_unit(); unit < lanes.units; unit += 32) {
    float each[kAtOnce];
    Units::read(each, p.mean_grads[side] + row * p.dim + unit * kAtOnce);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) each[k] *= share;
#pragma unroll 4
    for (int n = lanes.first_token(); n < there; n += lanes.tokens) {
      float sum[kAtOnce] = {};
      if (rows.data) Units::read(sum, others + n * rows.row_stride + unit * kAtOnce);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) sum[k] += tokens >> n & 1 ? each[k] : 0.0f;
      Units::write(to + n * p.dim + unit * kAtOnce, sum);
    }
  }
}

unsigned blocks_of(int64_t rows) {
  return static_cast<unsigned>((rows + kWarps - 1) / kWarps);
}

template <typename T>
int start_sums(const SquareSumParams<T>& p, Stream stream) {
  const int64_t rows = p.batch * p.heads * (p.sides[0].groups + p.sides[1].groups);
  if (rows == 0) return cudaSuccess;
  const auto start = [&](auto* kernel) {
    launch(kernel, dim3(blocks_of(rows)), kWarps * 32, static_cast<cudaStream_t>(stream), p);
  };
  if (p.clusters <= 16)
    start(sum_squares<T, 16>);
  else if (p.clusters <= 32)
    start(sum_squares<T, 32>);
  else if (p.clusters <= 64)
    start(sum_squares<T, 64>);
  else if (p.clusters <= 128)
    start(sum_squares<T, 128>);
  else
    start(sum_squares<T, 256>);
  return cudaGetLastError();
}

template <typename T>
int start_means(const SquareMeanParams<T>& p, bool is_backward, Stream stream) {
  const int64_t rows = p.batch * p.heads * (square_groups(p.tokens[0]) + square_groups(p.tokens[1]));
  if (rows == 0) return cudaSuccess;
  constexpr int kNumbers = 16 / static_cast<int>(sizeof(T));
  const auto aligned = [](const void* rows) { return reinterpret_cast<uintptr_t>(rows) % 16 == 0; };
  const auto whole = [&](const auto& row) {
    return aligned(row.data) && (row.batch_stride | row.head_stride | row.row_stride) % kNumbers == 0;
  };
  const int64_t units = p.dim / kNumbers;
  const bool wide = p.dim % kNumbers == 0 && (units >= 32 || (units & (units - 1)) == 0) &&
                    whole(p.rows[0]) && whole(p.rows[1]) && aligned(p.mean_grads[0]) &&
                    aligned(p.mean_grads[1]);
  const auto start = [&](auto* kernel) {
    launch(kernel, dim3(blocks_of(rows)), kWarps * 32, static_cast<cudaStream_t>(stream), p);
  };
  if (is_backward)
    wide ? start(square_mean_grads<T, kNumbers>) : start(square_mean_grads<T, 1>);
  else
    wide ? start(square_means<T, kNumbers>) : start(square_means<T, 1>);
  return cudaGetLastError();
}

}  // namespace

int launch_count_square_pairs(const SquareCountParams& p, Stream stream) {
  const int64_t rows = p.batch * p.heads * square_groups(p.queries);
  if (rows == 0) return cudaSuccess;
  launch(count_square_pairs, dim3(blocks_of(rows)), kWarps * 32, static_cast<cudaStream_t>(stream), p);
  return cudaGetLastError();
}
int launch_sum_squares(const SquareSumParams<Bf16>& params, Stream stream) {
  return start_sums(params, stream);
}
int launch_sum_squares(const SquareSumParams<float>& params, Stream stream) {
  return start_sums(params, stream);
}
int launch_square_means(const SquareMeanParams<Bf16>& params, Stream stream) {
  return start_means(params, false, stream);
}
int launch_square_means(const SquareMeanParams<float>& params, Stream stream) {
  return start_means(params, false, stream);
}
int launch_square_mean_grads(const SquareMeanParams<Bf16>& params, Stream stream) {
  return start_means(params, true, stream);
}
int launch_square_mean_grads(const SquareMeanParams<float>& params, Stream stream) {
  return start_means(params, true, stream);
}

}  // namespace edgewise::kernels::cuda
