// A random sequence for samplers that jump from one drawn pair to the next.
#pragma once

#include "kernels/cpu/sample/sample_kernels.h"

namespace edgewise::kernels::cpu {

// Gaps and coins of one sequence, a block at a time.
class Points {
 public:
  Points(const SampleKernels& kernels, uint64_t stream_key, int64_t sequence)
      : kernels_(kernels), stream_key_(stream_key), sequence_(static_cast<uint32_t>(sequence)) {}

  double gap() {
    if (++at_ == kGapDraws) {
      kernels_.gaps(stream_key_, sequence_, block_++, gaps_, words_);
      at_ = 0;
    }
    return gaps_[at_];
  }
  double coin() const { return (words_[at_] + 0.5) * 0x1.0p-32; }  // of the last gap

 private:
  const SampleKernels& kernels_;
  uint64_t stream_key_;
  uint32_t sequence_, block_ = 0;
  int64_t at_ = kGapDraws - 1;
  double gaps_[kGapDraws];
  uint32_t words_[kGapDraws];
};

}  // namespace edgewise::kernels::cpu
