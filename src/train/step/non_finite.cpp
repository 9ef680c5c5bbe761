#include "train/step/non_finite.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "train/step/dropout_seed.h"

namespace edgewise::train {
namespace {

// Empty when all values are finite.
std::string describe(const std::string& kind, const std::string& name, const at::Tensor& value) {
  if (!value.defined() || value.numel() == 0) return {};
  torch::NoGradGuard no_grad;
  const int64_t bad = value.isfinite().logical_not().sum().item<int64_t>();
  if (bad == 0) return {};
  return kind + " " + name + " (" + std::to_string(bad) + " of " + std::to_string(value.numel()) + " values)";
}

// The first state of the pass that is not finite. Gradients are recorded as in training: without, a source of
// edges may draw less.
std::string find_state(Model& model, const ModelInput& input) {
  std::string first;
  ModelInput watched = input;
  watched.watch = [&](const std::string& name, const at::Tensor& value) {
    if (first.empty()) first = describe("state", name, value);
  };
  seed_dropout(input.random);
  try {
    model.forward(watched);
  } catch (const c10::Error& error) {
    // A check inside the model may refuse values that are not finite; what was seen before it still counts,
    // and where it was the first to see one, so does what it says.
    const std::string refusal = error.what_without_backtrace();
    if (first.empty() && refusal.find("to be finite") != std::string::npos)
      first = "what a check refused (" + refusal + ")";
  }
  return first;
}

}  // namespace

std::string find_non_finite(Model& model, std::span<const ModelInput> passes) {
  for (const auto& item : model.named_parameters()) {
    const std::string found = describe("parameter", item.key(), item.value());
    if (!found.empty()) return found;
  }
  for (const ModelInput& pass : passes) {
    const std::string found = find_state(model, pass);
    if (!found.empty()) return found;
  }
  for (const auto& item : model.named_parameters()) {
    const std::string found = describe("gradient of", item.key(), item.value().grad());
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace edgewise::train
