// The list of squares by query groups -> the same by key groups, query groups ascending.
//
// A block has some key groups of a head. It marks the squares among them as bits, a range of query groups at
// a time, and reads the bits off in order: once to count, and once, when the counts have been added up, to
// write. What comes out depends on no order of threads.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/squares/square_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 32;
constexpr int kColumns = 128, kRows = 1024, kColumnsOfWarp = kColumns / kWarps;  // of a block, at a time
constexpr unsigned kAll = ~0u;

// The first of a list's places whose group is at least `group`.
__device__ int first_from(const int32_t* list, int count, int group) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (__ldg(list + middle) < group)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <bool kWrite>
__global__ void __launch_bounds__(kWarps * 32, 1)
    transpose_squares(const __grid_constant__ SquareTransposeParams p) {
  __shared__ uint32_t bits[kColumns][kRows / 32 + 1];  // an odd stride: columns of a row lie in many banks
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int query_groups = static_cast<int>(p.query_groups), key_groups = static_cast<int>(p.key_groups);
  const int parts = (key_groups + kColumns - 1) / kColumns;
  const int64_t head = blockIdx.x / parts;
  const int first_column = static_cast<int>(blockIdx.x % parts) * kColumns;

  int done[kColumnsOfWarp];  // of columns warp, warp + 32, ...: counted, or written up to
#pragma unroll
  for (int k = 0; k < kColumnsOfWarp; ++k) {
    const int column = first_column + warp + k * kWarps;
    done[k] = 0;
    if (kWrite && column < key_groups) {
      const int64_t at = head * key_groups + column;
      done[k] = p.begin[at] - p.count[at];
      __syncwarp();
      if (lane == 0) p.begin[at] = done[k];
    }
  }
  for (int first_row = 0; first_row < query_groups; first_row += kRows) {
    for (int n = threadIdx.x; n < kColumns * (kRows / 32 + 1); n += kWarps * 32) (&bits[0][0])[n] = 0;
    __syncthreads();
    const int rows = min(kRows, query_groups - first_row);
    const int64_t first = head * query_groups + first_row;
    // Lane n keeps the list of row warp + 32 n.
    const int own = warp + kWarps * lane;
    const int own_begin = own < rows ? __ldg(p.squares.begin + first + own) : 0,
              own_count = own < rows ? __ldg(p.squares.count + first + own) : 0;
    for (int n = 0; n < (rows - warp + kWarps - 1) / kWarps; ++n) {
      const int32_t* const list = p.squares.groups + __shfl_sync(kAll, own_begin, n);
      const int count = __shfl_sync(kAll, own_count, n), row = warp + kWarps * n;
      for (int at = count > 128 ? first_from(list, count, first_column) : 0; at < count; at += 128) {
        int column[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          column[k] = at + 32 * k + lane < count ? __ldg(list + at + 32 * k + lane) - first_column : -1;
#pragma unroll
        for (int k = 0; k < 4; ++k)
          if (column[k] >= 0 && column[k] < kColumns) atomicOr(&bits[column[k]][row / 32], 1u << (row % 32));
        if (__shfl_sync(kAll, column[0], 0) >= kColumns) break;
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kColumnsOfWarp; ++k) {
      const uint32_t word = bits[warp + k * kWarps][lane];
      int before = __popc(word);
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(kAll, before, step);
        if (lane >= step) before += other;
      }
      if constexpr (kWrite) {
        int to = done[k] + before - __popc(word);
        for (uint32_t rest = word; rest; rest &= rest - 1) {
          const int row = first_row + 32 * lane + __ffs(static_cast<int>(rest)) - 1;
          if (p.places) {
            const int begin = __ldg(p.squares.begin + head * query_groups + row);
            p.places[to] = begin + first_from(p.squares.groups + begin,
                                              __ldg(p.squares.count + head * query_groups + row),
                                              first_column + warp + k * kWarps);
          }
          p.rows[to++] = row;
        }
      }
      done[k] += __shfl_sync(kAll, before, 31);
    }
    __syncthreads();
  }
  if constexpr (!kWrite) {
#pragma unroll
    for (int k = 0; k < kColumnsOfWarp; ++k) {
      const int column = first_column + warp + k * kWarps;
      if (lane == 0 && column < key_groups) p.count[head * key_groups + column] = done[k];
    }
  }
}

template <bool kWrite>
cudaError_t start(const SquareTransposeParams& p, cudaStream_t stream) {
  const int64_t blocks = p.heads * ((p.key_groups + kColumns - 1) / kColumns);
  if (blocks == 0) return cudaSuccess;
  launch(transpose_squares<kWrite>, static_cast<unsigned>(blocks), kWarps * 32, stream, p);
  return cudaGetLastError();
}

}  // namespace

int launch_count_squares(const SquareTransposeParams& params, Stream stream) {
  return start<false>(params, static_cast<cudaStream_t>(stream));
}
int launch_transpose_squares(const SquareTransposeParams& params, Stream stream) {
  return start<true>(params, static_cast<cudaStream_t>(stream));
}

}  // namespace edgewise::kernels::cuda
