#include "attention/masking.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <limits>

namespace edgewise {

at::Tensor zero_padding(const at::Tensor& x, const std::optional<at::Tensor>& mask) {
  return mask ? x.masked_fill(mask->logical_not().unsqueeze(1).unsqueeze(-1), 0) : x;
}

at::Tensor masked_softmax(const at::Tensor& logits, const at::Tensor& allowed) {
  // -inf would turn a row without entries into NaN, in the gradient even when the row is overwritten.
  constexpr double kLowest = std::numeric_limits<float>::lowest();
  const at::Tensor forbidden = allowed.logical_not();
  return logits.masked_fill(forbidden, kLowest).softmax(-1).masked_fill(forbidden, 0);
}

NoAutocast::NoAutocast(at::DeviceType type)
    : type_(type), was_enabled_(at::autocast::is_autocast_enabled(type)) {
  at::autocast::set_autocast_enabled(type_, false);
}

NoAutocast::~NoAutocast() {
  at::autocast::set_autocast_enabled(type_, was_enabled_);
}

}  // namespace edgewise
