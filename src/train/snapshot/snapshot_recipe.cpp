#include "train/snapshot/snapshot_recipe.h"

#include <algorithm>
#include <charconv>

#include <c10/util/Exception.h>

#include <edgewise/train/attention_kinds.h>

namespace edgewise::train {
namespace {

constexpr size_t kMostInputs = 64;

}  // namespace

std::vector<int64_t> parse_snapshot_inputs(const std::string& text) {
  std::vector<int64_t> result;
  const char *at = text.data(), *const end = text.data() + text.size();
  bool is_right = !text.empty();
  while (is_right && at < end) {
    while (at < end && *at == ' ') ++at;
    int64_t value = -1;
    const auto [after, error] = std::from_chars(at, end, value);
    is_right = error == std::errc() && value >= 0 && std::ranges::find(result, value) == result.end() &&
               result.size() < kMostInputs;
    result.push_back(value);
    at = after;
    while (at < end && *at == ' ') ++at;
    if (is_right && at < end) is_right = *at++ == ',' && at < end;
  }
  TORCH_CHECK_VALUE(
      is_right,
      "train.snapshot_inputs: expected up to 64 different numbers of validation examples, such as "
      "\"0,1,5\"; found \"",
      text, "\"");
  return result;
}

std::vector<int64_t> examples_of_snapshots(const Recipe& recipe, const data::Dataset& dataset) {
  if (recipe.train.snapshot_every == 0) return {};
  TORCH_CHECK_VALUE(!attention_kind(recipe).make(recipe, dataset.max_length()).method,
                    "train: expected attention over edges, or dense attention, with train.snapshot_every; "
                    "attention.kind = ",
                    recipe.attention.kind, " has no graph to show. Set train.snapshot_every=0");
  std::vector<int64_t> examples = parse_snapshot_inputs(recipe.train.snapshot_inputs);
  const int64_t size = dataset.size(data::Split::kValidation), last = std::ranges::max(examples);
  TORCH_CHECK_VALUE(last < size, "train: expected train.snapshot_inputs below ", size,
                    ", of which there are in the validation split of ", dataset.name(), "; found ", last);
  return examples;
}

}  // namespace edgewise::train
