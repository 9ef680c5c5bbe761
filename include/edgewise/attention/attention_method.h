// AttentionMethod: how heads attend when not over edges. The published approximations of dense attention that
// Edgewise is compared with, each in two modes.
#pragma once

#include <edgewise/ops/random_stream.h>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string_view>

namespace edgewise {

// kPaper: as its own paper prints it; an item depends neither on its batch mates nor on its padding.
// kHarness: as the code behind the SBM paper's tables computes it, to reproduce them.
enum class MethodMode { kPaper, kHarness };
MethodMode parse_method_mode(std::string_view name);  // "paper" | "harness"
std::string_view to_string(MethodMode mode);

struct MethodInput {
  at::Tensor query, key, value;        // [B, H, N, D], fp32 or fp64
  std::optional<at::Tensor> key_mask;  // [B, N] bool, true = valid token
  double dropout_p = 0;                // on attention weights, where a method has any; 0 in evaluation
  RandomStream random;
};

class AttentionMethod : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  // [B, H, N, D]. In mode `paper` the output of padding is 0.
  virtual at::Tensor attend(const MethodInput& input) = 0;
  // The share of all pairs that are computed one by one at this length; 1 where every key reaches every
  // query.
  virtual double density(int64_t /*length*/) const { return 1; }
};
using AttentionMethodPtr = std::shared_ptr<AttentionMethod>;

}  // namespace edgewise
