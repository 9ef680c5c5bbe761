#include <edgewise/attention/linear_attention.h>

#include <cmath>
#include <ostream>

#include <ATen/ATen.h>

#include "attention/masking.h"

namespace edgewise {
namespace {

constexpr double kEps = 1e-6;

at::Tensor elu_plus_one(const at::Tensor& x) {
  return at::elu(x) + 1;
}

}  // namespace

LinearAttentionImpl::LinearAttentionImpl(MethodMode mode) : mode_(mode) {}

at::Tensor LinearAttentionImpl::attend(const MethodInput& input) {
  const at::Tensor query = elu_plus_one(input.query);
  const at::Tensor key = zero_padding(elu_plus_one(input.key), input.key_mask);  // [B, H, N, D]
  // Padding has weight 0, but 0 times infinity is not 0: its values go too.
  const at::Tensor value = zero_padding(input.value, input.key_mask);
  const at::Tensor unnormalised = at::matmul(query, at::matmul(key.transpose(2, 3), value));
  if (mode_ == MethodMode::kHarness) return unnormalised / std::sqrt(static_cast<double>(query.size(2)));
  const at::Tensor total = at::matmul(query, key.sum(2).unsqueeze(-1));  // [B, H, N, 1]
  return zero_padding(unnormalised / (total + kEps), input.key_mask);
}

void LinearAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::LinearAttention(mode=" << to_string(mode_) << ")";
}

}  // namespace edgewise
