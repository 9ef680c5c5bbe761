// reproduce and report: a trained run beside the paper's figures, and as one HTML file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "cli/call.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

// A run folder as training leaves it, with the given test figures; no accuracy: stopped before its test.
void write_run(const ScratchFolder& scratch, const std::string& name, const std::string& recipe,
               const std::string& accuracy, const std::string& density, int64_t step = 5000) {
  std::filesystem::create_directories(scratch / name);
  scratch.write(name + "/config.toml", recipe);
  const std::string at = "\"step\": " + std::to_string(step) + ", ";
  scratch.write(
      name + "/metrics.jsonl",
      "{\"kind\": \"train\", " + at +
          R"("task_loss": 1.5, "density": [0.2, 0.3, 0.1, 0.4], "time_examples_per_s": 5.0, "memory_peak_mb": 7.0}
{"kind": "eval", )" +
          at +
          R"("split": "validation", "loss": 1.0, "accuracy": 0.5, "density": [0.1, 0.1, 0.1, 0.1]}
)" +
          (accuracy.empty() ? ""
                            : R"({"kind": "test", )" + at + R"("split": "test", "loss": 1.25, "accuracy": )" +
                                  accuracy + R"(, "density": )" + density + "}\n"));
}

std::string listops_recipe(const std::string& attention, int seed, const std::string& more = "") {
  return "[data]\nname = \"listops\"\npath = \"none\"\n[attention]\n" + attention +
         "\n[train]\nsteps = 5000\nbatch = 128\nseed = " + std::to_string(seed) + "\n" + more;
}

TEST(Compare, MakesOneRowOfRunsThatDifferInTheirSeed) {
  const ScratchFolder scratch;
  write_run(scratch, "dense-0", listops_recipe("kind = \"dense\"", 0), "0.37", "[1.0, 1.0, 1.0, 1.0]");
  write_run(scratch, "dense-1", listops_recipe("kind = \"dense\"", 1), "0.38", "[1.0, 1.0, 1.0, 1.0]");
  write_run(scratch, "full-0", listops_recipe("kind = \"full\"", 0), "0.39", "[1.0, 1.0, 1.0, 1.0]");
  const std::vector<std::string> runs = {scratch.file("dense-0"), scratch.file("dense-1"),
                                         scratch.file("full-0")};
  const auto compare = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"compare"};
    arguments.insert(arguments.end(), runs.begin(), runs.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(scratch, arguments);
  };
  const Call together = compare({"--seeds", "--svg", scratch.file("curves.svg")});
  ASSERT_EQ(together.status, 0) << together.err;
  EXPECT_THAT(together.out, testing::ContainsRegex("dense  +5000  +37.50 ± 0.71 \\(2\\)"));
  EXPECT_THAT(together.out, testing::ContainsRegex("full-0  +5000  +39.00 "));
  EXPECT_THAT(together.out, testing::Not(HasSubstr("dense-0")));
  EXPECT_THAT(scratch.read("curves.svg"), HasSubstr(">dense<"));
  const Call alone = compare({});
  EXPECT_THAT(alone.out, testing::AllOf(HasSubstr("dense-0"), HasSubstr("dense-1")));
  const Call twice = compare({scratch.file("dense-1")});
  EXPECT_EQ(twice.status, 1);
  EXPECT_THAT(twice.err, HasSubstr("twice"));
  // Seeds that begin with the same digit.
  write_run(scratch, "seed-10", listops_recipe("kind = \"dense\"", 10), "0.37", "[1.0, 1.0, 1.0, 1.0]");
  write_run(scratch, "seed-11", listops_recipe("kind = \"dense\"", 11), "0.38", "[1.0, 1.0, 1.0, 1.0]");
  const Call tens = call(scratch, {"compare", scratch.file("seed-10"), scratch.file("seed-11"), "--seeds"});
  EXPECT_THAT(tens.out, testing::Not(HasSubstr("seed-1 ")));
}

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
  EXPECT_THAT(result.out, HasSubstr("37.50 ± 0.71 (2)"));  // two seeds of published
  EXPECT_THAT(result.out, HasSubstr("37.50 ± 0.71 (2) @ 15.00"));
  EXPECT_THAT(result.out, HasSubstr("37.45 @ 20.09"));  // the paper's
  EXPECT_THAT(result.out, HasSubstr("40.50 @ 2.00"));
  EXPECT_THAT(result.out, HasSubstr("the first token alone: 36.20 %"));
  EXPECT_THAT(result.out, HasSubstr("edgewise, 0.05"));
  EXPECT_EQ(result.out.find("37.50*"), std::string::npos);  // the published number of examples was seen
  const std::string plot = scratch.read("plots/listops.svg");
  EXPECT_THAT(
      plot, testing::AllOf(testing::StartsWith("<svg"), HasSubstr("first token"),
                           HasSubstr("paper&#39;s SBM"), HasSubstr("ours, edgewise"), HasSubstr("<polygon")));
  EXPECT_FALSE(std::filesystem::exists(scratch / "plots/text.svg"));
}

// Run folders and the file that tools/condense-runs makes of them tell the same, to the last digit.
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
  ASSERT_EQ(std::system((EDGEWISE_SOURCE_DIR "/tools/condense-runs " + file + folders).c_str()), 0);
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
  EXPECT_THAT(told({"reproduce", "lra"}, {file}), HasSubstr("37.33 ± 0.58 (3)‡"));  // the data it noted
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
  EXPECT_THAT(result.err, testing::AllOf(HasSubstr("torn.jsonl line 1"), HasSubstr("tools/condense-runs")));
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
       {"39.60 ± 1.22 (3) @ 2.42", "38.80 @ 0.42", "42.20 ± 0.40 (3)* @ 1.34", "42.39 ± 0.66 (2)* @ 2.26",
        "37.27 ± 0.84 (3), lambda 0.0001", "84.63*‡ @ 0.65", "75.33*§ @ 5.71", "68.22* @ 6.24"})
    EXPECT_THAT(lra.out, HasSubstr(figure));
  const Call sac = call(scratch, {"compare", results + "sac.jsonl", "--seeds"});
  EXPECT_THAT(sac.out, testing::ContainsRegex("edge-credit +1500 +99.70 ± 0.29 \\(3\\)"));
  const Call lm = call(scratch, {"compare", results + "lm.jsonl"});
  EXPECT_THAT(lm.out, testing::ContainsRegex("transformer-xl +transformer_xl +2000 +1.8104 +1.9622"));
  const Call tokens = call(scratch, {"compare", results + "repeated-tokens.jsonl"});
  EXPECT_THAT(tokens.out, testing::ContainsRegex("published-seed1 +2000 +75.28"));
}

// A run that patience ended is complete, however long its seeds were; one that saw less than the paper has
// its star.
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
  EXPECT_THAT(found.out,
              testing::AllOf(HasSubstr("no better from step 312 on"), HasSubstr("37.00 ± 0.00 (2)*")));
  EXPECT_THAT(turned.out, HasSubstr("37.00 ± 0.00 (2)*"));
  EXPECT_THAT(call(scratch, {"compare", one, other, "--seeds"}).out, HasSubstr("936 to 5000"));
}

// Where a recipe says that its data lies, other data may lie by now.
TEST(Baselines, AreOfTheRunsOwnData) {
  const ScratchFolder scratch;
  ASSERT_EQ(call(scratch, {"data", "listops", "--out", scratch.file("data"), "--train", "3", "--validation",
                           "2", "--test", "4", "--jobs", "1"})
                .status,
            0);
  std::string recipe = listops_recipe("kind = \"dense\"", 0);
  recipe.replace(recipe.find("none"), 4, scratch.file("data"));
  write_run(scratch, "run", recipe, "0.37", "[1.0, 1.0, 1.0, 1.0]");
  const auto compare = [&] { return call(scratch, {"compare", scratch.file("run")}); };
  const auto reproduce = [&] { return call(scratch, {"reproduce", "lra", scratch.file("run")}); };
  const std::string on_test_set = "% (on the test set in " + scratch.file("data") + ")";
  const auto expect_baselines = [&] {
    const Call compared = compare();
    EXPECT_THAT(compared.out, HasSubstr("(first token only)"));
    EXPECT_EQ(compared.err, "");
    EXPECT_THAT(reproduce().out, HasSubstr(on_test_set));
  };
  expect_baselines();  // a run that did not note its data
  scratch.write("run/data.json", "{\"name\": \"listops\", \"train\": 3, \"validation\": 2, \"test\": 4}\n");
  expect_baselines();

  scratch.write("run/data.json",
                "{\"name\": \"listops\", \"train\": 96000, \"validation\": 2000, \"test\": 2000}\n");
  const Call compared = compare(), reproduced = reproduce();
  EXPECT_EQ(compared.status, 0);
  EXPECT_THAT(compared.out, testing::AllOf(HasSubstr("37.00"), testing::Not(HasSubstr("first token"))));
  EXPECT_THAT(compared.err, testing::AllOf(HasSubstr("no baselines: "), HasSubstr("expected the data of "),
                                           HasSubstr("\"test\": 2000}"), HasSubstr("\"test\": 4}")));
  EXPECT_EQ(reproduced.status, 0);
  EXPECT_THAT(reproduced.out, HasSubstr("the first token alone: 36.20 % (of the distribution)"));
  EXPECT_THAT(reproduced.err, HasSubstr("\"test\": 4}"));

  // Files that cannot be read keep nobody from the table.
  std::filesystem::remove(scratch / "data/basic_train.tsv");
  const Call unreadable = compare();
  EXPECT_EQ(unreadable.status, 0);
  EXPECT_THAT(unreadable.out, HasSubstr("37.00"));
  EXPECT_THAT(unreadable.err, HasSubstr("no baselines: no ListOps data in "));
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
  EXPECT_THAT(plot({one, two, other}), HasSubstr("ours, edgewise, other training"));

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
  EXPECT_THAT(alone.out, testing::AllOf(HasSubstr("69.00*†"), HasSubstr("data.symmetries = mirror")));
  const Call both = call(scratch, {"reproduce", "lra", scratch.file("own"), scratch.file("test")});
  EXPECT_THAT(both.out, testing::AllOf(HasSubstr("61.00*"), testing::Not(HasSubstr("†  ")),
                                       testing::Not(HasSubstr("69.00*"))));
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
              testing::AllOf(HasSubstr("84.00*‡"), HasSubstr("41.00*§"),
                             HasSubstr("other data than the paper's"), HasSubstr("started from elsewhere")));
  EXPECT_THAT(scratch.read("plots/retrieval.svg"), testing::Not(HasSubstr("full, paper")));
  EXPECT_THAT(scratch.read("plots/image.svg"), HasSubstr("full, paper"));
}

TEST(ReproduceLra, SaysWhichRunsWereStopped) {
  const ScratchFolder scratch;
  write_run(scratch, "d0", listops_recipe("kind = \"dense\"", 0), "0.375", "[1.0, 1.0, 1.0, 1.0]", 4000);
  const Call result = call(scratch, {"reproduce", "lra", scratch.file("d0")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("stopped at step 4000"));
  EXPECT_THAT(result.out, HasSubstr("37.50*"));  // fewer examples than published
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
  EXPECT_THAT(result.out, HasSubstr("10.00 % (validation)"));
  EXPECT_THAT(result.out, HasSubstr("stopped at step 3000"));
  EXPECT_THAT(scratch.read("plots/listops.svg"),
              testing::AllOf(HasSubstr("no test yet: best validation"), HasSubstr("edgewise 0.05")));
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
              testing::AllOf(HasSubstr("50.00*† @ 10.00"), HasSubstr("stopped at step 3000"),
                             HasSubstr("the best look at the test set, as published")));
  EXPECT_THAT(reproduce({"look", "own"}), testing::AllOf(HasSubstr("edgewise, 0.3, chosen on test"),
                                                         testing::ContainsRegex("edgewise, 0.3  .*61.00")));
  EXPECT_THAT(scratch.read("plots/text.svg"),
              testing::AllOf(HasSubstr(">ours, edgewise<"), HasSubstr("ours, edgewise, chosen on test")));
  EXPECT_THAT(reproduce({"part", "none"}),
              testing::AllOf(testing::Not(HasSubstr("best look")), testing::Not(HasSubstr("50.00*"))));
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
  EXPECT_THAT(alone.out, testing::AllOf(HasSubstr("42.00¶"), HasSubstr("train.edge_rate = 0.5")));
  const Call all = call(
      scratch, {"reproduce", "lra", scratch.file("method"), scratch.file("slower"), scratch.file("sharper")});
  EXPECT_THAT(all.out, testing::AllOf(HasSubstr("41.00 @ 2.00"), HasSubstr("cluster_std = 0.5"),
                                      testing::Not(HasSubstr("00¶")), testing::Not(HasSubstr("@ 3.00"))));
}

TEST(ReproduceLra, MarksShortRunsAndRefusesOthers) {
  const ScratchFolder scratch;
  std::string recipe = listops_recipe("kind = \"dense\"", 0);
  recipe.replace(recipe.find("5000"), 4, "500");
  write_run(scratch, "d", recipe, "0.3", "[1.0, 1.0, 1.0, 1.0]");
  EXPECT_THAT(call(scratch, {"reproduce", "lra", scratch.file("d")}).out, HasSubstr("30.00*"));
  write_run(scratch, "other", "", "0.3", "[1.0]");
  const Call other = call(scratch, {"reproduce", "lra", scratch.file("other")});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, testing::AllOf(HasSubstr("left out"), HasSubstr("of the Long Range Arena")));
  const Call with_other = call(scratch, {"reproduce", "lra", scratch.file("other"), scratch.file("d")});
  EXPECT_EQ(with_other.status, 0) << with_other.err;
  EXPECT_THAT(with_other.out, HasSubstr("30.00*"));
  const Call missing = call(scratch, {"reproduce", "lra", scratch.file("d"), scratch.file("none")});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("there is no folder " + scratch.file("none")));
  EXPECT_THAT(call(scratch, {"reproduce", "lra", scratch.path()}).err, HasSubstr("is not a run folder"));
  const Call some = call(scratch, {"reproduce", "lra", scratch.path(), scratch.file("d")});
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
  EXPECT_THAT(reproduce().out, testing::AllOf(HasSubstr("43.21§"), HasSubstr("started from runs/first")));
  scratch.write(
      "run/metrics.jsonl",
      R"({"kind": "eval", "step": 0, "split": "validation", "loss": 1.0, "accuracy": 0.6, "density": [0.1]}
)" + scratch.read("run/metrics.jsonl"));
  const Call result = reproduce();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, testing::AllOf(testing::Not(HasSubstr("43.21§")),
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

// The report of a run of a Pathfinder recipe, a few steps on 40 pictures.
std::string pathfinder_report(const ScratchFolder& scratch, const std::string& recipe,
                              const std::vector<std::string>& settings) {
  EXPECT_EQ(call(scratch, {"data", "pathfinder", "--generate", "--size", "40", "--out", scratch.file("data")})
                .status,
            0);
  std::vector<std::string> train = {"train", EDGEWISE_SOURCE_DIR "/recipes/lra/pathfinder/" + recipe, "--run",
                                    scratch.file("run"), "--quiet"};
  std::vector<std::string> all = {"data.path=" + scratch.file("data"), "train.warmup_steps=0",
                                  "train.batch=2", "train.threads=1"};
  all.insert(all.end(), settings.begin(), settings.end());
  for (const std::string& setting : all) train.insert(train.end(), {"--set", setting});
  const Call trained = call(scratch, train);
  EXPECT_EQ(trained.status, 0) << trained.err;
  const Call reported = call(scratch, {"report", scratch.file("run"), "--show", "1"});
  EXPECT_EQ(reported.status, 0) << reported.err;
  EXPECT_EQ(reported.out, scratch.file("run/report.html") + "\n");
  return scratch.read("run/report.html");
}

TEST(Report, HasCurvesDensitiesSettingsAndPictures) {
  const ScratchFolder scratch;
  const std::string html = pathfinder_report(scratch, "sbm-edgewise.toml",
                                             {"train.steps=2", "train.log_every=1", "sbm.clusters=4"});
  for (const char* part :
       {"<!DOCTYPE html>", "Training loss", "Validation accuracy", "Density by layer and head",
        "layer 1, head 1", "best on validation", "most frequent label", "<h3>Easy</h3>", "<h3>Hard</h3>",
        "data:image/png;base64,iVBOR", "density_weight = 0.01", "torch_version", "</html>"})
    EXPECT_THAT(html, HasSubstr(part));
  EXPECT_EQ(html.find("http://www.w3.org/2000/svg"), html.find("http"));  // nothing is loaded from elsewhere
  EXPECT_EQ(html.find("https:"), std::string::npos);
}

// At its start a head has a quarter of the pairs: of those of lit pixels, when black ones are masked.
TEST(Report, PicturesCountPairsOfUnmaskedPixels) {
  const ScratchFolder scratch;
  const std::string html =
      pathfinder_report(scratch, "best-sbm-edgewise.toml",
                        {"train.steps=1", "train.density_start=0", "train.density_warmup=0"});
  const std::string caption = "<figcaption>layer 1, head 1: ";
  const size_t at = html.find(caption);
  ASSERT_NE(at, std::string::npos);
  EXPECT_NEAR(std::stod(html.substr(at + caption.size())), 25, 3);
}

TEST(Report, SaysWhyThereAreNoPictures) {
  const ScratchFolder scratch;
  write_run(scratch, "run", listops_recipe("kind = \"sbm\"", 0), "0.4", "[0.1, 0.1, 0.1, 0.1]");
  const Call result = call(scratch, {"report", scratch.file("run"), "--out", scratch.file("r.html")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the inputs of listops are no pictures"));
  EXPECT_THAT(scratch.read("r.html"),
              testing::AllOf(HasSubstr("40.00 %"), HasSubstr("There is no env.json")));
}

}  // namespace
}  // namespace edgewise::cli
