// Lengths of padded batches.
#pragma once

#include <cstdint>

namespace edgewise::data {

inline constexpr int64_t kPadMultiple = 64;  // one edge tile

inline int64_t padded_length(int64_t longest) {
  return (longest + kPadMultiple - 1) / kPadMultiple * kPadMultiple;
}

}  // namespace edgewise::data
