// The largest key side of every head and cluster: what the bounds of thinning are made of.
#pragma once

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/sample/thin_rows.cuh"

namespace edgewise::kernels::cuda {
namespace {

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
    alignas(16) T loaded[kStep];
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

template <typename T, int C>
void launch_key_tops(const TileSampleParams& p, const Sides<T>& sides, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((p.shape.keys + kTopKeys - 1) / kTopKeys),
                  static_cast<unsigned>(p.shape.batch * p.shape.heads));
  launch(key_tops<T, C>, grid, 256, stream, p, sides.key);
}

}  // namespace
}  // namespace edgewise::kernels::cuda
