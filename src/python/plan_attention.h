// Attention over a plan, as operations: one that autograd records as it runs; and, for programs that are
// traced or transformed, forward and the gradients of query, key and value as functions of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace edgewise::python {

// [B, H, L, Dv].
at::Tensor attend_plan(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       at::TensorList plan, at::IntArrayRef shape, const std::optional<at::Tensor>& key_mask,
                       const std::optional<at::Tensor>& seed, bool is_causal, std::optional<double> scale,
                       double dropout_p);

// -> the same output, and the ticket of its tape (`keep`: a backward pass is to be expected).
std::tuple<at::Tensor, at::Tensor> plan_attention(const at::Tensor& query, const at::Tensor& key,
                                                  const at::Tensor& value, at::TensorList plan,
                                                  at::IntArrayRef shape,
                                                  const std::optional<at::Tensor>& key_mask,
                                                  const std::optional<at::Tensor>& seed, bool is_causal,
                                                  std::optional<double> scale, double dropout_p, bool keep);

std::tuple<at::Tensor, at::Tensor, at::Tensor> plan_attention_backward(
    const at::Tensor& grad_output, const at::Tensor& tape, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, at::TensorList plan, at::IntArrayRef shape,
    const std::optional<at::Tensor>& key_mask, const std::optional<at::Tensor>& seed, bool is_causal,
    std::optional<double> scale, double dropout_p);

}  // namespace edgewise::python
