// Matrix products of one warp as the header of this name has them, lanes exchanging what they hold.
#pragma once

#include <array>

#include "kernels/cuda/device/shared_words.cuh"

namespace edgewise::kernels::cuda {

// What every lane has.
inline std::array<uint64_t, 32> all_lanes(uint64_t word) {
  std::array<uint64_t, 32> result;
  std::memcpy(result.data(), simt::Block::current_block()->meet(~0u, word), sizeof result);
  return result;
}
inline float half_of(uint64_t pair, unsigned half) {
  return __uint_as_float(static_cast<uint32_t>(pair >> (16 * half)) << 16);
}

inline void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const auto upper = all_lanes(a[0] | uint64_t{a[2]} << 32);  // rows 0 .. 7: columns 0 .. 7, 8 .. 15
  const auto lower = all_lanes(a[1] | uint64_t{a[3]} << 32);
  const auto right = all_lanes(b0 | uint64_t{b1} << 32);
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (unsigned e = 0; e < 4; ++e)
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned from = k % 8 / 2, half = k / 8 * 2 + k % 2, column = 2 * t + e % 2;
      d[e] += half_of((e < 2 ? upper : lower)[4 * g + from], half) * half_of(right[4 * column + from], half);
    }
}

inline void multiply_to(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  for (float& x : d) x = 0;
  multiply(d, a, b0, b1);
}

// Four 8 x 8 matrices of two-byte numbers; lane l gives the address of row l % 8 of matrix l / 8.
inline void load_matrices(uint32_t (&to)[4], uint32_t from) {
  const auto rows = all_lanes(from);
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (unsigned m = 0; m < 4; ++m) to[m] = load_word(static_cast<uint32_t>(rows[8 * m + g]) + 4 * t);
}
inline void load_transposed(uint32_t (&to)[4], uint32_t from) {
  const auto rows = all_lanes(from);
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const auto number = [&](unsigned m, unsigned row) {
    const uint32_t word = load_word(static_cast<uint32_t>(rows[8 * m + row]) + 4 * (g / 2));
    return word >> (16 * (g % 2)) & 0xFFFFu;
  };
  for (unsigned m = 0; m < 4; ++m) to[m] = number(m, 2 * t) | number(m, 2 * t + 1) << 16;
}

inline uint32_t transposed(uint32_t pair) {
  const auto rows = all_lanes(pair);
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const auto number = [&](unsigned row) {
    return static_cast<uint32_t>(rows[4 * row + g / 2] >> (16 * (g % 2))) & 0xFFFFu;
  };
  return number(2 * t) | number(2 * t + 1) << 16;
}

}  // namespace edgewise::kernels::cuda
