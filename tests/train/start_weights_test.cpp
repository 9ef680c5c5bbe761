// Runs that start from the weights of another (train.weights).
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/io/safetensors.h>
#include <edgewise/train/metrics.h>

#include "kit/message_of.h"
#include "kit/scratch_folder.h"
#include "train/tiny_run.h"

namespace edgewise::train {
namespace {

using kit::message_of;
using kit::ScratchFolder;
using tiny_run::comparable_metrics;
using tiny_run::expect_same_run;
using tiny_run::run;
using tiny_run::tiny_recipe;

TEST(StartWeights, AreThoseOfAnotherRun) {
  const ScratchFolder scratch;
  run(tiny_recipe(), scratch / "first");
  const std::string first = (scratch / "first").string(), file = first + "/checkpoints/best.safetensors";
  const auto from = [](const std::string& place, std::vector<std::string> more = {}) {
    more.push_back("train.weights=" + place);
    more.push_back("train.seed=4");
    return tiny_recipe(more);
  };
  // At a rate of nearly nothing the run ends with what it has begun with.
  const std::vector<std::string> still = {"train.learning_rate=1e-30", "train.steps=8"};
  run(from(first, still), scratch / "still");
  const auto tensors = [](const std::filesystem::path& path) {
    return io::load_safetensors(path.string()).tensors;
  };
  const auto given = tensors(file), kept = tensors(scratch / "still/checkpoints/best.safetensors");
  ASSERT_EQ(kept.size(), given.size());
  for (const auto& [name, tensor] : given) EXPECT_TRUE(at::equal(kept.at(name), tensor)) << name;

  // A folder means its best checkpoint; stopped before its first checkpoint, a run begins with them again,
  // and afterwards nobody asks where they were.
  run(from(first), scratch / "whole");
  run(from(file), scratch / "by-file");
  EXPECT_EQ(comparable_metrics(scratch / "whole"), comparable_metrics(scratch / "by-file"));
  run(from(first), scratch / "again", false, [](int64_t steps) {
    if (steps == 3) std::raise(SIGTERM);
  });
  std::filesystem::remove(scratch / "again/checkpoints/last.safetensors");
  run(from(first), scratch / "again", true, [](int64_t steps) {
    if (steps == 12) std::raise(SIGTERM);
  });
  std::filesystem::rename(first, scratch / "moved");
  EXPECT_THAT(message_of([&] { run(from(first), scratch / "none"); }),
              testing::HasSubstr("expected a run folder or a checkpoint; found nothing at " + first));
  EXPECT_FALSE(std::filesystem::exists(scratch / "none"));
  run(from(first), scratch / "again", true);
  expect_same_run(scratch / "whole", scratch / "again");

  // What they are worth is looked at before the first step.
  const std::vector<MetricRecord> records = comparable_metrics(scratch / "whole");
  EXPECT_EQ(std::get<std::string>(*find_metric(records.front(), "kind")), "eval");
  EXPECT_EQ(std::get<int64_t>(*find_metric(records.front(), "step")), 0);

  const std::string moved = (scratch / "moved").string();
  EXPECT_THAT(message_of([&] { run(from(moved, {"model.hidden=64"}), scratch / "none"); }),
              testing::HasSubstr("a model of another size"));
  EXPECT_THAT(message_of([&] { run(from(moved, {"model.heads=4"}), scratch / "none"); }),
              testing::HasSubstr("train.weights: expected model.heads = 2"));
  std::filesystem::create_directory(scratch / "empty");
  EXPECT_THAT(message_of([&] { run(from((scratch / "empty").string()), scratch / "none"); }),
              testing::HasSubstr("found neither"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "none"));
}

// From dense attention to learned edges and back: all but the edges move over.
TEST(StartWeights, MoveFromOneAttentionToAnother) {
  const ScratchFolder scratch;
  run(tiny_recipe({"attention.kind=dense", "train.density_weight=0"}), scratch / "dense");
  const Recipe learned = tiny_recipe(
      {"train.weights=" + (scratch / "dense").string(), "train.learning_rate=1e-30", "train.steps=8"});
  run(learned, scratch / "learned");
  const auto tensors = [&](const char* folder) {
    return io::load_safetensors((scratch / folder / "checkpoints/best.safetensors").string()).tensors;
  };
  const auto dense = tensors("dense"), all = tensors("learned");
  for (const auto& [name, tensor] : dense) EXPECT_TRUE(at::equal(all.at(name), tensor)) << name;
  EXPECT_EQ(all.size(), dense.size() + 10);  // clusters and an MLP for each of two layers
  run(tiny_recipe({"attention.kind=dense", "train.density_weight=0", "train.learning_rate=1e-30",
                   "train.steps=8", "train.weights=" + (scratch / "learned").string()}),
      scratch / "back");
  for (const auto& [name, tensor] : tensors("back")) EXPECT_TRUE(at::equal(tensor, dense.at(name))) << name;

  // Clusters of another number are new; in a union with a window the block model is the same.
  const auto start = [&](const char* to, std::vector<std::string> more) {
    more.insert(more.end(), {"train.learning_rate=1e-30", "train.steps=8",
                             "train.weights=" + (scratch / "learned/checkpoints").string()});
    run(tiny_recipe(more), scratch / to);
    return tensors(to);
  };
  const auto fewer = start("fewer", {"sbm.clusters=3"});
  const std::string layer = "encoder.layers.1.self_attn.";
  EXPECT_EQ(fewer.at(layer + "edges.clusters").size(1), 3);
  EXPECT_TRUE(at::equal(fewer.at(layer + "edges.mlp_weight1"), all.at(layer + "edges.mlp_weight1")));
  EXPECT_TRUE(at::equal(fewer.at(layer + "in_proj_weight"), all.at(layer + "in_proj_weight")));
  const auto united = start("united", {"attention.kind=window+sbm", "window.width=2"});
  EXPECT_EQ(united.size(), all.size());
  EXPECT_TRUE(at::equal(united.at(layer + "edges.source1.clusters"), all.at(layer + "edges.clusters")));
}

}  // namespace
}  // namespace edgewise::train
