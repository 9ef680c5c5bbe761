// The end of a branch of a layer in one pass over memory: y = x + dropout(update), and the gradient of the
// update with the same elements dropped. Element e has the e % 8-th 16 bits of Philox(e / 8, offset; seed):
// nothing is kept for the backward pass.
#include <cuda_bf16.h>

#include "kernels/cuda/row_params.h"
#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kThreads = 256, kTogether = 8;  // elements a thread
constexpr uint32_t kDropoutLane = 12;         // beside the lanes of philox.h and pair_numbers.h

struct Keep {
  PairWords words;
  uint32_t limit;
  float scale;

  __device__ float operator()(int n, float value) const {
    const uint32_t number = words.word[n / 2] >> (n % 2 * 16) & 0xFFFFu;
    return number < limit ? 0.0f : value * scale;
  }
};
__device__ Keep keep_of(int64_t eight, uint32_t limit, const DropoutStream& stream) {
  Keep keep{{}, limit, 65536.0f / static_cast<float>(65536u - limit)};
  if (limit == 0) return keep;
  const uint64_t seed = stream.seed_at ? static_cast<uint64_t>(*stream.seed_at) : stream.seed;
  const uint64_t offset = stream.offset + (stream.offset_at ? static_cast<uint64_t>(*stream.offset_at) : 0);
  keep.words = philox7(static_cast<uint32_t>(eight), static_cast<uint32_t>(eight >> 32),
                       static_cast<uint32_t>(offset), kDropoutLane, seed);
  return keep;
}

__device__ float read(float value) {
  return value;
}
__device__ float read(Bf16 value) {
  return __uint_as_float(uint32_t{value.bits} << 16);
}
__device__ void write(float& to, float value) {
  to = value;
}
__device__ void write(Bf16& to, float value) {
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

template <typename T>
struct alignas(16) Eight {
  T element[kTogether];
};

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
