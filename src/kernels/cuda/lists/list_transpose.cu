// A list of edges by queries (CSR) -> the same edges by keys (CSC), rows of every key ascending.
//
// Edges are counted per key, the counts added up, and every edge takes the next free place of its key, by
// integer atomics, in no fixed order. Then each key's rows are sorted: they differ, so what comes out is
// always the same. Up to kWarpRows of them a warp sorts in shared memory (bitonic). The keys with more go to
// a list; of these a block marks the rows as bits and reads the bits off in order, a range of rows at a time.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/lists/list_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kBlockThreads = 512, kBlockWords = 8192, kBlockRows = 32 * kBlockWords;  // of a range
constexpr int kBlocks = 264;                                                           // two an SM

// The edges of one row to a warp: visit(column of the head).
template <typename Visit>
__device__ void for_row_edges(const ListTransposeParams& p, int64_t row, int lane, const Visit& visit) {
  for (int64_t edge = p.row_offsets[row] + lane; edge < p.row_offsets[row + 1]; edge += 32) {
    const int column = p.columns[edge];
    if (column >= 0 && column < p.shape.keys) visit(column);
  }
}
__device__ int64_t warp_number() {
  return (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
}

__global__ void count_keys(const __grid_constant__ ListTransposeParams p) {
  const int64_t row = warp_number();
  if (row >= p.shape.batch * p.shape.heads * p.shape.queries) return;
  int32_t* const counts = p.counts + row / p.shape.queries * p.shape.keys;
  for_row_edges(p, row, threadIdx.x % 32, [&](int column) { atomicAdd(counts + column, 1); });
}

// Counts down what count_keys counted up.
__global__ void place_rows(const __grid_constant__ ListTransposeParams p) {
  const int64_t row = warp_number();
  if (row >= p.shape.batch * p.shape.heads * p.shape.queries) return;
  const int64_t first = row / p.shape.queries * p.shape.keys;
  const int token = static_cast<int>(row % p.shape.queries);
  for_row_edges(p, row, threadIdx.x % 32, [&](int column) {
    const int left = atomicAdd(p.counts + first + column, -1);
    p.rows[p.key_offsets[first + column] + left - 1] = token;
  });
}

// Sorts `size` numbers, a power of two, in shared memory; all lanes of a warp take part.
__device__ void sort_in_warp(int32_t* numbers, int size, int lane) {
  for (int run = 2; run <= size; run *= 2)
    for (int step = run / 2; step; step /= 2) {
      for (int n = lane; n < size / 2; n += 32) {
        const int low = n / step * step * 2 + n % step, high = low + step;
        const int32_t a = numbers[low], b = numbers[high];
        if ((a > b) == ((low & run) == 0)) numbers[low] = b, numbers[high] = a;
      }
      __syncwarp();
    }
}

__global__ void __launch_bounds__(kWarps * 32) sort_keys(const __grid_constant__ ListTransposeParams p) {
  __shared__ int32_t shared[kWarps][kWarpRows];
  const int64_t key = warp_number();
  if (key >= p.shape.batch * p.shape.heads * p.shape.keys) return;
  const int64_t begin = p.key_offsets[key], degree = p.key_offsets[key + 1] - begin;
  const int lane = threadIdx.x % 32;
  if (degree < 2) return;
  if (degree > kWarpRows) {
    if (lane == 0) p.long_keys[atomicAdd(p.long_count, 1)] = key;
    return;
  }
  int32_t *const numbers = shared[threadIdx.x / 32], *const rows = p.rows + begin;
  int size = 2;
  while (size < degree) size *= 2;
  for (int n = lane; n < size; n += 32) numbers[n] = n < degree ? rows[n] : INT32_MAX;
  __syncwarp();
  sort_in_warp(numbers, size, lane);
  for (int n = lane; n < degree; n += 32) rows[n] = numbers[n];
}

// From `from` to `to`, both with room for the key's rows, which differ and are below `queries`.
__device__ void sort_by_bits(const int32_t* from, int32_t* to, int64_t degree, int64_t queries,
                             uint32_t (&bits)[kBlockWords], int (&sums)[kBlockThreads]) {
  constexpr int kPer = kBlockWords / kBlockThreads;  // words of a thread, neighbours
  int64_t written = 0;
  for (int64_t range = 0; range < queries; range += kBlockRows) {
    for (int n = threadIdx.x; n < kBlockWords; n += kBlockThreads) bits[n] = 0;
    __syncthreads();
    for (int64_t n = threadIdx.x; n < degree; n += kBlockThreads) {
      const int64_t row = from[n] - range;
      if (row >= 0 && row < kBlockRows) atomicOr(bits + row / 32, 1u << (row % 32));
    }
    __syncthreads();
    int mine = 0;
    for (int n = 0; n < kPer; ++n) mine += __popc(bits[threadIdx.x * kPer + n]);
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (int step = 1; step < kBlockThreads; step *= 2) {
      const int before = static_cast<int>(threadIdx.x) >= step ? sums[threadIdx.x - step] : 0;
      __syncthreads();
      sums[threadIdx.x] += before;
      __syncthreads();
    }
    int64_t at = written + sums[threadIdx.x] - mine;
    for (int n = 0; n < kPer; ++n) {
      const int word = threadIdx.x * kPer + n;
      for (uint32_t rest = bits[word]; rest; rest &= rest - 1)
        to[at++] = static_cast<int32_t>(range + word * 32 + __ffs(static_cast<int>(rest)) - 1);
    }
    written += sums[kBlockThreads - 1];
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    sort_long_keys(const __grid_constant__ ListTransposeParams p) {
  __shared__ uint32_t bits[kBlockWords];
  __shared__ int sums[kBlockThreads];
  const int count = *p.long_count;
  for (int n = blockIdx.x; n < count; n += gridDim.x) {
    const int64_t key = p.long_keys[n], begin = p.key_offsets[key], degree = p.key_offsets[key + 1] - begin;
    sort_by_bits(p.rows + begin, p.spare + begin, degree, p.shape.queries, bits, sums);
    for (int64_t row = threadIdx.x; row < degree; row += kBlockThreads)
      p.rows[begin + row] = p.spare[begin + row];
    __syncthreads();
  }
}

unsigned blocks_of(int64_t warps) {
  return static_cast<unsigned>((warps + kWarps - 1) / kWarps);
}

}  // namespace

int launch_count_keys(const ListTransposeParams& p, Stream stream) {
  if (p.shape.words() == 0) return cudaSuccess;
  launch(count_keys, blocks_of(p.shape.batch * p.shape.heads * p.shape.queries), kWarps * 32,
         static_cast<cudaStream_t>(stream), p);
  return cudaGetLastError();
}

int launch_list_transpose(const ListTransposeParams& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  if (p.shape.words() == 0) return cudaSuccess;
  launch(place_rows, blocks_of(p.shape.batch * p.shape.heads * p.shape.queries), kWarps * 32, stream, p);
  launch(sort_keys, blocks_of(p.shape.batch * p.shape.heads * p.shape.keys), kWarps * 32, stream, p);
  launch(sort_long_keys, kBlocks, kBlockThreads, stream, p);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
