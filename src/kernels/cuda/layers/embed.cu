// The embedding of tokens and of their places, in one pass over memory, and the gradients of both tables:
//
//   x[t] = dropout(table[ids[t]] + places[positions[t]]),  d table[v] = sum of dx[t] over ids[t] = v
//
// The gradient has no atomics: the tokens are dealt out to parts, in each of which a thread block sums into a
// table in shared memory. A warp owns the rows v with v % 8 = its number, so nobody else adds to them, and
// takes its tokens in ascending order; the parts are then added in ascending order. So a run repeats bit for
// bit.
#include <cstdio>

#include "kernels/cuda/device/dropout_numbers.cuh"
#include "kernels/cuda/layers/row_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRows = 256, kColumns = 64;  // of a table in shared memory: 64 KiB
constexpr int kTableBytes = kRows * kColumns * static_cast<int>(sizeof(float));

__device__ void refuse(const char* what, int64_t found, int64_t rows) {
  printf("edgewise: embed: expected %s in [0, %lld); found %lld\n", what, static_cast<long long>(rows),
         static_cast<long long>(found));
  __trap();
}

__global__ void __launch_bounds__(kThreads) embed(const __grid_constant__ EmbedParams p) {
  const int64_t eight = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, first = eight * kTogether;
  if (first >= p.tokens * p.dim) return;
  const int64_t token = first / p.dim, column = first % p.dim, id = p.ids[token];
  if (id < 0 || id >= p.vocabulary) refuse("token ids", id, p.vocabulary);
  auto x = *reinterpret_cast<const Eight<float>*>(p.table + id * p.dim + column);
  if (p.places) {
    const int64_t place = p.positions ? p.positions[token] : token % p.length;
    if (place < 0 || place >= p.most_places) refuse("positions", place, p.most_places);
    const auto at = *reinterpret_cast<const Eight<float>*>(p.places + place * p.dim + column);
#pragma unroll
    for (int n = 0; n < kTogether; ++n) x.element[n] += at.element[n];
  }
  if (p.limit > 0) {
    const Keep keep = keep_of(eight, p.limit, p.stream);
#pragma unroll
    for (int n = 0; n < kTogether; ++n) x.element[n] = keep(n, x.element[n]);
  }
  reinterpret_cast<Eight<float>*>(p.x)[eight] = x;
}

__global__ void __launch_bounds__(kThreads) embed_grad(const __grid_constant__ EmbedGradParams p) {
  extern __shared__ float table[];  // [kRows, kColumns]
  constexpr int kAtOnce = 4;        // rows on their way
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows, column = blockIdx.z * kColumns;
  const int rows = static_cast<int>(min(p.rows - first_row, static_cast<int64_t>(kRows)));
  for (int n = threadIdx.x; n < rows * kColumns; n += kThreads) table[n] = 0;
  __syncthreads();
  const int64_t begin = p.tokens * blockIdx.x / p.parts, end = p.tokens * (blockIdx.x + 1) / p.parts;
  const bool has_columns = column + lane * 2 < p.dim;
  const float* from = p.x_grad + column + lane * 2;
  float* to = table + lane * 2;
  for (int64_t start = begin; start < end; start += 32) {
    const int64_t row = start + lane < end ? p.ids[start + lane] - first_row : -1;
    uint32_t left = __ballot_sync(~0u, row >= 0 && row < rows && row % kWarps == warp);
    while (left != 0) {
      float2 value[kAtOnce];
      int where[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const int at = left != 0 ? __ffs(static_cast<int>(left)) - 1 : 0;
        where[n] = left != 0 ? static_cast<int>(__shfl_sync(~0u, row, at)) : -1;
        if (where[n] >= 0 && has_columns)
          value[n] = *reinterpret_cast<const float2*>(from + (start + at) * p.dim);
        left &= left - 1;  // 0 stays 0
      }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        if (where[n] < 0 || !has_columns) continue;
        auto* sum = reinterpret_cast<float2*>(to + where[n] * kColumns);
        const float2 old = *sum;
        *sum = {old.x + value[n].x, old.y + value[n].y};
      }
    }
  }
  __syncthreads();
  float* sums = p.sums + (static_cast<int64_t>(blockIdx.x) * p.rows + first_row) * p.dim + column;
  for (int n = threadIdx.x; n < rows * kColumns; n += kThreads)
    if (column + n % kColumns < p.dim)
      sums[static_cast<int64_t>(n / kColumns) * p.dim + n % kColumns] = table[n];
}

__device__ float4 plus(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// result[i] = sum over s < many of from[s, i], four numbers a thread; [many, fours].
__global__ void add_up(const float4* from, int64_t many, int64_t fours, float4* result) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= fours) return;
  float4 sum = {0, 0, 0, 0};
#pragma unroll 8
  for (int64_t s = 0; s < many; ++s) sum = plus(sum, from[s * fours + n]);
  result[n] = sum;
}

int launch_add_up(const float* from, int64_t many, int64_t numbers, float* result, cudaStream_t queue) {
  constexpr int kSmall = 64;  // few sums: as many SMs as there are
  const int64_t fours = numbers / 4;
  add_up<<<static_cast<uint32_t>((fours + kSmall - 1) / kSmall), kSmall, 0, queue>>>(
      reinterpret_cast<const float4*>(from), many, fours, reinterpret_cast<float4*>(result));
  return cudaGetLastError();
}

}  // namespace

int launch_embed(const EmbedParams& p, Stream stream) {
  if (p.dim % kTogether != 0) return cudaErrorInvalidValue;
  const int64_t eights = p.tokens * p.dim / kTogether;
  if (eights == 0) return cudaSuccess;
  embed<<<static_cast<uint32_t>((eights + kThreads - 1) / kThreads), kThreads, 0,
          static_cast<cudaStream_t>(stream)>>>(p);
  return cudaGetLastError();
}

int launch_embed_grad(const EmbedGradParams& p, Stream stream) {
  if (p.dim % kTogether != 0 || p.rows == 0 || p.parts == 0) return cudaErrorInvalidValue;
  const auto queue = static_cast<cudaStream_t>(stream);
  const auto allowed =
      cudaFuncSetAttribute(embed_grad, cudaFuncAttributeMaxDynamicSharedMemorySize, kTableBytes);
  if (allowed != cudaSuccess) return allowed;
  const dim3 grid(static_cast<uint32_t>(p.parts), static_cast<uint32_t>((p.rows + kRows - 1) / kRows),
                  static_cast<uint32_t>((p.dim + kColumns - 1) / kColumns));
  embed_grad<<<grid, kThreads, kTableBytes, queue>>>(p);
  if (const auto error = cudaGetLastError(); error != cudaSuccess) return error;
  return launch_add_up(p.sums, p.parts, p.rows * p.dim, p.result, queue);
}

int launch_place_grad(const PlaceGradParams& p, Stream stream) {
  if (p.dim % 4 != 0) return cudaErrorInvalidValue;
  if (p.length == 0) return cudaSuccess;
  return launch_add_up(p.x_grad, p.items, p.length * p.dim, p.result, static_cast<cudaStream_t>(stream));
}

}  // namespace edgewise::kernels::cuda
