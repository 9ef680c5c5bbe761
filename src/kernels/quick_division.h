// Division by a number that is known before the kernel starts: two multiplications' worth of instructions
// where the machine's own division takes some twenty.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace edgewise::kernels {

// n / d for 0 <= n < 2^31 and 1 <= d < 2^31 is (n + high word of n m) >> s, with s the bits of d - 1 and
// m = floor(2^32 (2^s - d) / d) + 1 (Granlund and Montgomery 1994).
class QuickDivision {
 public:
  QuickDivision() = default;
  explicit QuickDivision(int64_t divisor) : divisor_(static_cast<uint32_t>(divisor > 0 ? divisor : 1)) {
    while ((uint64_t{1} << shift_) < divisor_) ++shift_;
    multiplier_ = static_cast<uint32_t>((((uint64_t{1} << shift_) - divisor_) << 32) / divisor_ + 1);
  }

  EDGEWISE_BOTH int quotient(int n) const {
    const uint32_t number = static_cast<uint32_t>(n);
    const uint32_t high = static_cast<uint32_t>(uint64_t{number} * multiplier_ >> 32);
    return static_cast<int>((number + high) >> shift_);
  }
  EDGEWISE_BOTH int remainder(int n, int its_quotient) const {
    return n - its_quotient * static_cast<int>(divisor_);
  }

 private:
  uint32_t divisor_ = 1, multiplier_ = 1, shift_ = 0;
};

}  // namespace edgewise::kernels
