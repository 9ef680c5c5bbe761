// A run from recipe to result through the program: train, stop, resume, eval, compare.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/call.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::AllOf;
using testing::HasSubstr;

TEST(Train, ARecipeBecomesAResult) {
  const ScratchFolder scratch;
  const std::string recipe = write_tiny_recipe(scratch), run = scratch.file("run");
  const Call trained = call(scratch, {"train", recipe, "--run", run, "--set", "train.seed=4"});
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, AllOf(HasSubstr(run + ": test accuracy "), HasSubstr("majority class")));
  EXPECT_THAT(trained.err,
              AllOf(HasSubstr("seed 4"),
                    ::testing::ContainsRegex(
                        "step 3: validation accuracy [0-9.]+ %, loss [0-9.]+, density [0-9.]+ %\n")));
  EXPECT_THAT(trained.err, ::testing::ContainsRegex("train 3/3 .*, accuracy=[0-9.]+%, density=[0-9.]+%\n"));

  const std::string before = scratch.read("run/metrics.jsonl");
  const Call refused = call(scratch, {"eval", run, "--split", "validation", "--record"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--split test"));
  const Call other = call(scratch, {"eval", run, "--record", "--set", "data.test_size=7"});
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(other.err, AllOf(HasSubstr("\"test\": 7"), HasSubstr("without --record")));
  EXPECT_EQ(call(scratch, {"eval", run, "--set", "data.test_size=7"}).status, 0);
  const Call finished = call(scratch, {"eval", run, "--record"});
  EXPECT_EQ(finished.status, 1);
  EXPECT_THAT(finished.err, HasSubstr("expected a run that was stopped before its own test"));
  EXPECT_EQ(scratch.read("run/metrics.jsonl"), before);
  // Of a run without its test: what the end of the training wrote, word for word.
  const size_t test = before.rfind("{\"kind\": \"test\"");
  ASSERT_NE(test, std::string::npos);
  scratch.write("run/metrics.jsonl", before.substr(0, test));
  const Call recorded = call(scratch, {"eval", run, "--record"});
  ASSERT_EQ(recorded.status, 0) << recorded.err;
  EXPECT_EQ(recorded.err, "recorded as the run's test in " + run + "/metrics.jsonl\n");
  EXPECT_THAT(before, AllOf(HasSubstr("\"edge_precision\": "), HasSubstr("\"edge_recall\": ")));
  EXPECT_EQ(scratch.read("run/metrics.jsonl"), before);
  const Call evaluated = call(scratch, {"eval", run, "--split", "validation"});
  EXPECT_EQ(evaluated.status, 0) << evaluated.err;
  EXPECT_THAT(evaluated.out,
              AllOf(HasSubstr("best.safetensors"), ::testing::ContainsRegex("validation examples +16\n")));
  EXPECT_EQ(evaluated.err, "") << "a log hears of long evaluations only";

  const Call compared = call(scratch, {"compare", run, "--svg", scratch.file("curves.svg")});
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_THAT(scratch.read("curves.svg"), HasSubstr("<svg"));

  // What the run folder keeps is what --print-recipe prints: ./run demo compares the two.
  EXPECT_EQ(call(scratch, {"train", recipe, "--print-recipe", "--set", "train.seed=4"}).out,
            scratch.read("run/config.toml"));

  // Nobody trains over a finished run, nor takes its folder for a recipe.
  const Call again = call(scratch, {"train", recipe, "--run", run});
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.err, HasSubstr("expected an empty run folder"));
  const Call folder = call(scratch, {"train", run});
  EXPECT_EQ(folder.status, 1);
  EXPECT_THAT(folder.err, HasSubstr("edgewise train --resume " + run));
}

TEST(Eval, JsonHasWhatTheTableHas) {
  const ScratchFolder scratch;
  const std::string recipe = write_tiny_recipe(scratch);
  const auto train = [&](const std::string& run, const std::string& average) {
    return call(scratch, {"train", recipe, "--run", run, "--quiet", "--set", "train.average=" + average})
        .status;
  };
  const std::string plain = scratch.file("plain"), averaged = scratch.file("averaged");
  ASSERT_EQ(train(plain, "0"), 0);
  ASSERT_EQ(train(averaged, "0.5"), 0);
  const Call json = call(scratch, {"eval", plain, "--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"checkpoint\": \"" + plain + "/checkpoints/best.safetensors\""),
                              HasSubstr("\"weights\": \"trained\""),
                              HasSubstr("\"baselines\": {\"majority class\": 0."),
                              ::testing::ContainsRegex("\"densities\": \\[[0-9.]+, [0-9.]+\\]"),
                              ::testing::ContainsRegex("\"density\": [0-9.]+, ")));
  EXPECT_THAT(call(scratch, {"eval", plain}).out, ::testing::Not(HasSubstr("averaged ")));
  for (const char* checkpoint : {"best", "last"}) {
    EXPECT_THAT(call(scratch, {"eval", averaged, "--json", "--checkpoint", checkpoint}).out,
                HasSubstr("\"weights\": \"averaged\""));
    EXPECT_THAT(call(scratch, {"eval", averaged, "--checkpoint", checkpoint}).out,
                HasSubstr("averaged (train.average = 0.5)"));
  }
}

// A language model: train, evaluate, compare, and let it write.
TEST(Train, ATextBecomesALanguageModel) {
  const ScratchFolder scratch;
  std::string text;
  for (int n = 0; n < 300; ++n) text += n % 3 ? "edges and " : "graphs.\n";
  scratch.write("words.txt", text);
  const std::string run = scratch.file("run");
  const std::string recipe = scratch.write(
      "lm.toml", "[data]\nname = \"characters\"\nlength = 16\npath = \"" + scratch.file("words.txt") + R"("
[model]
layers = 1
dim = 16
heads = 2
hidden = 16
[attention]
kind = "sbm"
[sbm]
clusters = 4
[train]
steps = 4
batch = 4
eval_every = 2
threads = 1
)");
  const Call trained = call(scratch, {"train", recipe, "--run", run});
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, AllOf(HasSubstr("bits per character"), HasSubstr("letter frequencies alone")));
  EXPECT_THAT(call(scratch, {"eval", run}).out, HasSubstr("bits per character"));
  EXPECT_THAT(call(scratch, {"eval", run, "--json"}).out,
              AllOf(HasSubstr("\"bits_per_character\""), HasSubstr("\"letter frequencies alone\"")));
  EXPECT_THAT(call(scratch, {"compare", run}).out, HasSubstr("test bits/char"));

  // The text is not needed any more; the same seed gives the same, with a cache or without.
  std::filesystem::remove(scratch / "words.txt");
  const std::vector<std::string> asked = {"generate", run,  "--prompt", "edges",
                                          "--length", "40", "--seed",   "3"};
  const Call first = call(scratch, asked), again = call(scratch, asked);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.out.size(), 5 + 40 + 1u);
  EXPECT_TRUE(first.out.starts_with("edges"));
  EXPECT_EQ(first.out, again.out);
  std::vector<std::string> plain = asked;
  plain.push_back("--no-cache");
  EXPECT_EQ(call(scratch, plain).out, first.out);
  const Call unknown = call(scratch, {"generate", run, "--prompt", "EDGES"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.err, HasSubstr("'E' is none of the"));
}

// Long enough that the test decides when it ends.
TEST(Train, StopsAndGoesOnFromItsFolderAlone) {
  const ScratchFolder scratch;
  const std::string recipe = write_tiny_recipe(scratch), run = scratch.file("run");
  const Running running(scratch, {"train", recipe, "--run", run, "--set", "train.steps=1000000", "--set",
                                  "train.eval_every=1000000", "--set", "train.checkpoint_every=1000000"});
  for (int i = 0; i < 600 && scratch.read("run/metrics.jsonl").empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  {
    const ScratchFolder other;  // the output of the first is still being written
    const Call second = call(other, {"train", "--resume", run});
    EXPECT_EQ(second.status, 1);
    EXPECT_THAT(second.err,
                AllOf(HasSubstr("the run folder " + run), HasSubstr("another run is training in it")));
    const Call none = call(other, {"eval", run});
    EXPECT_EQ(none.status, 1);
    EXPECT_THAT(none.err, HasSubstr("it has none yet. Go on with: edgewise train --resume " + run + "\n"));
  }
  ASSERT_GT(running.process(), 0);
  ::kill(running.process(), SIGINT);
  const Call stopped = running.wait();
  EXPECT_EQ(stopped.status, 130);
  EXPECT_THAT(stopped.err, HasSubstr("\ncontinue with: edgewise train --resume " + run + "\n"));
  EXPECT_THAT(stopped.err, HasSubstr("1 layer, 2 heads of "));
  EXPECT_NE(stopped.err.find("stopped"), std::string::npos);
  EXPECT_EQ(stopped.err.find("stopped"), stopped.err.rfind("stopped")) << stopped.err;

  // Before the first validation there is no best checkpoint.
  const Call evaluated = call(scratch, {"eval", run});
  EXPECT_EQ(evaluated.status, 0) << evaluated.err;
  EXPECT_THAT(evaluated.err, HasSubstr("using the last"));
  EXPECT_THAT(evaluated.out, HasSubstr("last.safetensors"));
  const Call best = call(scratch, {"eval", run, "--checkpoint", "best"});
  EXPECT_EQ(best.status, 1);
  EXPECT_THAT(best.err, HasSubstr("--checkpoint last"));

  const std::string saved = evaluated.out.substr(evaluated.out.find("(step ") + 6);
  const std::string steps = std::to_string(std::stoll(saved) + 2);
  const Call resumed = call(scratch, {"train", "--resume", run, "--set", "train.steps=" + steps});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("(best validation "));
}

// Published runs are kept without their weights. Neither their data nor --resume would be of use.
TEST(Eval, OfARunWithoutItsWeightsSaysHowToTrainItAgain) {
  const ScratchFolder scratch;
  const std::string run = scratch.file("run");
  ASSERT_EQ(call(scratch, {"train", write_tiny_recipe(scratch), "--run", run, "--quiet"}).status, 0);
  std::filesystem::remove_all(scratch / "run/checkpoints");
  const Call result = call(
      scratch, {"eval", run, "--set", "data.name=pathfinder", "--set", "data.path=" + scratch.file("none")});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "edgewise: eval: expected a checkpoint in " + run +
                            "; it has none: the metrics of this run go up to step 3, and its weights are not "
                            "kept here. Train it again in another folder: edgewise train " +
                            run + "/config.toml --run FOLDER\n");
  EXPECT_THAT(call(scratch, {"train", "--resume", run}).err, HasSubstr("not kept here"));
}

TEST(Train, ResumingNeedsARun) {
  const ScratchFolder scratch;
  EXPECT_THAT(call(scratch, {"train", "--resume"}).err, HasSubstr("expected a run folder"));
  const Call result = call(scratch, {"train", "--resume", scratch.path().string()});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr(scratch.file("config.toml") + "; there is none"));
}

}  // namespace
}  // namespace edgewise::cli
