// Snapshots of language models: nothing of the future, readable for every attention, and training does not
// notice them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/data/characters.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/train/snapshot.h>
#include <edgewise/train/trainer.h>

#include "kit/scratch_folder.h"

namespace edgewise::train {
namespace {

class SnapshotText : public testing::TestWithParam<const char*> {
 protected:
  static std::string kind() {
    const std::string given = GetParam();
    return given.substr(0, given.find('/'));
  }
  static Recipe recipe(int64_t snapshot_every) {
    const std::string given = GetParam();
    return parse_recipe(
        R"(
[data]
name = "characters"
path = "made here"
length = 40
[model]
layers = 2
dim = 16
heads = 2
hidden = 32
dropout = 0.2
[attention]
kind = "dense"
[train]
steps = 6
batch = 4
eval_every = 3
threads = 1
snapshot_inputs = "0,2"
)",
        "text",
        {"attention.kind=" + kind(), given == kind() ? "attention.unit=1" : "attention.unit=16",
         "train.snapshot_every=" + std::to_string(snapshot_every),
         // In squares a learner chooses among the groups before a query's own.
         given == "sbm/16" ? "sbm.self_loops=true" : "train.log_every=100"});
  }
  static void train(int64_t snapshot_every, const std::filesystem::path& folder) {
    std::vector<uint8_t> text;
    for (size_t n = 0; n < 6000; ++n) text.push_back(static_cast<uint8_t>("learned \n\xC3"[n * n / 7 % 10]));
    Trainer(recipe(snapshot_every), std::make_shared<data::Characters>("letters", text, 40),
            {.run_folder = folder, .resume = false, .progress = false, .after_step = {}})
        .run();
  }
};

TEST_P(SnapshotText, ShowsNoFutureAndChangesNothing) {
  const kit::ScratchFolder scratch;
  train(0, scratch / "without");
  train(2, scratch / "with");
  const auto weights = [&](const char* run) {
    return io::load_safetensors(scratch / run / "checkpoints" / "last.safetensors").tensors;
  };
  const auto without = weights("without"), with = weights("with");
  ASSERT_EQ(without.size(), with.size());
  for (const auto& [name, tensor] : without) EXPECT_TRUE(at::equal(tensor, with.at(name))) << name;

  for (const char* name : {"step-00000000.safetensors", "step-00000004.safetensors"}) {
    const SnapshotFile file(scratch / "with" / "snapshots" / name);
    EXPECT_TRUE(file.about().is_causal);
    EXPECT_EQ(file.about().view.names.size(), 9) << "as many as different characters";
    EXPECT_THAT(file.about().view.names, testing::Contains("\\n"));
    EXPECT_THAT(file.about().view.names, testing::Contains("\\xC3"));
    ASSERT_EQ(file.about().inputs.size(), 2);
    EXPECT_EQ(file.about().inputs[1].example, 2);
    EXPECT_EQ(file.input(1).tokens.size(0), 40);
    EXPECT_EQ(file.input(1).predicted.size(0), 40);
    const std::vector<LayerSnapshot>& layers = file.about().inputs[1].layers;
    for (size_t l = 0; l < layers.size(); ++l) {
      for (size_t h = 0; h < layers[l].heads.size(); ++h) {
        const HeadSnapshot head = file.head(1, l, h);
        EXPECT_GT(head.edges, 0);
        // Beside the pairs that dense attention has: a tree of so few tokens has more, with its spans.
        if (kind() != "tree") {
          EXPECT_LE(head.density, 1);
        }
        if (layers[l].queries != layers[l].keys || layers[l].queries > 40) continue;  // nodes beside tokens
        for (int64_t i = 0; i < layers[l].queries; ++i) {
          const int begin = head.offsets[i].item<int>(), end = head.offsets[i + 1].item<int>();
          if (begin == end) continue;
          EXPECT_LE(head.keys[end - 1].item<int64_t>(), i);
          if (!head.weights.defined()) continue;
          EXPECT_NEAR(head.weights.slice(0, begin, end).to(at::kDouble).sum().item<double>(), 1, 5e-3);
        }
      }
    }
    // Scores that are more than products of queries and keys have no picture.
    EXPECT_EQ(layers.size(), kind() == "transformer_xl" || kind() == "adaptive_span" ? 0 : 2);
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, SnapshotText,
                         testing::Values("dense", "window", "sbm", "window+sbm", "sac", "window/16", "sbm/16",
                                         "adaptive_span", "transformer_xl", "tree"));

}  // namespace
}  // namespace edgewise::train
