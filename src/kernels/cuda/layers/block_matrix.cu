// The block matrix of an SBM, S = softmax(M M^T) over all C^2 numbers of a head, and the gradient that it
// sends to the clusters M: with the gradient G of the logits, (G + G^T) M. A thread block has a head.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/layers/membership_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kClusters = kMembershipClusters, kSquare = kClusters * kClusters;
constexpr int kThreads = 256, kEach = kSquare / kThreads;  // numbers of S of a thread
template <int W>
using Matrix = float[kClusters][W + 1];  // so that rows begin in different banks

template <int D>
__device__ void load(Matrix<D>& matrix, const float* from) {
  for (int n = threadIdx.x; n < kClusters * D; n += kThreads) matrix[n / D][n % D] = from[n];
}

// The largest, or the sum, of what all threads have.
template <bool kLargest>
__device__ float of_all(float value, float (&of_warps)[kThreads / 32]) {
  const auto both = [](float a, float b) { return kLargest ? fmaxf(a, b) : a + b; };
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = both(value, __shfl_xor_sync(~0u, value, step));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) value = both(value, of_warps[w]);
  __syncthreads();
  return value;
}

template <int D>
__global__ void __launch_bounds__(kThreads) block_matrix(const __grid_constant__ BlockMatrixParams p) {
  __shared__ Matrix<D> clusters;
  __shared__ float of_warps[kThreads / 32];
  load<D>(clusters, p.clusters + blockIdx.x * kClusters * D);
  __syncthreads();
  float numbers[kEach], largest = -INFINITY, sum = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int at = threadIdx.x + k * kThreads;
    numbers[k] = 0;
#pragma unroll
    for (int d = 0; d < D; ++d) numbers[k] += clusters[at / kClusters][d] * clusters[at % kClusters][d];
    largest = fmaxf(largest, numbers[k]);
  }
  largest = of_all<true>(largest, of_warps);
#pragma unroll
  for (float& x : numbers) sum += x = expf(x - largest);
  sum = of_all<false>(sum, of_warps);
#pragma unroll
  for (int k = 0; k < kEach; ++k)
    p.blocks[blockIdx.x * kSquare + threadIdx.x + k * kThreads] = numbers[k] / sum;
}

template <int D>
__global__ void __launch_bounds__(kThreads)
    block_matrix_grad(const __grid_constant__ BlockMatrixGradParams p) {
  __shared__ Matrix<D> clusters;
  __shared__ Matrix<kClusters> logits;  // their gradient
  __shared__ float of_warps[kThreads / 32];
  const float* const grads = p.grads + blockIdx.x * p.grad_stride;
  load<D>(clusters, p.clusters + blockIdx.x * kClusters * D);
  float blocks[kEach], block_grads[kEach], sum = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int at = threadIdx.x + k * kThreads;
    blocks[k] = p.blocks[blockIdx.x * kSquare + at];
    block_grads[k] = grads[kClusters * D + at];
    sum += blocks[k] * block_grads[k];
  }
  sum = of_all<false>(sum, of_warps);
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int at = threadIdx.x + k * kThreads;
    logits[at / kClusters][at % kClusters] = blocks[k] * (block_grads[k] - sum);
  }
  __syncthreads();
  for (int at = threadIdx.x; at < kClusters * D; at += kThreads) {
    const int row = at / D, column = at % D;
    float grad = grads[at];
#pragma unroll
    for (int c = 0; c < kClusters; ++c) grad += (logits[row][c] + logits[c][row]) * clusters[c][column];
    p.cluster_grad[blockIdx.x * kClusters * D + at] = grad;
  }
}

}  // namespace

int launch_block_matrix(const BlockMatrixParams& p, Stream stream) {
  if (p.heads == 0) return cudaSuccess;
  if (!takes_membership_dim(p.dim)) return cudaErrorInvalidValue;
  launch(p.dim == 32 ? block_matrix<32> : block_matrix<64>, dim3(static_cast<unsigned>(p.heads)), kThreads,
         static_cast<cudaStream_t>(stream), p);
  return cudaGetLastError();
}

int launch_block_matrix_grad(const BlockMatrixGradParams& p, Stream stream) {
  if (p.heads == 0) return cudaSuccess;
  if (!takes_membership_dim(p.dim)) return cudaErrorInvalidValue;
  launch(p.dim == 32 ? block_matrix_grad<32> : block_matrix_grad<64>, dim3(static_cast<unsigned>(p.heads)),
         kThreads, static_cast<cudaStream_t>(stream), p);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
