// The end of a branch of a layer in one pass over memory: y = x + dropout(update), and the gradient of the
// update with the same elements dropped.
#include "kernels/cuda/device/dropout_numbers.cuh"
#include "kernels/cuda/layers/row_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <typename Update>
__global__ void dropped_add(const __grid_constant__ DroppedAddParams<Update> p) {
  const int64_t eight = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, first = eight * kTogether;
  if (first >= p.elements) return;
  const Keep keep = keep_of(eight, p.limit, p.stream);
  if (first + kTogether <= p.elements) {
    Eight<float> x = reinterpret_cast<const Eight<float>*>(p.x)[eight];
    const Eight<Update> update = reinterpret_cast<const Eight<Update>*>(p.update)[eight];
#pragma unroll
    for (int n = 0; n < kTogether; ++n) x.element[n] += keep(n, read(update.element[n]));
    reinterpret_cast<Eight<float>*>(p.y)[eight] = x;
  } else {
    for (int n = 0; first + n < p.elements; ++n)
      p.y[first + n] = p.x[first + n] + keep(n, read(p.update[first + n]));
  }
}

template <typename Update>
__global__ void dropped_grad(const __grid_constant__ DroppedGradParams<Update> p) {
  const int64_t eight = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, first = eight * kTogether;
  if (first >= p.elements) return;
  const Keep keep = keep_of(eight, p.limit, p.stream);
  if (first + kTogether <= p.elements) {
    const Eight<float> grad = reinterpret_cast<const Eight<float>*>(p.y_grad)[eight];
    Eight<Update> result;
#pragma unroll
    for (int n = 0; n < kTogether; ++n) write(result.element[n], keep(n, grad.element[n]));
    reinterpret_cast<Eight<Update>*>(p.update_grad)[eight] = result;
  } else {
    for (int n = 0; first + n < p.elements; ++n)
      write(p.update_grad[first + n], keep(n, p.y_grad[first + n]));
  }
}

uint32_t blocks_of(int64_t elements) {
  constexpr int64_t kBlock = kThreads * kTogether;
  return static_cast<uint32_t>((elements + kBlock - 1) / kBlock);
}

}  // namespace

template <typename Update>
int launch_dropped_add(const DroppedAddParams<Update>& p, Stream stream) {
  if (p.elements == 0) return cudaSuccess;
  dropped_add<Update><<<blocks_of(p.elements), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p);
  return cudaGetLastError();
}

template <typename Update>
int launch_dropped_grad(const DroppedGradParams<Update>& p, Stream stream) {
  if (p.elements == 0) return cudaSuccess;
  dropped_grad<Update><<<blocks_of(p.elements), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p);
  return cudaGetLastError();
}

template int launch_dropped_add(const DroppedAddParams<float>&, Stream);
template int launch_dropped_add(const DroppedAddParams<Bf16>&, Stream);
template int launch_dropped_grad(const DroppedGradParams<float>&, Stream);
template int launch_dropped_grad(const DroppedGradParams<Bf16>&, Stream);

}  // namespace edgewise::kernels::cuda
