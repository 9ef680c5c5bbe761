// Attention over heads with more edges than not: whole blocks of queries times all keys, by at::mm, with the
// weights of pairs that are no edges set to 0. fp32 only.
#pragma once

#include <vector>

#include "ops/attention/attention_impl.h"

namespace edgewise::ops {

// One entry per head b*H + h: whether it is done in blocks.
struct HeadPlan {
  std::vector<char> forward, backward;
  bool any_forward() const;
  bool any_backward() const;
};

// By predicted cost (ops/attention/cpu_choice.cpp). Nothing in blocks where a query, key or value is not
// finite: what has no edge must not be touched by it. Likewise, backward, for the gradient.
HeadPlan plan_heads(const AttentionInputs& in);
bool is_finite(const at::Tensor& tensor);

// Fill the planned heads of `result`.
void masked_forward(const AttentionInputs& in, const std::vector<char>& heads, AttentionForward& result);
void masked_backward(const AttentionInputs& in, const std::vector<char>& heads,
                     const AttentionForward& forward, const at::Tensor& grad_output,
                     AttentionBackward& result);

}  // namespace edgewise::ops
