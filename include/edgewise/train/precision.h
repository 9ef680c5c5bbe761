// Precision: the number type of matrix products and attention in training and evaluation.
#pragma once

#include <c10/core/Device.h>

#include <string_view>

namespace edgewise::train {

// kBf16: torch's autocast; parameters, optimiser, softmax and sums stay in fp32.
enum class Precision { kFp32, kBf16 };
Precision parse_precision(std::string_view name);  // "fp32" | "bf16"

// While it lives, the calling thread computes in this precision on this device type.
class PrecisionGuard {
 public:
  PrecisionGuard(Precision precision, c10::Device device);
  ~PrecisionGuard();
  PrecisionGuard(const PrecisionGuard&) = delete;
  PrecisionGuard& operator=(const PrecisionGuard&) = delete;

 private:
  bool active_;
  c10::DeviceType type_;
  bool was_enabled_ = false;
};

}  // namespace edgewise::train
