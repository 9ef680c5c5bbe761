// Dropout on the attention weights: which pairs it removes. Pair (row, column) has word column % 4 of the
// Philox block (row, column / 4) under its head's key, and is dropped when that is below p 2^32; as on the
// CPU (kernels/cpu/attention/dropout_level.h).
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {

// A whole number is below a real limit where it is below its ceiling: no comparison in double, pair by pair.
inline uint32_t dropout_limit(double p) {
  return static_cast<uint32_t>(std::min(std::ceil(p * 0x1.0p32), 0x1.0p32 - 1));
}

__device__ inline PairWords dropout_words(uint64_t key, uint32_t row, uint32_t four_columns) {
  return philox<10>(row, four_columns, 0, 0, key);
}
__device__ inline bool pair_dropped(uint64_t key, uint32_t row, uint32_t column, uint32_t limit) {
  const PairWords words = dropout_words(key, row, column / 4);
  const uint32_t low = column & 1 ? words.word[1] : words.word[0],
                 high = column & 1 ? words.word[3] : words.word[2];
  return (column & 2 ? high : low) < limit;
}

}  // namespace edgewise::kernels::cuda
