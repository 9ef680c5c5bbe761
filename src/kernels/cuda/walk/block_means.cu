// Means of the nodes of each block of keys, over those that are open: what a walk in blocks chooses among
// first.
#include "kernels/cuda/walk/walk_common.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kMeanWarps = 8;

__global__ void __launch_bounds__(32 * kMeanWarps) block_means(const __grid_constant__ BlockMeanParams p) {
  __shared__ float sums[kMeanWarps][P];
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x / 32), block = static_cast<int>(blockIdx.x),
            unit = static_cast<int>(blockIdx.y);
  const int begin = block * p.block, end = min(begin + p.block, p.keys);
  const int32_t* const before =
      p.open_before ? p.open_before + static_cast<int64_t>(unit / p.groups) * (p.keys + 1) : nullptr;
  float sum = 0;
#pragma unroll 8
  for (int j = begin + warp; j < end; j += kMeanWarps)
    if (!before || before[j + 1] != before[j])
      sum += p.key_nodes[(static_cast<int64_t>(unit) * p.keys + j) * P + lane];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0) return;
  for (int w = 1; w < kMeanWarps; ++w) sum += sums[w][lane];
  const int count = before ? before[end] - before[begin] : end - begin;
  p.means[(static_cast<int64_t>(unit) * p.blocks + block) * P + lane] =
      sum / static_cast<float>(max(count, 1));
}

}  // namespace

int launch_block_means(const BlockMeanParams& p, Stream given) {
  if (p.batch * p.groups == 0 || p.blocks == 0) return cudaSuccess;
  block_means<<<dim3(static_cast<unsigned>(p.blocks), static_cast<unsigned>(p.batch * p.groups)),
                32 * kMeanWarps, 0, static_cast<cudaStream_t>(given)>>>(p);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
