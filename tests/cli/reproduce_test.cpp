// reproduce lra and files of runs: trained runs as tables beside the paper's figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "cli/call.h"
#include "cli/written_runs.h"
#include "report/student.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

TEST(ReproduceLra, GroupsSeedsAndStandsBesideThePaper) {
  const ScratchFolder scratch;
  const std::string published = "kind = \"sbm\"\npreset = \"published\"",
                    edgewise = "kind = \"sbm\"\npreset = \"edgewise\"";
  write_run(scratch, "p0", listops_recipe(published, 0), "0.37", "[0.2, 0.2, 0.2, 0.2]");
  write_run(scratch, "p1", listops_recipe(published, 1), "0.38", "[0.1, 0.1, 0.1, 0.1]");
  write_run(scratch, "e0", listops_recipe(edgewise, 0, "density_weight = 0.05\n"), "0.405",
            "[0.01, 0.01, 0.03, 0.03]");
  write_run(scratch, "d0", listops_recipe("kind = \"dense\"", 0), "0.375", "[1.0, 1.0, 1.0, 1.0]");
  const Call result = call(scratch, {"reproduce", "lra", scratch.file("p0"), scratch.file("p1"),
                                     scratch.file("e0"), scratch.file("d0"), "--svg", scratch.file("plots")});
  ASSERT_EQ(result.status, 0) << result.err;
  // Two seeds of published, whose density is of all pairs, beside the paper's figure.
  EXPECT_THAT(result.out,
              testing::ContainsRegex(
                  "p +SBM published +0 +37.50 ± 0.71 \\(2\\) +- +15.00 +5000 x 128 +37.45 at 20.09"));
  EXPECT_THAT(result.out, testing::ContainsRegex("e0 +SBM edges +0.05 +40.50 +2.00 +- +5000 x 128 +- "));
  EXPECT_THAT(result.out, HasSubstr("the first token alone: 36.20 %"));
  EXPECT_THAT(result.out, testing::ContainsRegex("e0 +than dense +d0 +3.00 +- +1 +- +not known"));
  EXPECT_THAT(result.out, testing::ContainsRegex("0.01 +38.20 +2.95 +e0 +40.50 +2.00 +2.30 +-"));
  EXPECT_EQ(result.out.find("of the published examples"), std::string::npos);  // all were seen
  const std::string plot = scratch.read("plots/listops.svg");
  EXPECT_THAT(plot, testing::AllOf(testing::StartsWith("<svg"), HasSubstr("first token"),
                                   HasSubstr("the paper&#39;s SBM"), HasSubstr("single edges"),
                                   HasSubstr("<polygon")));
  EXPECT_FALSE(std::filesystem::exists(scratch / "plots/text.svg"));
}

// Run folders and the file that tools/pack-runs makes of them tell the same, to the last digit.
TEST(RunFile, StandsForTheFoldersItWasMadeOf) {
  const ScratchFolder scratch;
  std::string folders;
  std::vector<std::string> places;
  for (const int seed : {0, 1, 2}) {
    const std::string name = "dense-" + std::to_string(seed);
    write_run(scratch, name, listops_recipe("kind = \"dense\"", seed), "0.3" + std::to_string(7 + seed / 2),
              "[1.0, 1.0, 1.0, 1.0]");
    std::string metrics;
    for (int step = 1; step <= 301; ++step)  // more than a file keeps
      metrics += R"({"kind": "train", "step": )" + std::to_string(step) +
                 R"(, "task_loss": 1.5, "density": [1.0],)" + R"( "time_examples_per_s": )" +
                 std::to_string(step % 7) + R"(.25, "memory_peak_mb": )" + std::to_string(step) + ".5}\n";
    scratch.write(name + "/metrics.jsonl", metrics + scratch.read(name + "/metrics.jsonl"));
    scratch.write(name + "/env.json", "{}");
    scratch.write(name + "/data.json",
                  R"({"name": "listops", "train": 96000, "validation": 2000, "test": 7})");
    places.push_back(scratch.file(name));
    folders += " " + scratch.file(name);
  }
  const std::string file = scratch.file("runs.jsonl");
  ASSERT_EQ(std::system((EDGEWISE_SOURCE_DIR "/tools/pack-runs " + file + folders).c_str()), 0);
  EXPECT_LT(std::filesystem::file_size(file), 30000u);
  const auto told = [&](std::vector<std::string> arguments, const std::vector<std::string>& runs,
                        const std::string& option = "") {
    arguments.insert(arguments.end(), runs.begin(), runs.end());
    if (!option.empty()) arguments.push_back(option);
    const Call result = call(scratch, arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(told({"reproduce", "lra"}, {file}), told({"reproduce", "lra"}, places));
  EXPECT_THAT(told({"reproduce", "lra"}, {file}),
              testing::ContainsRegex("37.33 ± 0.58 \\(3\\).*other data"));  // the data it noted
  EXPECT_EQ(told({"compare"}, {file}, "--seeds"), told({"compare"}, places, "--seeds"));
  EXPECT_EQ(told({"compare", "--only", "-[12]$", "--leave-out", "2"}, {file}),
            told({"compare"}, {places[1]}));
  const Call none = call(scratch, {"compare", file, "--only", "sparse"});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err, HasSubstr("expected at least one run"));
}

TEST(RunFile, SaysWhichLineIsNone) {
  const ScratchFolder scratch;
  const std::string torn = scratch.write("torn.jsonl", "{\"run\": \"a\", \"recipe\": \"\"}\n");
  const Call result = call(scratch, {"reproduce", "lra", torn});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, testing::AllOf(HasSubstr("torn.jsonl line 1"), HasSubstr("tools/pack-runs")));
  const Call empty = call(scratch, {"compare", scratch.write("empty.jsonl", "")});
  EXPECT_EQ(empty.status, 1);
  EXPECT_THAT(empty.err, HasSubstr("it is empty"));
}

// The figures of docs/reproduce.md, from the runs in results/.
TEST(RunFile, ResultsHoldTheTablesOfTheDocuments) {
  const ScratchFolder scratch;
  const std::string results = EDGEWISE_SOURCE_DIR "/results/";
  const Call lra = call(scratch, {"reproduce", "lra", results + "lra.jsonl"});
  ASSERT_EQ(lra.status, 0) << lra.err;
  for (const char* figure :
       {"39.60 ± 1.22 \\(3\\) +2.42 ", "38.80 +0.42 ", "42.20 ± 0.40 \\(3\\) +1.34 +1.34 ",
        "42.39 ± 0.66 \\(2\\) +2.26 ", "SBM published +0.0001 +37.27 ± 0.84 \\(3\\)",
        "84.63 +0.65 .*other data", "75.33 +5.71 .*started from", "68.22 +.*6.24 "})
    EXPECT_THAT(lra.out, testing::ContainsRegex(figure));
  const Call sac = call(scratch, {"compare", results + "sac.jsonl", "--seeds"});
  EXPECT_THAT(sac.out, testing::ContainsRegex("counterfactual +1000 +99.80 ± 0.11 \\(3\\)"));
  const Call lm = call(scratch, {"compare", results + "lm.jsonl"});
  EXPECT_THAT(lm.out, testing::ContainsRegex("transformer-xl +transformer_xl +2000 +1.8104 +1.9622"));
  const Call tokens = call(scratch, {"compare", results + "repeated-tokens.jsonl"});
  EXPECT_THAT(tokens.out, testing::ContainsRegex("published-seed1 +2000 +75.28"));
}

// A run that patience ended is complete, however long its seeds were; of one that saw less than the paper it
// is said.
TEST(ReproduceLra, KnowsWhatPatienceEnded) {
  const ScratchFolder scratch;
  const std::string recipe = "kind = \"dense\"",
                    patient = "patience = 2\neval_every = 312\nlog_every = 100\n";
  write_run(scratch, "long", listops_recipe(recipe, 0, patient), "0.37", "[1.0, 1.0, 1.0, 1.0]");
  write_run(scratch, "short", listops_recipe(recipe, 1, patient), "0.37", "[1.0, 1.0, 1.0, 1.0]", 312);
  scratch.write(
      "short/metrics.jsonl",
      R"({"kind": "eval", "step": 312, "split": "validation", "loss": 1.0, "accuracy": 0.5, "density": [1.0]}
{"kind": "eval", "step": 624, "split": "validation", "loss": 1.0, "accuracy": 0.4, "density": [1.0]}
{"kind": "train", "step": 900, "task_loss": 1.5, "density": [1.0], "time_examples_per_s": 5.0, "memory_peak_mb": 7.0}
{"kind": "eval", "step": 936, "split": "validation", "loss": 1.0, "accuracy": 0.4, "density": [1.0]}
{"kind": "test", "step": 936, "split": "test", "loss": 1.25, "accuracy": 0.37, "density": [1.0]}
)");
  const std::string one = scratch.file("long"), other = scratch.file("short");
  const Call found = call(scratch, {"reproduce", "lra", one, other}),
             turned = call(scratch, {"reproduce", "lra", other, one});
  ASSERT_EQ(found.status, 0) << found.err;
  EXPECT_THAT(found.out, testing::AllOf(HasSubstr("ended by patience"), HasSubstr("37.00 ± 0.00 (2)"),
                                        HasSubstr("19 % of the published examples")));
  EXPECT_THAT(turned.out, HasSubstr("19 % of the published examples"));
  EXPECT_THAT(call(scratch, {"compare", one, other, "--seeds"}).out, HasSubstr("936 to 5000"));
}

// Runs of one training at several penalties are a line; another training is apart.
TEST(ReproduceLra, JoinsWhatDiffersInItsPenaltyAlone) {
  const ScratchFolder scratch;
  const auto write = [&](const std::string& name, const std::string& weight, const std::string& more) {
    write_run(scratch, name,
              listops_recipe("kind = \"sbm\"\npreset = \"edgewise\"", 0,
                             "density_weight = " + weight + "\n" + more),
              "0.4", "[0.01, 0.01, 0.03, 0.03]");
    return scratch.file(name);
  };
  const std::string one = write("one", "0.1", ""), two = write("two", "0.2", ""),
                    other = write("other", "0.3", "learning_rate = 0.125\n");
  const auto plot = [&](const std::vector<std::string>& runs) {
    std::vector<std::string> arguments = {"reproduce", "lra", "--svg", scratch.file("plots")};
    arguments.insert(arguments.end(), runs.begin(), runs.end());
    EXPECT_EQ(call(scratch, arguments).status, 0);
    return scratch.read("plots/listops.svg");
  };
  EXPECT_THAT(plot({one, two}), testing::Not(HasSubstr("other training")));
  EXPECT_THAT(plot({one, two, other}), HasSubstr("single edges, other training"));

  // Even if that is the best on validation.
  std::string metrics = scratch.read("other/metrics.jsonl");
  metrics.replace(metrics.find("\"accuracy\": 0.5"), 15, "\"accuracy\": 0.6");
  scratch.write("other/metrics.jsonl", metrics);
  const auto a_line = testing::ContainsRegex("<path d=\"M[0-9. ]+L");
  EXPECT_THAT(plot({one, two, other}), a_line);
  EXPECT_THAT(plot({one, other}), testing::Not(a_line));
}

TEST(ReproduceLra, TellsWhatTheTestSetChoseAndWhatWasTurned) {
  const ScratchFolder scratch;
  const auto recipe = [](const std::string& data) {
    return "[data]\npath = \"none\"\n" + data + "\n[attention]\nkind = \"dense\"\n";
  };
  write_run(scratch, "own", recipe("name = \"text\""), "0.61", "[1.0]");
  write_run(scratch, "test", recipe("name = \"text\"\nvalidation = \"test\""), "0.69", "[1.0]");
  write_run(scratch, "turned", recipe("name = \"image\"\nsymmetries = \"mirror\""), "0.4", "[1.0]");
  const Call alone = call(scratch, {"reproduce", "lra", scratch.file("test"), scratch.file("turned")});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_THAT(alone.out, testing::AllOf(HasSubstr("69.00"), HasSubstr("the test set chose the checkpoint"),
                                        HasSubstr("data.symmetries = mirror")));
  const Call both = call(scratch, {"reproduce", "lra", scratch.file("own"), scratch.file("test")});
  EXPECT_THAT(both.out, testing::AllOf(testing::ContainsRegex("own +dense +- +61.00 "),
                                       testing::ContainsRegex("test +dense +- +69.00 ")));
}

TEST(ReproduceLra, MarksOtherDataAndOtherStarts) {
  const ScratchFolder scratch;
  const auto recipe = [](const std::string& task, const std::string& train) {
    return "[data]\nname = \"" + task + "\"\npath = \"none\"\n[attention]\nkind = \"sbm\"\n[train]\n" + train;
  };
  write_run(scratch, "pairs", recipe("retrieval", ""), "0.84", "[0.01]");
  write_run(scratch, "official", recipe("image", "weights = \"elsewhere\"\n"), "0.41", "[0.02]");
  std::filesystem::copy_file(
      scratch.write("pairs.json",
                    R"({"name": "retrieval", "train": 43510, "validation": 5438, "test": 5440})"),
      scratch / "pairs/data.json");
  std::filesystem::copy_file(
      scratch.write("image.json", R"({"name": "image", "train": 45000, "validation": 5000, "test": 10000})"),
      scratch / "official/data.json");
  const Call result = call(scratch, {"reproduce", "lra", scratch.file("pairs"), scratch.file("official"),
                                     "--svg", scratch.file("plots")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              testing::AllOf(HasSubstr("84.00"), HasSubstr("41.00"), HasSubstr("other data than the paper's"),
                             HasSubstr("started from elsewhere")));
  EXPECT_THAT(scratch.read("plots/retrieval.svg"), testing::Not(HasSubstr("dense, paper")));
  EXPECT_THAT(scratch.read("plots/image.svg"), HasSubstr("dense, paper"));
}

TEST(ReproduceLra, SaysWhichRunsWereStopped) {
  const ScratchFolder scratch;
  write_run(scratch, "d0", listops_recipe("kind = \"dense\"", 0), "0.375", "[1.0, 1.0, 1.0, 1.0]", 4000);
  const Call result = call(scratch, {"reproduce", "lra", scratch.file("d0")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("stopped at step 4000"));
  EXPECT_THAT(result.out, HasSubstr("80 % of the published examples"));
}

TEST(ReproduceLra, CountsASeedOnce) {
  const ScratchFolder scratch;
  write_run(scratch, "d0", listops_recipe("kind = \"dense\"", 0), "0.375", "[1.0, 1.0, 1.0, 1.0]");
  write_run(scratch, "again", listops_recipe("kind = \"dense\"", 0), "0.375", "[1.0, 1.0, 1.0, 1.0]");
  const Call result = call(scratch, {"reproduce", "lra", scratch.file("d0"), scratch.file("again")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out.find("(2)"), std::string::npos);
  EXPECT_THAT(result.err, HasSubstr("repeats recipe and seed of"));
}

TEST(ReproduceLra, ShowsRunsWithoutATestByTheirValidation) {
  const ScratchFolder scratch;
  const std::string recipe =
      listops_recipe("kind = \"sbm\"\npreset = \"edgewise\"", 0, "density_weight = 0.05\n");
  write_run(scratch, "e0", recipe, "", "", 3000);
  const Call result = call(scratch, {"reproduce", "lra", scratch.file("e0"), "--svg", scratch.file("plots")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              testing::ContainsRegex("e0 +listops +3000 of 5000 +50.00 +10.00 +stopped at step 3000"));
  EXPECT_THAT(scratch.read("plots/listops.svg"),
              testing::AllOf(HasSubstr("no test yet: best validation"), HasSubstr(">e0<")));
}

// A run that was stopped has its test all the same where it looked at the whole test set; and a line of its
// own beside what was chosen otherwise.
TEST(ReproduceLra, TakesTheBestLookWhereTheTestSetValidates) {
  const ScratchFolder scratch;
  const auto recipe = [](const std::string& validation, const std::string& more) {
    return "[data]\nname = \"text\"\npath = \"none\"\nvalidation = \"" + validation +
           "\"\n[attention]\nkind = \"sbm\"\npreset = \"edgewise\"\n[train]\nsteps = 20000\n" + more;
  };
  write_run(scratch, "look", recipe("test", "density_weight = 0.3\n"), "", "", 3000);
  write_run(scratch, "own", recipe("own", "density_weight = 0.3\n"), "0.61", "[0.2]", 20000);
  write_run(scratch, "part", recipe("test", "density_weight = 0.5\neval_batches = 2\n"), "", "", 3000);
  write_run(scratch, "none", recipe("own", "density_weight = 0.5\n"), "", "", 3000);
  const auto reproduce = [&](const std::vector<std::string>& names) {
    std::vector<std::string> arguments = {"reproduce", "lra", "--svg", scratch.file("plots")};
    for (const std::string& name : names) arguments.push_back(scratch.file(name));
    const Call result = call(scratch, arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(reproduce({"look"}),
              testing::AllOf(testing::ContainsRegex("look +SBM edges +0.3 +50.00 +10.00"),
                             HasSubstr("stopped at step 3000"),
                             HasSubstr("the best look at the test set, as published")));
  EXPECT_THAT(reproduce({"look", "own"}),
              testing::AllOf(HasSubstr("the best look at the test set"),
                             testing::ContainsRegex("own +SBM edges +0.3 +61.00")));
  EXPECT_THAT(scratch.read("plots/text.svg"),
              testing::AllOf(HasSubstr(">single edges<"), HasSubstr("single edges, chosen on test")));
  EXPECT_THAT(reproduce({"part", "none"}),
              testing::AllOf(testing::Not(HasSubstr("best look")), testing::Not(HasSubstr("test accuracy"))));
}

// What was tried beside the method does not stand for it.
TEST(ReproduceLra, LeavesOutFoldersWithoutARecipe) {
  const ScratchFolder scratch;
  write_run(scratch, "whole", listops_recipe("kind = \"dense\"", 0), "0.37", "[1.0]");
  write_run(scratch, "half", listops_recipe("kind = \"dense\"", 1), "0.38", "[1.0]");
  std::filesystem::remove(scratch / "half/config.toml");
  const Call result = call(scratch, {"reproduce", "lra", scratch.file("whole"), scratch.file("half")});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("half is not a run folder (it has no config.toml); left out"));
  EXPECT_THAT(result.out, testing::AllOf(HasSubstr("37.00"), testing::Not(HasSubstr("38.00"))));
}

TEST(ReproduceLra, MarksVariationsAndShowsThemLast) {
  const ScratchFolder scratch;
  const std::string preset = "kind = \"sbm\"\npreset = \"edgewise\"", weight = "density_weight = 0.3\n";
  write_run(scratch, "method", listops_recipe(preset, 0, weight), "0.41", "[0.02]");
  write_run(scratch, "slower", listops_recipe(preset, 0, weight + "edge_rate = 0.5\n"), "0.42", "[0.03]");
  write_run(scratch, "sharper", listops_recipe(preset + "\ncluster_std = 0.5", 0, weight), "0.43", "[0.04]");
  const Call alone = call(scratch, {"reproduce", "lra", scratch.file("slower")});
  EXPECT_THAT(alone.out, testing::ContainsRegex("42.00 .*a variation; train.edge_rate = 0.5"));
  const Call all = call(
      scratch, {"reproduce", "lra", scratch.file("method"), scratch.file("slower"), scratch.file("sharper")});
  EXPECT_THAT(all.out, testing::AllOf(testing::ContainsRegex("41.00 +2.00 "),
                                      testing::ContainsRegex("43.00 .*a variation; cluster_std = 0.5")));
}

TEST(ReproduceLra, MarksShortRunsAndRefusesOthers) {
  const ScratchFolder scratch;
  std::string recipe = listops_recipe("kind = \"dense\"", 0);
  recipe.replace(recipe.find("5000"), 4, "500");
  write_run(scratch, "d", recipe, "0.3", "[1.0, 1.0, 1.0, 1.0]");
  EXPECT_THAT(call(scratch, {"reproduce", "lra", scratch.file("d")}).out,
              HasSubstr("10 % of the published examples"));
  write_run(scratch, "other", "", "0.3", "[1.0]");
  const Call other = call(scratch, {"reproduce", "lra", scratch.file("other")});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, testing::AllOf(HasSubstr("left out"), HasSubstr("of the Long Range Arena")));
  const Call with_other = call(scratch, {"reproduce", "lra", scratch.file("other"), scratch.file("d")});
  EXPECT_EQ(with_other.status, 0) << with_other.err;
  EXPECT_THAT(with_other.out, HasSubstr("30.00"));
  const Call missing = call(scratch, {"reproduce", "lra", scratch.file("d"), scratch.file("none")});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("there is no folder " + scratch.file("none")));
  std::filesystem::create_directory(scratch / "empty");
  const Call some = call(scratch, {"reproduce", "lra", scratch.file("empty"), scratch.file("d")});
  EXPECT_EQ(some.status, 0) << some.err;
  EXPECT_THAT(some.err, HasSubstr("is not a run folder (it has no metrics.jsonl); left out"));
}

// What is best at step 0 of a run that began with another's weights is the other's.
TEST(ReproduceLra, LeavesOutRunsThatNeverBeatTheirStart) {
  const ScratchFolder scratch;
  const std::string recipe =
      listops_recipe("kind = \"sbm\"\npreset = \"edgewise\"", 0, "weights = \"runs/first\"\n");
  const auto reproduce = [&] {
    return call(scratch, {"reproduce", "lra", scratch.file("run"), "--svg", scratch.file("plots")});
  };
  write_run(scratch, "run", recipe, "0.4321", "[0.01, 0.01, 0.03, 0.03]");
  EXPECT_THAT(reproduce().out, testing::AllOf(HasSubstr("43.21"), HasSubstr("started from runs/first")));
  scratch.write(
      "run/metrics.jsonl",
      R"({"kind": "eval", "step": 0, "split": "validation", "loss": 1.0, "accuracy": 0.6, "density": [0.1]}
)" + scratch.read("run/metrics.jsonl"));
  const Call result = reproduce();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, testing::AllOf(testing::Not(HasSubstr("43.21")),
                                         HasSubstr("figures of its start, runs/first")));
  EXPECT_THAT(result.err, HasSubstr("never better than the weights it began with"));
}

TEST(ReproduceLra, ATestWithoutAccuracyIsAnError) {
  const ScratchFolder scratch;
  write_run(scratch, "run", listops_recipe("kind = \"dense\"", 0), "0.4", "[1.0]");
  std::string metrics = scratch.read("run/metrics.jsonl");
  metrics.erase(metrics.find("\"accuracy\": 0.4, "), 17);
  scratch.write("run/metrics.jsonl", metrics);
  for (const std::string command : {"reproduce lra", "compare"}) {
    std::vector<std::string> arguments = {scratch.file("run")};
    command == "compare" ? arguments.insert(arguments.begin(), "compare")
                         : arguments.insert(arguments.begin(), {"reproduce", "lra"});
    const Call result = call(scratch, arguments);
    EXPECT_EQ(result.status, 1) << command;
    EXPECT_THAT(result.err, HasSubstr("expected an accuracy in the test record"));
  }
}

// A sweep's folder: rows that differ in their seed alone, and differences over the seeds that both have.
TEST(ReproduceLra, ComparesRowsOfASweepSeedBySeed) {
  const ScratchFolder scratch;
  const auto write = [&](const std::string& row, int seed, const std::string& attention,
                         const std::string& more, const std::string& accuracy, const std::string& density) {
    write_run(scratch, "sweep/" + row + "-" + std::to_string(seed), listops_recipe(attention, seed, more),
              accuracy, "[" + density + "]");
    scratch.write("sweep/" + row + "-" + std::to_string(seed) + "/env.json", "{}");
  };
  std::filesystem::create_directories(scratch / "sweep/.logs");
  const std::string sbm = "kind = \"sbm\"\n", squares = sbm + "unit = 16\n";
  const std::vector<std::string> dense = {"0.370", "0.376", "0.379"}, learned = {"0.390", "0.397", "0.398"},
                                 random = {"0.380", "0.370", "0.400"};
  for (int seed = 0; seed < 3; ++seed) {
    const auto at = static_cast<size_t>(seed);
    write("dense", seed, "kind = \"dense\"", "", dense[at], "1.0");
    write("squares", seed, squares, "density_weight = 0.05\n", learned[at], "0.02");
    write("random-squares", seed, squares, "edge_rate = 0.0\n", random[at], "0.03");
    write("edges", seed, sbm, "density_weight = 0.05\n", learned[at], "0.1");  // another density
  }
  write("dense", 7, "kind = \"dense\"", "", "0.1", "1.0");  // a seed that the others lack
  scratch.write("sweep/squares-0/step.json", "{\"step_ms\": 3.0, \"dense_ms\": 11.0}\n");
  scratch.write("sweep/dense-0/step.json", "{\"step_ms\": 12.0, \"dense_ms\": 12.0}\n");
  const auto reproduce = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"reproduce", "lra", scratch.file("sweep")};
    words.insert(words.end(), more.begin(), more.end());
    return call(scratch, words);
  };
  const Call found = reproduce({"--svg", scratch.file("plots")});
  ASSERT_EQ(found.status, 0) << found.err;
  // Differences 2.0, 2.1, 1.9: mean 2.00, deviation 0.1, error 0.06, t = 34.6.
  EXPECT_THAT(found.out, testing::ContainsRegex("squares +than dense +dense +2.00 +0.06 +3 +<0.001 +above"));
  // Differences 1.0, 2.7, -0.2: mean 1.17, error 0.84, t = 1.39.
  EXPECT_THAT(found.out,
              testing::ContainsRegex(
                  "squares +than random of its density +random-squares +1.17 +0.84 +3 +0.300 +level"));
  EXPECT_THAT(found.out, testing::Not(testing::ContainsRegex("squares +than single edges")));
  EXPECT_THAT(found.out, testing::ContainsRegex(
                             "squares +SBM squares +0.05 +39.50 ± 0.44 \\(3\\) +2.00 .* 3.00 +0.25 "));
  EXPECT_THAT(found.out, testing::ContainsRegex("random-squares +random squares +- +38.33"));
  EXPECT_EQ(scratch.read("plots/listops-time.svg").find("no data"), std::string::npos);
  EXPECT_THAT(scratch.read("plots/listops.svg"), HasSubstr("random squares"));

  const Call json = reproduce({"--json"});
  EXPECT_THAT(json.out,
              testing::AllOf(HasSubstr(R"("task":"listops")"), HasSubstr(R"("verdict":"above")"),
                             HasSubstr(R"("seeds":[0,1,2])"), HasSubstr(R"("step_over_dense":0.25)")));
  EXPECT_THAT(reproduce({"--markdown"}).out,
              HasSubstr("| squares | SBM squares | 0.05 | 39.50 ± 0.44 (3) | 2.00 |"));
  const Call other = reproduce({"--task", "image"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("expected at least one run"));
  EXPECT_EQ(reproduce({"--task", "imge"}).status, 2);

  // The same from one file, with the command that made it.
  scratch.write("sweep/.logs/commands",
                "edgewise sweep first.toml\nbin/edgewise sweep listops.toml --jobs 8\n");
  ASSERT_EQ(std::system((EDGEWISE_SOURCE_DIR "/tools/pack-runs " + scratch.file("packed.jsonl") + " " +
                         scratch.file("sweep") + " 2> " + scratch.file("said"))
                            .c_str()),
            0)
      << scratch.read("said");
  EXPECT_THAT(scratch.read("packed.jsonl"), HasSubstr("\"edgewise sweep listops.toml --jobs 8\""));
  EXPECT_EQ(call(scratch, {"reproduce", "lra", scratch.file("packed.jsonl"), "--json"}).out, json.out);
}

// Densities over valid pairs and over all: of what counts padding and of what does not.
TEST(ReproduceLra, TellsBothDensities) {
  const ScratchFolder scratch;
  const auto write = [&](const std::string& name, const std::string& preset, const std::string& more) {
    write_run(scratch, name, listops_recipe("kind = \"sbm\"\npreset = \"" + preset + "\"", 0), "0.4",
              "[0.2, 0.2, 0.2, 0.2], " + more);
  };
  write("ours", "edgewise", "\"valid_pairs\": 0.25");
  write("theirs", "published", "\"valid_pairs\": 0.25, \"density_of_valid_pairs\": [0.3, 0.3, 0.3, 0.3]");
  const Call found = call(scratch, {"reproduce", "lra", scratch.file("ours"), scratch.file("theirs")});
  ASSERT_EQ(found.status, 0) << found.err;
  EXPECT_THAT(found.out,
              testing::AllOf(testing::ContainsRegex("ours +SBM edges +0 +40.00 +20.00 +5.00 "),
                             testing::ContainsRegex("theirs +SBM published +0 +40.00 +30.00 +20.00 ")));
}

TEST(Student, HasTheProbabilitiesOfTables) {
  using app::student_p;
  // Two degrees of freedom have a closed form, 1 - t / sqrt(2 + t^2); the others are of printed tables.
  EXPECT_NEAR(student_p(2, 2), 1 - 2 / std::sqrt(6.0), 1e-12);
  EXPECT_NEAR(student_p(1, 1), 0.5, 1e-12);
  EXPECT_NEAR(student_p(12.7062, 1), 0.05, 1e-6);
  EXPECT_NEAR(student_p(2.77645, 4), 0.05, 1e-6);
  EXPECT_NEAR(student_p(-2.77645, 4), 0.05, 1e-6);
  EXPECT_NEAR(student_p(0.5, 30), 0.620723, 1e-6);
  EXPECT_EQ(student_p(0, 3), 1);
}

}  // namespace
}  // namespace edgewise::cli
