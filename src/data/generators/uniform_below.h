// An integer drawn exactly uniformly from 0 .. bound - 1 out of a Philox stream.
#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace edgewise::data {

// bound must be at least 1. The high half of bits * bound is the draw; draws whose low half falls into the
// uneven rest are rejected, so every value has the same number of preimages.
inline uint64_t uniform_below(kernels::RowStream& stream, uint64_t bound) {
  if (bound <= (uint64_t{1} << 32)) {
    const uint64_t rest = (uint64_t{1} << 32) % bound;
    for (;;) {
      const uint64_t product = uint64_t{stream.next32()} * bound;
      if (static_cast<uint32_t>(product) >= rest) return product >> 32;
    }
  }
  const uint64_t rest = (~uint64_t{0} - bound + 1) % bound;
  for (;;) {
    const uint64_t high = stream.next32();
    const uint64_t bits = (high << 32) | stream.next32();
    if (bits >= rest) return bits % bound;
  }
}

}  // namespace edgewise::data
