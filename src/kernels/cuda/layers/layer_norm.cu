// Layer norm over rows of 32 to 1024 numbers, forward and backward:
//
//   xhat = (x - mean) rstd,  y = xhat w + b
//   dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = w dy;  dw = sum over rows of dy xhat,  db = sum of
//   dy
//
// A row belongs to a group of 8, 16 or 32 lanes, each of which holds four neighbouring numbers, one to eight
// times: rows of the models here are short (64 numbers in the Long Range Arena), and a thread block a row, as
// torch has it, then spends its time on exchanges between warps.
#include <cuda_bf16.h>

#include "kernels/cuda/layers/row_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <int kLanes>
__device__ float group_sum(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

__device__ float4 load4(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ float4 load4(const Bf16* from) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  return {__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xFFFF0000u), __uint_as_float(bits.y << 16),
          __uint_as_float(bits.y & 0xFFFF0000u)};
}
__device__ void store4(float* to, float4 value) {
  *reinterpret_cast<float4*>(to) = value;
}
__device__ void store4(Bf16* to, float4 value) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(value.x, value.y),
                       high = __floats2bfloat162_rn(value.z, value.w);
  *reinterpret_cast<uint2*>(to) = {*reinterpret_cast<const uint32_t*>(&low),
                                   *reinterpret_cast<const uint32_t*>(&high)};
}

__device__ float sum4(float4 v) {
  return (v.x + v.y) + (v.z + v.w);
}

// kLanes lanes a row, kTimes times four numbers a lane: D = 4 kLanes kTimes.
template <typename Out, int kLanes, int kTimes>
__global__ void __launch_bounds__(kThreads) layer_norm(const __grid_constant__ LayerNormParams<Out> p) {
  constexpr int kDim = 4 * kLanes * kTimes, kRows = kThreads / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kLanes;
  const int64_t read = min(row, p.rows - 1);  // all lanes of a warp take part in its sums
  float4 x[kTimes];
  float sum = 0;
#pragma unroll
  for (int n = 0; n < kTimes; ++n) {
    x[n] = load4(p.x + read * kDim + (n * kLanes + lane) * 4);
    sum += sum4(x[n]);
  }
  const float mean = group_sum<kLanes>(sum) / kDim;
  float squares = 0;
#pragma unroll
  for (int n = 0; n < kTimes; ++n) {
    x[n] = {x[n].x - mean, x[n].y - mean, x[n].z - mean, x[n].w - mean};
    squares += (x[n].x * x[n].x + x[n].y * x[n].y) + (x[n].z * x[n].z + x[n].w * x[n].w);
  }
  const float rstd = rsqrtf(group_sum<kLanes>(squares) / kDim + p.eps);
  if (row >= p.rows) return;
  const bool is_valid = !p.mask || p.mask[row];
#pragma unroll
  for (int n = 0; n < kTimes; ++n) {
    const int column = (n * kLanes + lane) * 4;
    if (!is_valid) {  // not a product with 0: whatever padding computed, even infinity, becomes 0
      store4(p.y + row * kDim + column, {0, 0, 0, 0});
      continue;
    }
    const float4 w = load4(p.weight + column), b = load4(p.bias + column);
    store4(p.y + row * kDim + column, {x[n].x * rstd * w.x + b.x, x[n].y * rstd * w.y + b.y,
                                       x[n].z * rstd * w.z + b.z, x[n].w * rstd * w.w + b.w});
  }
  if (lane == 0) {
    p.mean[row] = mean;
    p.rstd[row] = rstd;
  }
}

// Thread block b has rows b, b + parts, ... in groups; a lane always has the same columns, so that their sums
// for weight and bias stay in its registers until the end.
template <typename Grad, int kLanes, int kTimes>
__global__ void __launch_bounds__(kThreads)
    layer_norm_grad(const __grid_constant__ LayerNormGradParams<Grad> p) {
  constexpr int kDim = 4 * kLanes * kTimes, kRows = kThreads / kLanes;
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  float4 w[kTimes], weight_sum[kTimes] = {}, bias_sum[kTimes] = {};
#pragma unroll
  for (int n = 0; n < kTimes; ++n) w[n] = load4(p.weight + (n * kLanes + lane) * 4);

  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRows;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  for (int64_t start = first; start < p.rows; start += stride) {
    const int64_t row = start + group;
    const bool is_row = row < p.rows;
    const int64_t read = is_row ? row : p.rows - 1;
    const bool is_valid = is_row && (!p.mask || p.mask[read]);
    const float mean = is_valid ? p.mean[read] : 0, rstd = is_valid ? p.rstd[read] : 0;
    float4 hat[kTimes], g[kTimes];
    float sum = 0, dot = 0;
#pragma unroll
    for (int n = 0; n < kTimes; ++n) {
      const int64_t at = read * kDim + (n * kLanes + lane) * 4;
      float4 x = load4(p.x + at), dy = load4(p.y_grad + at);
      if (!is_valid) {
        x = {0, 0, 0, 0};
        dy = {0, 0, 0, 0};
      }
      hat[n] = {(x.x - mean) * rstd, (x.y - mean) * rstd, (x.z - mean) * rstd, (x.w - mean) * rstd};
      bias_sum[n] = {bias_sum[n].x + dy.x, bias_sum[n].y + dy.y, bias_sum[n].z + dy.z, bias_sum[n].w + dy.w};
      weight_sum[n] = {weight_sum[n].x + dy.x * hat[n].x, weight_sum[n].y + dy.y * hat[n].y,
                       weight_sum[n].z + dy.z * hat[n].z, weight_sum[n].w + dy.w * hat[n].w};
      g[n] = {dy.x * w[n].x, dy.y * w[n].y, dy.z * w[n].z, dy.w * w[n].w};
      sum += sum4(g[n]);
      dot += (g[n].x * hat[n].x + g[n].y * hat[n].y) + (g[n].z * hat[n].z + g[n].w * hat[n].w);
    }
    const float mean_g = group_sum<kLanes>(sum) / kDim, mean_dot = group_sum<kLanes>(dot) / kDim;
    if (!is_row) continue;
#pragma unroll
    for (int n = 0; n < kTimes; ++n)
      store4(
          p.x_grad + row * kDim + (n * kLanes + lane) * 4,
          {rstd * (g[n].x - mean_g - hat[n].x * mean_dot), rstd * (g[n].y - mean_g - hat[n].y * mean_dot),
           rstd * (g[n].z - mean_g - hat[n].z * mean_dot), rstd * (g[n].w - mean_g - hat[n].w * mean_dot)});
  }

  // The groups of the thread block, one after the other: the same order in every run.
  __shared__ alignas(16) float sums[2][kDim];
  for (int turn = 0; turn < kRows; ++turn) {
    if (turn == group) {
#pragma unroll
      for (int n = 0; n < kTimes; ++n) {
        const int column = (n * kLanes + lane) * 4;
        float4 weight = weight_sum[n], bias = bias_sum[n];
        if (turn > 0) {
          const float4 a = load4(sums[0] + column), b = load4(sums[1] + column);
          weight = {weight.x + a.x, weight.y + a.y, weight.z + a.z, weight.w + a.w};
          bias = {bias.x + b.x, bias.y + b.y, bias.z + b.z, bias.w + b.w};
        }
        store4(sums[0] + column, weight);
        store4(sums[1] + column, bias);
      }
    }
    __syncthreads();
  }
  for (int n = threadIdx.x; n < 2 * kDim; n += kThreads)
    p.parts[static_cast<int64_t>(blockIdx.x) * 2 * kDim + n] = sums[n / kDim][n % kDim];
}

// A warp a column of weight and bias.
__global__ void sum_parts(const float* parts, int dim, float* weight_grad, float* bias_grad) {
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (column >= 2 * dim) return;
  float sum = 0;
  for (int part = lane; part < kLayerNormParts; part += 32) sum += parts[part * 2 * dim + column];
  sum = group_sum<32>(sum);
  if (lane == 0) (column < dim ? weight_grad[column] : bias_grad[column - dim]) = sum;
}

// Calls run<kLanes, kTimes>() for this row length.
template <typename Run>
void for_dim(int64_t dim, const Run& run) {
  switch (dim) {
    case 32:
      return run.template operator()<8, 1>();
    case 64:
      return run.template operator()<16, 1>();
    case 128:
      return run.template operator()<32, 1>();
    case 256:
      return run.template operator()<32, 2>();
    case 512:
      return run.template operator()<32, 4>();
    case 1024:
      return run.template operator()<32, 8>();
    default:
      return;
  }
}

}  // namespace

bool layer_norm_takes(int64_t dim) {
  bool takes = false;
  for_dim(dim, [&]<int kLanes, int kTimes>() { takes = true; });
  return takes;
}

template <typename Out>
int launch_layer_norm(const LayerNormParams<Out>& p, Stream stream) {
  if (p.rows == 0) return cudaSuccess;
  if (!layer_norm_takes(p.dim)) return cudaErrorInvalidValue;
  for_dim(p.dim, [&]<int kLanes, int kTimes>() {
    constexpr int kRows = kThreads / kLanes;
    layer_norm<Out, kLanes, kTimes><<<static_cast<uint32_t>((p.rows + kRows - 1) / kRows), kThreads, 0,
                                      static_cast<cudaStream_t>(stream)>>>(p);
  });
  return cudaGetLastError();
}

template <typename Grad>
int launch_layer_norm_grad(const LayerNormGradParams<Grad>& p, Stream stream) {
  if (p.rows == 0 || !layer_norm_takes(p.dim)) return cudaErrorInvalidValue;
  const auto queue = static_cast<cudaStream_t>(stream);
  for_dim(p.dim, [&]<int kLanes, int kTimes>() {
    layer_norm_grad<Grad, kLanes, kTimes><<<kLayerNormParts, kThreads, 0, queue>>>(p);
  });
  sum_parts<<<static_cast<uint32_t>((2 * p.dim * 32 + kThreads - 1) / kThreads), kThreads, 0, queue>>>(
      p.parts, static_cast<int>(p.dim), p.weight_grad, p.bias_grad);
  return cudaGetLastError();
}

template int launch_layer_norm(const LayerNormParams<float>&, Stream);
template int launch_layer_norm(const LayerNormParams<Bf16>&, Stream);
template int launch_layer_norm_grad(const LayerNormGradParams<float>&, Stream);
template int launch_layer_norm_grad(const LayerNormGradParams<Bf16>&, Stream);

}  // namespace edgewise::kernels::cuda
