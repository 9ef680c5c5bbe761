// attention.unit = 16 in recipes: who takes it, what it sets, and that a run resumes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/model_cost.h>
#include <edgewise/train/snapshot.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include "kit/message_of.h"
#include "kit/scratch_folder.h"

namespace edgewise::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kTiny = R"(
[data]
length = 40
train_size = 64
validation_size = 8
test_size = 8
[model]
layers = 2
dim = 16
heads = 2
hidden = 16
[train]
steps = 6
batch = 4
micro_batch = 2
eval_every = 3
checkpoint_every = 1
threads = 1
density_weight = 0.1
)";

Recipe tiny(const std::string& kind, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"attention.kind=" + kind, "attention.unit=16"});
  return parse_recipe(kTiny, "tiny", more);
}

TEST(SquareRecipes, WhoTakesThemAndWhoDoesNot) {
  for (const std::string& kind : attention_names()) {
    const AttentionKind& found = attention_kind(kind);
    if (found.needs_text || found.over_graph) continue;  // tests/train/graph_run_test.cpp
    const std::string message = kit::message_of([&] { tiny(kind); });
    if (found.takes_squares) {
      EXPECT_EQ(message, "no error") << kind;
    } else {
      EXPECT_THAT(message,
                  HasSubstr("attention.unit = 16 with attention.kind full, window, random, sbm, "
                            "window+sbm, sac, window+sac, indexer or window+indexer; found it with " +
                            kind));
    }
  }
  EXPECT_THAT(kit::message_of([] { parse_recipe("[attention]\nunit = 8\n", "r"); }),
              HasSubstr("1 (edges one by one) or 16"));
  EXPECT_THAT(kit::message_of([] { tiny("sbm", {"sbm.preset=published"}); }),
              HasSubstr("sbm.count_padding = false"));
  EXPECT_EQ(kit::message_of([] { tiny("sbm", {"sbm.preset=paper"}); }), "no error");
  EXPECT_THAT(
      kit::message_of([] {
        tiny("sbm", {"data.name=image", "data.path=none", "data.mask_zero=true", "data.drop_masked=true"});
      }),
      HasSubstr("attention.unit = 1 with data.drop_masked"));
  // Another kind, chosen on the command line, leaves the file's unit aside.
  const std::string file = std::string(kTiny) + "[attention]\nkind = \"sbm\"\nunit = 16\n";
  EXPECT_EQ(parse_recipe(file, "r").attention.unit, 16);
  EXPECT_EQ(parse_recipe(file, "r", {"attention.kind=dense"}).attention.unit, 1);
  EXPECT_EQ(parse_recipe(file, "r", {"attention.kind=window"}).attention.unit, 16);
}

TEST(SquareRecipes, ReachTheOptions) {
  const SbmEdgesOptions single = sbm_options(parse_recipe("[attention]\nkind = \"sbm\"\n", "r")),
                        squares = sbm_options(tiny("sbm")),
                        set = sbm_options(tiny("sbm", {"sbm.initial_density=0.05", "sbm.probe_rate=0.1"}));
  EXPECT_EQ(single.unit, 1);
  EXPECT_EQ(single.probe_rate, 0.02);
  EXPECT_EQ(single.probes_per_row, 64);
  EXPECT_EQ(single.initial_density, 0.25);
  EXPECT_EQ(squares.unit, 16);
  EXPECT_EQ(squares.probe_rate, 0.05);
  EXPECT_EQ(squares.probes_per_row, 4);
  EXPECT_EQ(set.initial_density, 0.05);
  EXPECT_EQ(set.probe_rate, 0.1);
  EXPECT_EQ(describe_attention(tiny("sbm")), "sbm edgewise squares");
  EXPECT_EQ(parse_recipe(to_toml(tiny("window+sbm")), "again"), tiny("window+sbm"));
  EXPECT_THAT(kit::message_of([] { tiny("sbm", {"sbm.initial_density=1"}); }),
              HasSubstr("sbm.initial_density"));
}

TEST(SquareRecipes, OfTheProjectLoad) {
  for (const std::string name : {"lra/image/sbm-squares", "lra/listops/sbm-squares", "lm/sbm-squares"}) {
    const Recipe recipe = load_recipe(EDGEWISE_SOURCE_DIR "/recipes/" + name + ".toml");
    EXPECT_EQ(recipe.attention.unit, 16) << name;
    EXPECT_EQ(parse_recipe(to_toml(recipe), "again"), recipe) << name;
  }
}

// A text's own group must come from somewhere.
TEST(SquareRecipes, OfTextsNeedTheirOwnGroup) {
  const std::string text = "[data]\nname = \"characters\"\npath = \"none\"\n[attention]\nunit = 16\n";
  const auto complaint = [&](std::vector<std::string> settings) {
    return kit::message_of([&] { parse_recipe(text, "r", settings); });
  };
  EXPECT_THAT(complaint({"attention.kind=sbm"}),
              AllOf(HasSubstr("sbm.self_loops = true"), HasSubstr("window+sbm")));
  EXPECT_EQ(complaint({"attention.kind=sbm", "sbm.self_loops=true"}), "no error");
  EXPECT_EQ(complaint({"attention.kind=window+sbm"}), "no error");
  for (const std::string kind : {"sac", "indexer"}) {
    EXPECT_THAT(complaint({"attention.kind=" + kind}), HasSubstr("window+" + kind));
    EXPECT_EQ(complaint({"attention.kind=window+" + kind, "window.sinks=4"}), "no error");
  }
}

TEST(SquareRecipes, CostLess) {
  const AttentionKind& kind = attention_kind("sbm");
  const HeadSize size{.n = 1024, .d = 32, .density = 0.05};
  Recipe single = parse_recipe("[attention]\nkind = \"sbm\"\n", "r"), squares = single;
  squares.attention.unit = 16;
  const Operations edges = edge_operations(size.n, size.d, size.density);
  EXPECT_NEAR(flops(kind.cost(squares, size)) - flops(edges),
              (flops(kind.cost(single, size)) - flops(edges)) / 16, 0.15 * flops(edges));
}

class SquareRun : public testing::TestWithParam<const char*> {};

TEST_P(SquareRun, ResumesBitForBitAndEvaluatesFromItsCheckpoint) {
  const Recipe recipe = tiny(GetParam(), {"train.snapshot_every=6"});
  const auto dataset = noise_dataset(recipe);
  const kit::ScratchFolder scratch;
  struct Stop {};
  const auto run = [&](const std::string& folder, bool resume, int64_t stop_after) {
    TrainerOptions options;
    options.run_folder = scratch / folder;
    options.resume = resume;
    options.after_step = [=](int64_t steps) {
      if (steps == stop_after) throw Stop();
    };
    Trainer trainer(recipe, dataset, options);
    trainer.run();
  };
  run("whole", false, 0);
  EXPECT_THROW(run("cut", false, 4), Stop);
  run("cut", true, 0);
  const ModelPtr whole = build_model(recipe, *dataset), cut = build_model(recipe, *dataset);
  load_checkpoint((scratch / "whole/checkpoints/last.safetensors").string(), *whole);
  load_checkpoint((scratch / "cut/checkpoints/last.safetensors").string(), *cut);
  for (const auto& item : whole->named_parameters())
    EXPECT_TRUE(torch::equal(item.value(), cut->named_parameters()[item.key()])) << item.key();
  const tasks::TaskPtr task = task_over(recipe, dataset);
  EvaluationOptions evaluation;
  evaluation.max_examples = 8;
  EXPECT_EQ(evaluate(*whole, *task, data::Split::kTest, evaluation).loss,
            evaluate(*cut, *task, data::Split::kTest, evaluation).loss);
  const SnapshotFile snapshot(scratch / "whole" / "snapshots" / "step-00000006.safetensors");
  EXPECT_EQ(snapshot.about().inputs.at(0).layers.at(1).unit, 16);
}
INSTANTIATE_TEST_SUITE_P(Kinds, SquareRun,
                         testing::Values("full", "window", "random", "sbm", "window+sbm", "sac", "window+sac",
                                         "indexer", "window+indexer"));

}  // namespace
}  // namespace edgewise::train
