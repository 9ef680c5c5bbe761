// Ordinary dropout in kernels over rows: eight neighbouring elements a thread, and which of them are kept.
// Element e has the e % 8-th 16 bits of Philox(e / 8, offset; seed): nothing is kept for the backward pass.
#pragma once

#include "kernels/cuda/device/eight.cuh"
#include "kernels/cuda/layers/row_params.h"
#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {

constexpr uint32_t kDropoutLane = 12;  // beside the lanes of philox.h and pair_numbers.h

struct Keep {
  PairWords words;
  uint32_t limit;
  float scale;

  __device__ float operator()(int n, float value) const {
    const uint32_t number = words.word[n / 2] >> (n % 2 * 16) & 0xFFFFu;
    return number < limit ? 0.0f : value * scale;
  }
};
inline __device__ Keep keep_of(int64_t eight, uint32_t limit, const DropoutStream& stream) {
  Keep keep{{}, limit, 65536.0f / static_cast<float>(65536u - limit)};
  if (limit == 0) return keep;
  const uint64_t seed = stream.seed_at ? static_cast<uint64_t>(*stream.seed_at) : stream.seed;
  const uint64_t offset = stream.offset + (stream.offset_at ? static_cast<uint64_t>(*stream.offset_at) : 0);
  keep.words = philox7(static_cast<uint32_t>(eight), static_cast<uint32_t>(eight >> 32),
                       static_cast<uint32_t>(offset), kDropoutLane, seed);
  return keep;
}

}  // namespace edgewise::kernels::cuda
