// The random numbers of the pairs of one head in the squeezed sampler: 40 bits each, a byte that is drawn for
// every pair and 32 finer bits that few pairs need. Lanes as in philox.h.
#pragma once

#include "kernels/pair_numbers.h"
#include "kernels/philox.h"

namespace edgewise::kernels {

inline constexpr size_t kPairRounds = 7;  // of both, as in pair_numbers.h

// The first byte of the pair (row, n-th valid key): 128 keys share eight counters; each gives eight bytes to
// the first 64 keys (words 0 and 1) and eight to the others.
inline uint8_t pair_byte(uint64_t key, int64_t row, int64_t n) {
  const uint32_t counter = static_cast<uint32_t>(n / 128 * 8 + n % 64 / 8);
  const PairWords words = philox<kPairRounds>(static_cast<uint32_t>(row), counter, 0, kByteLane, key);
  const int64_t byte = n % 8 + (n / 64 % 2) * 8;
  return static_cast<uint8_t>(words.word[byte / 4] >> (byte % 4 * 8));
}

// The 32 bits below it.
inline uint32_t pair_fine_word(uint64_t key, int64_t row, int64_t n) {
  return philox<kPairRounds>(static_cast<uint32_t>(row), static_cast<uint32_t>(n), 0, kFineLane, key).word[0];
}

}  // namespace edgewise::kernels
