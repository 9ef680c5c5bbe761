// The list of squares by query groups -> the same by key groups, query groups ascending.
//
// A block has some key groups of a head. It marks the squares among them as bits, a range of query groups at
// a time, adds the bits up in order, and goes through the lists once more: the bits before a square's own say
// where it goes. What comes out depends on no order of threads.
//
// Where the lists of key groups lie has to be known first. Either each has room for all query groups, or the
// squares are counted before they are written.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/squares/square_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 32;
constexpr int kColumns = 128, kRows = 1024, kColumnsOfWarp = kColumns / kWarps;  // of a block, at a time
constexpr unsigned kAll = ~0u;

enum class Pass { kCount, kWrite, kBoth };

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

template <Pass kPass>
__global__ void __launch_bounds__(kWarps * 32, 1)
    transpose_squares(const __grid_constant__ SquareTransposeParams p) {
  // Bits of a column, and where the squares of each word go. An odd stride: columns of a row lie in many
  // banks.
  __shared__ uint32_t bits[kColumns][kRows / 32 + 1];
  __shared__ int32_t places[kPass == Pass::kCount ? 1 : kColumns][kRows / 32 + 1];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int query_groups = static_cast<int>(p.query_groups), key_groups = static_cast<int>(p.key_groups);
  const int parts = (key_groups + kColumns - 1) / kColumns;
  const int64_t head = blockIdx.x / parts;
  const int first_column = static_cast<int>(blockIdx.x % parts) * kColumns;

  int begin[kColumnsOfWarp],
      done[kColumnsOfWarp];  // of columns warp, warp + 32, ...: counted, or written up to
#pragma unroll
  for (int k = 0; k < kColumnsOfWarp; ++k) {
    const int column = first_column + warp + k * kWarps;
    begin[k] = 0;
    if (column < key_groups) {
      const int64_t at = head * key_groups + column;
      if constexpr (kPass == Pass::kBoth) begin[k] = static_cast<int>(at * query_groups);
      if constexpr (kPass == Pass::kWrite) begin[k] = p.begin[at] - p.count[at];
      __syncwarp();
      if (kPass != Pass::kCount && lane == 0) p.begin[at] = begin[k];
    }
    done[k] = begin[k];
  }
#pragma unroll 1
  for (int first_row = 0; first_row < query_groups; first_row += kRows) {
    for (int n = threadIdx.x; n < kColumns * (kRows / 32 + 1); n += kWarps * 32) (&bits[0][0])[n] = 0;
    __syncthreads();
    const int rows = min(kRows, query_groups - first_row);
    const int64_t first = head * query_groups + first_row;
    // Lane n keeps the list of row warp + 32 n.
    const int own = warp + kWarps * lane;
    const int own_begin = own < rows ? __ldg(p.squares.begin + first + own) : 0,
              own_count = own < rows ? __ldg(p.squares.count + first + own) : 0;
    // body(row of these, column of these, place in the list) for the block's squares of the warp's rows.
    const auto for_squares = [&](const auto& body) {
#pragma unroll 1
      for (int n = 0; n < (rows - warp + kWarps - 1) / kWarps; ++n) {
        const int begins = __shfl_sync(kAll, own_begin, n), count = __shfl_sync(kAll, own_count, n);
        const int32_t* const list = p.squares.groups + begins;
        const int row = warp + kWarps * n;
#pragma unroll 1
        for (int at = count > 128 ? first_from(list, count, first_column) : 0; at < count; at += 128) {
          int column[4];
#pragma unroll
          for (int k = 0; k < 4; ++k)
            column[k] = at + 32 * k + lane < count ? __ldg(list + at + 32 * k + lane) - first_column : -1;
#pragma unroll
          for (int k = 0; k < 4; ++k)
            if (column[k] >= 0 && column[k] < kColumns) body(row, column[k], begins + at + 32 * k + lane);
          if (__shfl_sync(kAll, column[0], 0) >= kColumns) break;
        }
      }
    };
    for_squares(
        [&](int row, int column, int) { atomicOr(&bits[column][row / 32], uint32_t{1} << (row % 32)); });
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kColumnsOfWarp; ++k) {
      const int own_bits = __popc(bits[warp + k * kWarps][lane]);
      int before = own_bits;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(kAll, before, step);
        if (lane >= step) before += other;
      }
      if constexpr (kPass != Pass::kCount) places[warp + k * kWarps][lane] = done[k] + before - own_bits;
      done[k] += __shfl_sync(kAll, before, 31);
    }
    __syncthreads();
    if constexpr (kPass != Pass::kCount) {
      for_squares([&](int row, int column, int place) {
        const uint32_t before = bits[column][row / 32] & ((uint32_t{1} << (row % 32)) - 1);
        const int to = places[column][row / 32] + __popc(before);
        p.rows[to] = first_row + row;
        if (p.places) p.places[to] = place;
      });
      __syncthreads();
    }
  }
  if constexpr (kPass == Pass::kWrite) return;
#pragma unroll
  for (int k = 0; k < kColumnsOfWarp; ++k) {
    const int column = first_column + warp + k * kWarps;
    if (lane == 0 && column < key_groups) p.count[head * key_groups + column] = done[k] - begin[k];
  }
}

template <Pass kPass>
cudaError_t start(const SquareTransposeParams& p, Stream stream) {
  const int64_t blocks = p.heads * ((p.key_groups + kColumns - 1) / kColumns);
  if (blocks == 0) return cudaSuccess;
  launch(transpose_squares<kPass>, static_cast<unsigned>(blocks), kWarps * 32,
         static_cast<cudaStream_t>(stream), p);
  return cudaGetLastError();
}

}  // namespace

int launch_count_squares(const SquareTransposeParams& params, Stream stream) {
  return start<Pass::kCount>(params, stream);
}
int launch_transpose_squares(const SquareTransposeParams& params, Stream stream) {
  return params.has_room ? start<Pass::kBoth>(params, stream) : start<Pass::kWrite>(params, stream);
}

}  // namespace edgewise::kernels::cuda
