#include "train/ranks/rank_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include <edgewise/io/environment.h>
#include <edgewise/train/attention_kinds.h>
#include <torch/types.h>

#include "train/run/run_folder.h"

namespace edgewise::train {
namespace {

bool learns_by_reward(const Recipe& recipe) {
  std::vector<std::string> kinds = {recipe.attention.kind};
  for (const auto& more : {recipe.attention.decoder, recipe.attention.cross, recipe.attention.edges})
    if (more) kinds.push_back(*more);
  return std::ranges::any_of(kinds, [](const std::string& kind) {
    return attention_kind(kind).reads("sac") || attention_kind(kind).reads("indexer");
  });
}

}  // namespace

void check_ranks(const Recipe& recipe, const tasks::Task& task, Ranks* ranks) {
  if (!ranks) return;
  const int64_t size = ranks->size();
  const io::Environment environment = io::describe_environment();
  ranks->expect_same(environment.edgewise_version + " with torch " + environment.torch_version,
                     "version of edgewise");
  ranks->expect_same(describe_data(task.data()), "data");
  TORCH_CHECK_VALUE(size == 1 || task.data().size(data::Split::kTrain) > 1,
                    "train: expected examples to divide among ", size, " ranks; ", task.data().name(),
                    " is a single one. Train it in one process, without torchrun");
  if (recipe.train.batch_tokens > 0) {
    TORCH_CHECK_VALUE(size == 1 || !learns_by_reward(recipe), "train: expected batches of one size for ",
                      size, " ranks, as attention.kind = ", recipe.attention.kind,
                      " learns by reward, of which each rank needs a part; got train.batch_tokens = ",
                      recipe.train.batch_tokens, ". Set train.batch instead");
    return;
  }
  TORCH_CHECK_VALUE(recipe.train.batch % size == 0,
                    "train: expected train.batch to be a multiple of the ranks, ", size, "; got ",
                    recipe.train.batch, ". Set train.batch to ", (recipe.train.batch / size + 1) * size,
                    ", or start another number of ranks");
}

}  // namespace edgewise::train
