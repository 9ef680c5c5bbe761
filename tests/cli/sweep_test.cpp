// sweep: the grid that a file says, runs as training alone would make them, and what happens when they stop,
// fail or are done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "cli/call.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::string write_sweep(const ScratchFolder& scratch, const std::string& rows,
                        const std::string& head = "seeds = [0, 1]\n") {
  write_tiny_recipe(scratch);
  return scratch.write("sweep.toml", "runs = \"" + scratch.file("runs") + "\"\n" + head + rows);
}

const std::string kDense =
    "[[row]]\nname = \"dense\"\nrecipe = \"tiny.toml\"\nset.attention.kind = \"dense\"\n";
const std::string kSbm = "[[row]]\nname = \"sbm\"\nrecipe = \"tiny.toml\"\n";

// Lines of metrics without what differs from run to run.
std::string without_times(std::string text) {
  for (const char* name : {"\"time_examples_per_s\": ", "\"time_edges_per_s\": ", "\"memory_peak_mb\": "})
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      const size_t end = text.find_first_of(",}", at);
      text.erase(at, end - at);
    }
  return text;
}

TEST(Sweep, TrainsTheGridAsTrainWould) {
  const ScratchFolder scratch;
  const std::string sweep = write_sweep(scratch, kDense + kSbm + "set.train.learning_rate = [1e-3, 0.01]\n");
  const Call listed = call(scratch, {"sweep", sweep, "--list"});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_THAT(listed.out, AllOf(HasSubstr("sbm-0.001"), HasSubstr("sbm-0.01"), HasSubstr("6 left")));
  EXPECT_FALSE(std::filesystem::exists(scratch / "runs")) << "--list makes nothing";

  const Call swept = call(scratch, {"sweep", sweep, "--jobs", "2"});
  EXPECT_EQ(swept.status, 0) << swept.err;
  EXPECT_THAT(swept.out, AllOf(HasSubstr("6 of 6 done, 0 running, 0 failed, 0 left"),
                               ContainsRegex("dense +2 +[0-9.]+ ± [0-9.]+ \\(2\\) +100.00")));
  EXPECT_THAT(swept.err, ContainsRegex("sbm-0.01-1: test accuracy [0-9.]+ %, density [0-9.]+ %"));
  const Call alone = call(scratch, {"train", scratch.file("tiny.toml"), "--run", scratch.file("alone"),
                                    "--quiet", "--set", "train.learning_rate=0.01", "--set", "train.seed=1"});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(without_times(scratch.read("runs/sbm-0.01-1/metrics.jsonl")),
            without_times(scratch.read("alone/metrics.jsonl")));

  // What is done stays as it is.
  const std::string before = scratch.read("runs/dense-0/metrics.jsonl");
  const Call again = call(scratch, {"sweep", sweep, "--jobs", "2"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("dense-0:")));
  EXPECT_EQ(scratch.read("runs/dense-0/metrics.jsonl"), before);

  // And is not taken for a run of another recipe.
  const Call other = call(scratch, {"sweep", sweep, "--set", "model.dim=32"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, AllOf(HasSubstr("model.dim was 16 and is now 32"), HasSubstr("--runs")));
}

TEST(Sweep, StopsInTimeAndGoesOnBitForBit) {
  const ScratchFolder scratch;
  const std::vector<std::string> endless = {"train.steps=1000000", "train.schedule=constant",
                                            "train.eval_every=500"};
  const std::string sweep = write_sweep(scratch, kSbm, "seeds = [3]\n");
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& settings) {
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return words;
  };
  const auto steps_of = [](const std::string& told) {
    const std::string before = "stopped at step ";
    const size_t at = told.find(before);
    return at == std::string::npos ? 0 : std::stoi(told.substr(at + before.size()));
  };
  const Call stopped = call(scratch, with({"sweep", sweep, "--stop-after", "3"}, endless));
  EXPECT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("goes on where"));
  EXPECT_THAT(stopped.out, HasSubstr("0 of 1 done, 0 running, 0 failed, 1 left"));
  const int first = steps_of(stopped.err);
  EXPECT_GT(first, 0);

  // Stopped by hand, with what it has started.
  const size_t before = scratch.read("runs/sbm-3/metrics.jsonl").size();
  const Running running(scratch, with({"sweep", sweep}, endless));
  const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (scratch.read("runs/sbm-3/metrics.jsonl").size() <= before &&
         std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::kill(running.process(), SIGTERM);
  const Call killed = running.wait();
  EXPECT_EQ(killed.status, 130) << killed.err;
  const int second = steps_of(killed.err);
  EXPECT_GT(second, first);

  // The rest, and the whole in one run.
  std::vector<std::string> whole = endless;
  whole[0] = "train.steps=" + std::to_string(second + 50);
  const Call finished = call(scratch, with({"sweep", sweep}, whole));
  EXPECT_EQ(finished.status, 0) << finished.err;
  whole.push_back("train.seed=3");
  const Call alone = call(
      scratch, with({"train", scratch.file("tiny.toml"), "--run", scratch.file("alone"), "--quiet"}, whole));
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(without_times(scratch.read("runs/sbm-3/metrics.jsonl")),
            without_times(scratch.read("alone/metrics.jsonl")));
}

TEST(Sweep, KeepsTheWeightsThatItIsToldTo) {
  const ScratchFolder scratch;
  const std::string sweep = write_sweep(scratch, kDense, "weights = \"first\"\nseeds = [5, 1]\n");
  ASSERT_EQ(call(scratch, {"sweep", sweep}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(scratch / "runs/dense-5/checkpoints/best.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "runs/dense-5/checkpoints/last.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "runs/dense-1/checkpoints/best.safetensors"));
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "runs/dense-1"))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("tfevents")));
  const Call again = call(scratch, {"sweep", sweep});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("2 of 2 done"));
}

TEST(Sweep, MeasuresTheStepOfARowThatKeepsItsWeights) {
  const ScratchFolder scratch;
  const std::string sweep = write_sweep(scratch, kSbm, "weights = \"first\"\nseeds = [5, 1]\n");
  const Call early = call(scratch, {"sweep", sweep, "--time"});
  EXPECT_EQ(early.status, 1);
  EXPECT_THAT(early.err, HasSubstr("sbm: no finished run with weights to measure"));
  ASSERT_EQ(call(scratch, {"sweep", sweep}).status, 0);
  const Call measured = call(scratch, {"sweep", sweep, "--time"});
  EXPECT_EQ(measured.status, 0) << measured.err;
  EXPECT_EQ(measured.err, "sbm-5: measured\n");
  EXPECT_THAT(scratch.read("runs/sbm-5/step.json"),
              AllOf(ContainsRegex("\"step_ms\":[0-9.]+"), HasSubstr("\"git_commit\":")));
  EXPECT_FALSE(std::filesystem::exists(scratch / "runs/sbm-1/step.json"));
  const Call again = call(scratch, {"sweep", sweep, "--time"});
  EXPECT_EQ(again.status, 0);
  EXPECT_EQ(again.err, "") << "what is measured stays";
  const Call both = call(scratch, {"sweep", sweep, "--time", "--list"});
  EXPECT_EQ(both.status, 2);
}

TEST(Sweep, OneFailureDoesNotStopTheOthers) {
  const ScratchFolder scratch;
  const std::string broken =
      "[[row]]\nname = \"broken\"\nrecipe = \"tiny.toml\"\nset.data.name = \"listops\"\nset.data.path = "
      "\"nowhere\"\n";
  const std::string sweep = write_sweep(scratch, broken + kDense);
  const Call swept = call(scratch, {"sweep", sweep});
  EXPECT_EQ(swept.status, 1);
  EXPECT_THAT(swept.err, AllOf(ContainsRegex("broken-0: failed, status 1: .*nowhere"), HasSubstr(".logs")));
  EXPECT_THAT(swept.out, HasSubstr("2 of 4 done, 0 running, 2 failed, 0 left"));
  const Call given_up = call(scratch, {"sweep", sweep, "--give-up-after", "1"});
  EXPECT_EQ(given_up.status, 1);
  EXPECT_THAT(given_up.out, HasSubstr("2 of 4 done, 0 running, 1 failed, 1 left"));
  EXPECT_THAT(given_up.err, HasSubstr("gave up after 1 failed run"));
}

TEST(Sweep, TellsWhatIsWrongWithItsFile) {
  const ScratchFolder scratch;
  const auto said = [&](const std::string& rows, const std::string& head = "") {
    const Call result = call(scratch, {"sweep", write_sweep(scratch, rows, head), "--list"});
    EXPECT_EQ(result.status, 1) << rows;
    return result.err;
  };
  EXPECT_THAT(said(kDense, "sedes = [1]\n"), AllOf(HasSubstr("unknown key 'sedes'"), HasSubstr("'seeds'")));
  EXPECT_THAT(said(kDense, "seeds = [1, 1]\n"), HasSubstr("1 twice"));
  EXPECT_THAT(said(kDense, "seeds = 3\n"), HasSubstr("expected seeds to be a list"));
  EXPECT_THAT(said(kDense, "weights = \"some\"\n"), HasSubstr("all, best, first or none; found 'some'"));
  EXPECT_THAT(said(kDense + kDense), HasSubstr("dense twice"));
  EXPECT_THAT(said(""), HasSubstr("expected rows"));
  EXPECT_THAT(said(kSbm + "set.train.seed = 1\n"), HasSubstr("expected seeds in the key seeds"));
  EXPECT_THAT(said(kSbm + "set.train.stepz = 1\n"), AllOf(HasSubstr("row sbm"), HasSubstr("train.steps")));
  EXPECT_THAT(said(kSbm + "set.batch = 1\n"), HasSubstr("set.SECTION.KEY"));
  EXPECT_THAT(said("[[row]]\nname = \"a/b\"\nrecipe = \"tiny.toml\"\n"), HasSubstr("found 'a/b'"));
  EXPECT_THAT(said("[[row]]\nname = \"a\"\nrecipe = \"none.toml\"\n"), HasSubstr("none.toml"));
  EXPECT_THAT(said("[[row]\n"), HasSubstr("sweep.toml:2: expected TOML"));
  const Call seed = call(scratch, {"sweep", write_sweep(scratch, kDense), "--set", "train.seed=4"});
  EXPECT_EQ(seed.status, 2);
  EXPECT_THAT(seed.err, HasSubstr("expected seeds in"));
}

}  // namespace
}  // namespace edgewise::cli
