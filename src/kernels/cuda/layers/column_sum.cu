// Sums over the rows of a matrix: the gradient of a bias. A lane always has the same eight columns, so that
// their sums stay in its registers; thread blocks and their groups are added in a fixed order.
#include "kernels/cuda/device/eight.cuh"
#include "kernels/cuda/layers/row_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kThreads = 256, kColumns = 2048;  // of one thread block at most

template <typename T>
__global__ void __launch_bounds__(kThreads) column_parts(const __grid_constant__ ColumnSumParams<T> p) {
  __shared__ float sums[kThreads * kTogether];
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kColumns;
  const int columns = static_cast<int>(min(p.columns - first, static_cast<int64_t>(kColumns)));
  const int lanes = columns / kTogether, groups = kThreads / lanes;
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
  float sum[kTogether] = {};
  if (group < groups) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * groups;
#pragma unroll 4
    for (int64_t row = static_cast<int64_t>(blockIdx.x) * groups + group; row < p.rows; row += stride) {
      const auto x = *reinterpret_cast<const Eight<T>*>(p.x + row * p.columns + first + lane * kTogether);
#pragma unroll
      for (int n = 0; n < kTogether; ++n) sum[n] += read(x.element[n]);
    }
#pragma unroll
    for (int n = 0; n < kTogether; ++n) sums[group * columns + lane * kTogether + n] = sum[n];
  }
  __syncthreads();
  for (int column = threadIdx.x; column < columns; column += kThreads) {
    float all = 0;
    for (int g = 0; g < groups; ++g) all += sums[g * columns + column];
    p.parts[blockIdx.x * p.columns + first + column] = all;
  }
}

// A warp a column.
__global__ void add_parts(const float* parts, int64_t columns, float* sum) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (column >= columns) return;
  float all = 0;
  for (int part = lane; part < kColumnParts; part += 32) all += parts[part * columns + column];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) all += __shfl_xor_sync(~0u, all, step);
  if (lane == 0) sum[column] = all;
}

}  // namespace

template <typename T>
int launch_column_sum(const ColumnSumParams<T>& p, Stream stream) {
  if (p.columns == 0 || p.columns % kTogether != 0) return cudaErrorInvalidValue;
  const auto queue = static_cast<cudaStream_t>(stream);
  const dim3 grid(kColumnParts, static_cast<uint32_t>((p.columns + kColumns - 1) / kColumns));
  column_parts<T><<<grid, kThreads, 0, queue>>>(p);
  add_parts<<<static_cast<uint32_t>((p.columns * 32 + kThreads - 1) / kThreads), kThreads, 0, queue>>>(
      p.parts, p.columns, p.sum);
  return cudaGetLastError();
}

template int launch_column_sum(const ColumnSumParams<float>&, Stream);
template int launch_column_sum(const ColumnSumParams<Bf16>&, Stream);

}  // namespace edgewise::kernels::cuda
