// What speaks for groups of 16 tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace edgewise {

// The mean of each group's valid tokens, 0 for a group without: [B, H, N, D] -> [B, H, groups(N), D].
at::Tensor mean_of_groups(const at::Tensor& tokens, const std::optional<at::Tensor>& mask);
// Each group's first valid token, 0 for a group without.
at::Tensor first_of_groups(const at::Tensor& tokens, const std::optional<at::Tensor>& mask);
// Tokens in each group, of them the valid ones: [B or 1, groups(N)].
at::Tensor tokens_in_groups(int64_t tokens, const std::optional<at::Tensor>& mask,
                            const at::TensorOptions& options);

}  // namespace edgewise
