// Unions and differences of lists of squares (square_set_params.h). A warp has a row. Both lists ascend, so a
// square's place is its rank: how many of its own list come before it, and how many of the other, which a
// search finds. Those that both have are counted by vote, 32 squares at a time.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/squares/square_set_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kEvery = ~0u;

struct Row {
  const int32_t* groups;
  int count;

  __device__ Row(const SquareList& list, int64_t row)
      : groups(list.groups + list.begin[row]), count(list.count[row]) {}
  // How many groups are less than this one.
  __device__ int before(int group) const {
    int low = 0, high = count;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (__ldg(groups + middle) < group)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  __device__ bool has(int group, int before_it) const {
    return before_it < count && __ldg(groups + before_it) == group;
  }
};

// body(group, rank in `own`, how many of `other` are less, whether `other` has it, how many so far both have)
// for every group of `own`; returns how many both have. By a whole warp.
template <typename Body>
__device__ inline int for_groups(const Row& own, const Row& other, const Body& body) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int common = 0;
#pragma unroll 1
  for (int first = 0; first < own.count; first += 32) {
    const int n = first + lane;
    const bool is_there = n < own.count;
    const int group = is_there ? __ldg(own.groups + n) : 0;
    const int before = is_there ? other.before(group) : 0;
    const bool both = is_there && other.has(group, before);
    const unsigned all = __ballot_sync(kEvery, both);
    if (is_there) body(group, n, before, both, common + __popc(all & ((1u << lane) - 1)));
    common += __popc(all);
  }
  return common;
}

__device__ inline int64_t warp_row() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}

__global__ void __launch_bounds__(kWarps * 32) join_squares(const __grid_constant__ SquareSetParams p) {
  const int64_t row = warp_row();
  if (row >= p.rows) return;
  const Row a(p.a, row), b(p.b, row);
  int32_t* const to = p.cols + row * p.key_groups;
  const bool is_union = p.operation == SquareSetOperation::kUnion;
  const int common = for_groups(a, b, [&](int group, int rank, int before, bool both, int common_before) {
    if (is_union)
      to[rank + before - common_before] = group;
    else if (!both)
      to[rank - common_before] = group;
  });
  if (is_union)
    for_groups(b, a, [&](int group, int rank, int before, bool both, int common_before) {
      if (!both) to[rank + before - common_before] = group;
    });
  if (threadIdx.x % 32 == 0) p.count[row] = a.count - common + (is_union ? b.count : 0);
}

__global__ void __launch_bounds__(kWarps * 32) clear_squares(const __grid_constant__ SquareClearParams p) {
  const int64_t row = warp_row();
  if (row >= p.rows) return;
  const Row own(p.squares, row), others(p.others, row);
  float* const values = p.values + p.squares.begin[row];
  for_groups(own, others, [&](int, int rank, int, bool both, int) {
    if (both) values[rank] = 0;
  });
}

template <typename Params>
int start(void (*kernel)(Params), const Params& p, Stream stream) {
  if (p.rows == 0) return cudaSuccess;
  launch(kernel, dim3(static_cast<unsigned>((p.rows + kWarps - 1) / kWarps)), kWarps * 32,
         static_cast<cudaStream_t>(stream), p);
  return cudaGetLastError();
}

}  // namespace

int launch_join_squares(const SquareSetParams& params, Stream stream) {
  return start(join_squares, params, stream);
}
int launch_clear_squares(const SquareClearParams& params, Stream stream) {
  return start(clear_squares, params, stream);
}

}  // namespace edgewise::kernels::cuda
