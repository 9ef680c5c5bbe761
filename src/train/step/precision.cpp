#include <edgewise/train/precision.h>

#include <ATen/autocast_mode.h>

#include "ops/enum_names.h"

namespace edgewise::train {
namespace {

constexpr EnumNames<Precision, 2> kPrecisions{"precision",
                                              {{{"fp32", Precision::kFp32}, {"bf16", Precision::kBf16}}}};

}  // namespace

Precision parse_precision(std::string_view name) {
  return kPrecisions.parse(name);
}

PrecisionGuard::PrecisionGuard(Precision precision, c10::Device device)
    : active_(precision == Precision::kBf16), type_(device.type()) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(type_);
  at::autocast::set_autocast_dtype(type_, at::kBFloat16);
  at::autocast::set_autocast_enabled(type_, true);
  at::autocast::increment_nesting();
}

PrecisionGuard::~PrecisionGuard() {
  if (!active_) return;
  // Weights that torch's own products read are cast once per outermost scope; the copies go with it.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(type_, was_enabled_);
}

}  // namespace edgewise::train
