// A lane's entries of a window's list (window_params.h), asked for a turn before they are worked on.
#pragma once

#include <cstdint>

namespace edgewise::kernels::cuda {

template <bool kDropout>
struct NextEntries {
  const uint32_t* list;     // from the lane's first entry on
  const uint32_t* dropped;  // which bits of the entries of two tokens are dropped; null without dropout
  uint32_t entry[2], gone[2] = {};

  // Those of the turn at `at`, which may be in the next block.
  __device__ __forceinline__ void ask(int at) {
    entry[0] = __ldg(list + at), entry[1] = __ldg(list + at + 8);
    if constexpr (kDropout) gone[0] = __ldg(dropped + at / 2), gone[1] = __ldg(dropped + at / 2 + 4);
  }
};

}  // namespace edgewise::kernels::cuda
