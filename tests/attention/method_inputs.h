// Inputs and methods that the tests of attention methods share.
#pragma once

#include <edgewise/attention/linear_attention.h>
#include <edgewise/attention/linformer.h>
#include <edgewise/attention/nystromformer.h>
#include <edgewise/attention/performer.h>
#include <edgewise/attention/reformer.h>

#include <torch/torch.h>

#include "kit/random_inputs.h"

namespace edgewise::kit {

inline constexpr int64_t kHeads = 2, kDim = 4;
inline constexpr double kClose = 1e-10;  // what rounding in fp64 may change

// lengths[b] valid tokens in item b; an empty list: no mask.
inline std::optional<at::Tensor> mask_of(const std::vector<int64_t>& lengths, int64_t length) {
  if (lengths.empty()) return std::nullopt;
  return torch::arange(length).unsqueeze(0) < torch::tensor(lengths).unsqueeze(1);
}

inline MethodInput method_input(int64_t batch, int64_t length, std::optional<at::Tensor> mask,
                                int64_t seed = 1) {
  const auto make = [&](int64_t which) {
    return randn({batch, kHeads, length, kDim}, 10 * seed + which, at::kDouble);
  };
  MethodInput input;
  input.query = make(1);
  input.key = make(2);
  input.value = make(3);
  input.key_mask = std::move(mask);
  input.random = {.seed = 7, .step = 3, .layer = 1, .first_item = 0};
  return input;
}

// Every method in every mode, small, in fp64 and ready to evaluate. Lengths: a multiple of 8 up to 48 suits
// all.
struct MethodCase {
  const char* name;
  bool is_paper;
  bool mixes_batch;  // items depend on their batch mates
  AttentionMethodPtr (*make)();
};
inline void PrintTo(const MethodCase& c, std::ostream* stream) {
  *stream << c.name;
}

inline AttentionMethodPtr ready(AttentionMethodPtr method) {
  method->to(torch::kDouble);
  method->eval();
  return method;
}
template <MethodMode mode>
AttentionMethodPtr linear() {
  return ready(LinearAttention(mode).ptr());
}
template <MethodMode mode>
AttentionMethodPtr performer() {
  torch::manual_seed(1);
  PerformerAttentionOptions options(kDim, mode);
  options.features = 6;  // not a multiple of kDim
  return ready(PerformerAttention(options).ptr());
}
template <MethodMode mode, ProjectionSharing sharing = ProjectionSharing::kHeads>
AttentionMethodPtr linformer() {
  torch::manual_seed(1);
  LinformerAttentionOptions options(kHeads, 48, mode);
  options.projected_length = 5;
  options.sharing = sharing;
  return ready(LinformerAttention(options).ptr());
}
template <MethodMode mode>
AttentionMethodPtr nystromformer() {
  torch::manual_seed(1);
  NystromAttentionOptions options(kHeads, mode);
  options.landmarks = 4;
  options.conv_kernel = 3;
  return ready(NystromAttention(options).ptr());
}
inline AttentionMethodPtr reformer() {
  torch::manual_seed(1);
  ReformerAttentionOptions options(kHeads, kDim);
  options.chunk = 4;
  options.rounds = 3;
  return ready(ReformerAttention(options).ptr());
}

inline auto every_method() {
  constexpr MethodMode kPaper = MethodMode::kPaper, kHarness = MethodMode::kHarness;
  return ::testing::Values(
      MethodCase{"linear_paper", true, false, linear<kPaper>},
      MethodCase{"linear_harness", false, false, linear<kHarness>},
      MethodCase{"performer_paper", true, false, performer<kPaper>},
      MethodCase{"performer_harness", false, false, performer<kHarness>},
      MethodCase{"linformer_paper", true, false, linformer<kPaper>},
      MethodCase{"linformer_paper_heads_apart", true, false, linformer<kPaper, ProjectionSharing::kNone>},
      MethodCase{"linformer_harness", false, false, linformer<kHarness>},
      MethodCase{"nystromformer_paper", true, false, nystromformer<kPaper>},
      MethodCase{"nystromformer_harness", false, true, nystromformer<kHarness>},
      MethodCase{"reformer_harness", false, false, reformer});
}

}  // namespace edgewise::kit
