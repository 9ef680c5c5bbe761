// Squares drawn from a block model over groups (square_choice_params.h). A warp has a row of groups and goes
// through the key groups 32 at a time: a lane forms p_IJ in the order of the direct sampler on CPU, decides
// by the same number, and writes its key group where those before it leave off. Probes are decided on the
// way.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/squares/square_choice_params.h"
#include "kernels/pair_numbers.h"
#include "kernels/probe_units.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kEvery = ~0u;

// Numbers that a lane reads at once.
template <typename T>
constexpr int kAtOnce = 16 / static_cast<int>(sizeof(T));

__device__ inline void read_numbers(float (&to)[4], const float* from) {
  const uint4 x = __ldg(reinterpret_cast<const uint4*>(from));
  to[0] = __uint_as_float(x.x), to[1] = __uint_as_float(x.y);
  to[2] = __uint_as_float(x.z), to[3] = __uint_as_float(x.w);
}
__device__ inline void read_numbers(float (&to)[8], const Bf16* from) {
  const uint4 x = __ldg(reinterpret_cast<const uint4*>(from));
  const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    to[2 * n] = __uint_as_float(words[n] << 16);
    to[2 * n + 1] = __uint_as_float(words[n] & 0xFFFF0000u);
  }
}

// The law's probability times 2^32. As the direct sampler on CPU: no number but what the sum is.
__device__ inline double limit_of(float p, bool is_poisson) {
  const double capped = fmin(static_cast<double>(p), 1.0);
  return (is_poisson ? -expm1(-capped) : capped) * 4294967296.0;
}

// A row's list, 32 lanes at a time.
struct RowWriter {
  int32_t* to;
  int count = 0;

  __device__ void add(bool wanted, int group) {
    const unsigned all = __ballot_sync(kEvery, wanted);
    if (wanted) to[count + __popc(all & ((1u << (threadIdx.x % 32)) - 1))] = group;
    count += __popc(all);
  }
};

template <typename T>
__global__ void __launch_bounds__(kWarps * 32)
    sample_squares(const __grid_constant__ SquareSampleParams<T> p) {
  __shared__ float own[kWarps][kMostChoiceClusters];  // Q^ of the warps' rows
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int query_groups = static_cast<int>(p.query_groups), key_groups = static_cast<int>(p.key_groups),
            clusters = static_cast<int>(p.clusters);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= p.batch * p.heads * query_groups) return;
  const int head_index = static_cast<int>(row / query_groups), group = static_cast<int>(row % query_groups);
  const int item = head_index / static_cast<int>(p.heads), head = head_index % static_cast<int>(p.heads);
  const int drawn_row = group + static_cast<int>(p.first_row);
  int allowed = p.is_causal ? min(key_groups, drawn_row + 1) : key_groups;
  if (p.query_mask && !p.query_mask[static_cast<int64_t>(item) * query_groups + group]) allowed = 0;

  const T* const query = p.query_membership.head(item, head) + group * p.query_membership.row_stride;
  for (int n = kAtOnce<T> * lane; n < clusters; n += kAtOnce<T> * 32) {
    float numbers[kAtOnce<T>];
    read_numbers(numbers, query + n);
#pragma unroll
    for (int m = 0; m < kAtOnce<T>; ++m) own[warp][n + m] = numbers[m];
  }
  __syncwarp();

  const uint64_t key = p.edge_keys[head_index], probe_key = p.probe_keys ? p.probe_keys[head_index] : 0;
  const double probe_limit = p.probe_keys ? unit_limit(p.probe_rates[item]) : 0;
  const T* const side = p.key_side.head(item, head);
  RowWriter squares{p.cols + row * key_groups},
      probes{p.probe_keys ? p.probe_cols + row * key_groups : nullptr};
#pragma unroll 1
  for (int first = 0; first < allowed; first += 32) {
    const int column = first + lane;
    const bool takes_part =
        column < allowed && !(p.key_mask && !p.key_mask[static_cast<int64_t>(item) * key_groups + column]);
    float sum = p.exploration;
    const T* const other =
        side + static_cast<int64_t>(column < key_groups ? column : 0) * p.key_side.row_stride;
#pragma unroll 2
    for (int n = 0; n < clusters; n += kAtOnce<T>) {
      float numbers[kAtOnce<T>];
      read_numbers(numbers, other + n);
#pragma unroll
      for (int m = 0; m < kAtOnce<T>; ++m) sum = __fadd_rn(sum, __fmul_rn(own[warp][n + m], numbers[m]));
    }
    const double limit = limit_of(sum, p.is_poisson);
    const uint32_t call = pair_call(column);
    const double least = static_cast<double>(
        pair_half(philox7(static_cast<uint32_t>(drawn_row), call, 0, kPairHighLane, key), column) << 16);
    bool chosen = least + 65535 < limit;
    const bool is_open = !chosen && least < limit;
    if (__any_sync(kEvery, is_open)) {
      const uint32_t low =
          pair_half(philox7(static_cast<uint32_t>(drawn_row), call, 0, kPairLowLane, key), column);
      if (is_open) chosen = least + static_cast<double>(low) < limit;
    }
    chosen = chosen && takes_part;
    squares.add(chosen, column);
    if (!p.probe_keys) continue;
    const PairWords numbers =
        unit_numbers(probe_key, static_cast<uint32_t>(drawn_row), static_cast<uint32_t>(column / 4));
    uint32_t number = numbers.word[0];
#pragma unroll
    for (int n = 1; n < 4; ++n)
      if (column % 4 == n) number = numbers.word[n];
    probes.add(takes_part && !chosen && static_cast<double>(number) < probe_limit, column);
  }
  if (lane > 0) return;
  p.count[row] = squares.count;
  if (p.probe_keys) p.probe_count[row] = probes.count;
}

template <typename T>
int start(const SquareSampleParams<T>& p, Stream stream) {
  const int64_t rows = p.batch * p.heads * p.query_groups;
  if (rows == 0) return cudaSuccess;
  launch(sample_squares<T>, dim3(static_cast<unsigned>((rows + kWarps - 1) / kWarps)), kWarps * 32,
         static_cast<cudaStream_t>(stream), p);
  return cudaGetLastError();
}

}  // namespace

bool square_choice_takes(int64_t clusters, int64_t bytes_of_number) {
  return clusters <= kMostChoiceClusters && clusters > 0 && clusters * bytes_of_number % 16 == 0;
}

int launch_sample_squares(const SquareSampleParams<Bf16>& params, Stream stream) {
  return start(params, stream);
}
int launch_sample_squares(const SquareSampleParams<float>& params, Stream stream) {
  return start(params, stream);
}

}  // namespace edgewise::kernels::cuda
