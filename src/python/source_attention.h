// Attention whose edges are drawn inside: from a block model, or from probabilities that the caller gives.
// As operations: one that autograd records as it runs; and, for programs that are traced or transformed,
// forward and the gradients of everything that is learned as functions of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <vector>

namespace edgewise::python {

// What both have in common. options: see source_options.h. A key mask is of tokens that are queries and keys.
struct SourceCall {
  const at::Tensor &query, &key, &value;
  const std::optional<at::Tensor>& key_mask;
  const at::Tensor& seed;
  c10::string_view options;
  bool training, is_causal;
  std::optional<double> scale;
  double dropout_p;
  // The dtype of products where the caller is under autocast.
  std::optional<at::ScalarType> autocast = {};
};

// ---- block model; parameters: clusters, mlp_weight1, mlp_bias1, mlp_weight2, mlp_bias2 (SbmTensors) ----

// -> output, penalty [H] (the learner's density, differentiable), density [H] float64.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attend_sbm(const at::Tensor& query, const at::Tensor& key,
                                                          const at::Tensor& value, at::TensorList parameters,
                                                          const std::optional<at::Tensor>& key_mask,
                                                          const at::Tensor& seed, c10::string_view options,
                                                          bool training, bool is_causal,
                                                          std::optional<double> scale, double dropout_p,
                                                          std::optional<at::ScalarType> autocast);
// -> the same, and a tape.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> sbm_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, at::TensorList parameters,
    const std::optional<at::Tensor>& key_mask, const at::Tensor& seed, c10::string_view options,
    bool training, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<at::ScalarType> autocast, bool keep);
std::tuple<at::Tensor, at::Tensor, at::Tensor, std::vector<at::Tensor>> sbm_attention_backward(
    const std::optional<at::Tensor>& grad_output, const std::optional<at::Tensor>& grad_penalty,
    const at::Tensor& tape, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    at::TensorList parameters, const std::optional<at::Tensor>& key_mask, const at::Tensor& seed,
    c10::string_view options, bool training, bool is_causal, std::optional<double> scale, double dropout_p,
    std::optional<at::ScalarType> autocast);
// The edges that such a call attends over, as a plan.
std::vector<at::Tensor> sbm_edges(const at::Tensor& query, const at::Tensor& key, at::TensorList parameters,
                                  const std::optional<at::Tensor>& key_mask, const at::Tensor& seed,
                                  c10::string_view options, bool training, bool is_causal,
                                  std::optional<at::ScalarType> autocast);

// ---- probabilities [B, H, L, S] of pairs, or [B, H, ceil(L/16), ceil(S/16)] of squares, each drawn on its
// own ----

// -> output, density [H] float64.
std::tuple<at::Tensor, at::Tensor> attend_drawn(const at::Tensor& query, const at::Tensor& key,
                                                const at::Tensor& value, const at::Tensor& probabilities,
                                                const std::optional<at::Tensor>& key_mask,
                                                const at::Tensor& seed, c10::string_view options,
                                                bool training, bool is_causal, std::optional<double> scale,
                                                double dropout_p);
// -> the same, and a tape.
std::tuple<at::Tensor, at::Tensor, at::Tensor> drawn_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& probabilities,
    const std::optional<at::Tensor>& key_mask, const at::Tensor& seed, c10::string_view options,
    bool training, bool is_causal, std::optional<double> scale, double dropout_p, bool keep);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> drawn_attention_backward(
    const at::Tensor& grad_output, const at::Tensor& tape, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& probabilities, const std::optional<at::Tensor>& key_mask,
    const at::Tensor& seed, c10::string_view options, bool training, bool is_causal,
    std::optional<double> scale, double dropout_p);
std::vector<at::Tensor> drawn_edges(const at::Tensor& query, const at::Tensor& key,
                                    const at::Tensor& probabilities,
                                    const std::optional<at::Tensor>& key_mask, const at::Tensor& seed,
                                    c10::string_view options, bool training, bool is_causal);

}  // namespace edgewise::python
