// Random numbers of the squeezed sampler, one level's part: the first bytes of a row's pairs, and what
// refines them.
#pragma once

#include "kernels/cpu/sample/sample_level.h"
#include "kernels/pair_bytes.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE {

inline void draw_bytes(const PhiloxKeys& keys, uint32_t row_index, int64_t begin, int64_t count,
                       uint8_t* bytes) {
  alignas(64) const uint64_t steps[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int64_t at = 0; at < count; at += 128)
    philox8<kPairRounds>(
        keys, [&](int) { return Wide{} + uint64_t{row_index}; },
        [&](int n) { return load<Wide>(steps + n) + static_cast<uint64_t>(begin + at) / 16; }, kByteLane,
        bytes + at, bytes + at + 64);
}

// The 32 bits below the bytes of eight pairs.
inline void draw_fine(const PhiloxKeys& keys, const uint64_t* pairs, uint64_t* low) {
  alignas(64) uint64_t high[8];
  philox8<kPairRounds>(
      keys, [&](int n) { return load<Wide>(pairs + n) >> OpenPair::kRowShift; },
      [&](int n) { return load<Wide>(pairs + n) & 0xFFFFFFFFu; }, kFineLane, low, high);
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE
