// Wrong usage: one line that names the command, what was wrong and what is near it; exit status 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/call.h"

namespace edgewise::cli {
namespace {

struct Case {
  std::vector<std::string> arguments;
  std::string message;
};

// All cases at once, each a process of its own: most of its time is the loading of libtorch.
TEST(Usage, IsExplainedInOneLine) {
  const std::vector<Case> cases = {
      Case{{},
           "edgewise: expected a command: train, sweep, eval, predict, generate, translate, bleu, compare, "
           "cost, reproduce, "
           "explore, report, "
           "data, "
           "sample, bench "
           "or "
           "doctor; see "
           "edgewise --help"},
      Case{{"trian", "recipe.toml"}, "edgewise: unknown command 'trian'; did you mean train?"},
      Case{{"data", "lstops", "--out", "x"},
           "edgewise data: unknown command 'lstops'; did you mean listops?"},
      Case{{"train", "recipe.toml", "--resum"},
           "edgewise train: unknown option --resum; did you mean --resume?"},
      // The run is missing too, but the option is what was mistyped.
      Case{{"eval", "--drws=3"}, "edgewise eval: unknown option --drws; did you mean --draws?"},
      Case{{"eval"}, "edgewise eval: run is required; see edgewise eval --help"},
      Case{{"eval", "x", "--draws"}, "edgewise eval: --draws: expected a value; see edgewise eval --help"},
      Case{{"eval", "x", "--draws", "-1"},
           "edgewise eval: --draws: expected a whole number of at least 1; got '-1'; see edgewise eval "
           "--help"},
      Case{{"eval", "x", "--checkpoint", "lats"},
           "edgewise eval: --checkpoint: expected mean, best or last; got 'lats'; did you mean last?"},
      Case{{"data", "listops", "--out", "x", "--train", "many"},
           "edgewise data listops: --train: expected a whole number of at least 1; got 'many'; see "
           "edgewise data "
           "listops --help"},
      Case{{"sample", "x", "--exploration", "-0.5"},
           "edgewise sample: --exploration: expected a number of at least 0; got '-0.5'; see edgewise "
           "sample --help"},
      Case{{"train"},
           "edgewise train: expected a recipe, e.g. recipes/demo/edgewise.toml; see edgewise train --help"},
      Case{{"train", "--resume"},
           "edgewise train: --resume: expected a run folder, e.g. edgewise train --resume runs/mine; got "
           "none; "
           "see edgewise train --help"},
      Case{{"train", "--resume", "x.toml", "--run"},
           "edgewise train: --run: expected a value; see edgewise train --help"},
      Case{{"eval", "x", "--record", "--split", "train"},
           "edgewise eval: --record: expected --split test; got train. A run's own record has validation "
           "figures already; see edgewise eval --help"},
      Case{{"generate", "x", "--prompt", ""},
           "edgewise generate: --prompt: expected at least one character; got none; see edgewise generate "
           "--help"},
      Case{
          {"bench", "sample", "--law", "poison"},
          "edgewise bench sample: --law: expected bernoulli or poisson; got 'poison'; did you mean poisson?"},
      Case{{"bench", "sample", "--sampler", "squezed"},
           "edgewise bench sample: --sampler: expected auto, squeezed, thinning, fastrg or direct; got "
           "'squezed'; did you mean squeezed?"},
      Case{{"bench", "sample", "--model", "shapr"},
           "edgewise bench sample: --model: expected near-uniform, degrees, noisy or sharp; got 'shapr'; did "
           "you mean sharp?"},
      Case{{"bench", "attention", "--seconds", "inf"},
           "edgewise bench attention: --seconds: expected a finite number above 0; got 'inf'; see edgewise "
           "bench attention --help"},
      Case{{"bench", "attention", "--seconds", "1e999"},
           "edgewise bench attention: --seconds: expected a finite number above 0; got '1e999'; see edgewise "
           "bench attention --help"},
      Case{{"bench", "attention", "--n", "99999999999999999999"},
           "edgewise bench attention: --n: expected a whole number from 1 to 9223372036854775807; got "
           "'99999999999999999999'; see edgewise bench attention --help"},
      Case{{"bench", "cuda", "--dtype", "bf61"},
           "edgewise bench cuda: --dtype: expected bf16 or fp32; got 'bf61'; did you mean bf16?"},
      Case{{"eval", "x", "--split", "val"},
           "edgewise eval: --split: expected train, validation or test; got 'val'; did you mean validation?"},
      Case{{"eval", "x", "--quiet"}, "edgewise eval: unknown option --quiet; see edgewise eval --help"},
      Case{{"doctor", "--n", "512"},
           "edgewise doctor: --n: expected it with --explain, which asks about a shape; got it without; see "
           "edgewise doctor --help"},
      Case{{"doctor", "--json", "--device", "cpu"},
           "edgewise doctor: --device: expected it with --explain, which asks about a shape; got it without; "
           "see edgewise doctor --help"},
      Case{{"generate", "x", "--device", "metal"},
           "edgewise generate: --device: expected cpu or cuda; got 'metal'; see edgewise generate --help"}};
  const std::vector<kit::ScratchFolder> scratch(cases.size());
  std::vector<Running> running;
  for (size_t i = 0; i < cases.size(); ++i) running.emplace_back(scratch[i], cases[i].arguments);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Call result = running[i].wait();
    EXPECT_EQ(result.status, 2) << cases[i].message;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, cases[i].message + "\n");
  }
}

TEST(Usage, OfAKeyOrValueThatNoRecipeHas) {
  const kit::ScratchFolder scratch;
  for (const std::string set : {"train.steps=many", "train.stps=3", "train.steps"}) {
    const Call result =
        call(scratch, {"train", EDGEWISE_SOURCE_DIR "/recipes/demo/edgewise.toml", "--set", set});
    EXPECT_EQ(result.status, 2) << set;
    EXPECT_THAT(result.err, testing::HasSubstr("--set " + set + ": "));
  }
}

TEST(Usage, OfADeviceThatIsNoneNamesThoseThatAre) {
  const kit::ScratchFolder scratch;
  const Call result = call(scratch, {"doctor", "--explain", "--device", "gpu"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, testing::HasSubstr("cpu or cuda; got 'gpu'; did you mean cuda?"));
}

TEST(Usage, OfABenchmarkOfTheCpuNamesTheOneOfAGpu) {
  const kit::ScratchFolder scratch;
  for (const std::string what : {"attention", "step", "sample"}) {
    SCOPED_TRACE(what);
    const Call refused = call(scratch, {"bench", what, "--device", "cuda"});
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, testing::AllOf(testing::HasSubstr("--device: expected cpu"),
                                            testing::HasSubstr("On a GPU: edgewise bench cuda")));
    EXPECT_THAT(call(scratch, {"bench", what, "--help"}).out, testing::HasSubstr("edgewise bench cuda"));
  }
  EXPECT_EQ(call(scratch, {"bench", "attention", "--device", "cpu", "--n", "16", "--dim", "8", "--density",
                           "0.5", "--seconds", "0.01"})
                .status,
            0);
}

// What cannot be had on any machine: more than addresses reach.
TEST(Errors, OfMemorySayWhatToLower) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer ends a process that asks for so much";
#endif
  using testing::AllOf, testing::HasSubstr;
  const kit::ScratchFolder scratch;
  const auto bench = [&](const char* length) {
    return call(scratch, {"bench", "attention", "--n", length, "--seconds", "0.01"});
  };
  const Call memory = bench("1000000000000000");
  EXPECT_EQ(memory.status, 1);
  EXPECT_THAT(memory.err, AllOf(HasSubstr("edgewise: not enough memory: "), HasSubstr("TiB could not be had"),
                                HasSubstr("Lower --n, --heads or --dim"), HasSubstr("DefaultCPUAllocator")));
  const Call overflow = bench("9000000000000000000");
  EXPECT_EQ(overflow.status, 1);
  EXPECT_THAT(overflow.err, AllOf(HasSubstr("more bytes than can be counted"), HasSubstr("Lower --n"),
                                  HasSubstr("(Storage size calculation overflowed")));
  // A child process has explained it; its parent does not do so again.
  const Call scaling = call(scratch, {"bench", "scaling", "--n", "1000000000000000", "--rounds", "1"});
  EXPECT_EQ(scaling.status, 1);
  EXPECT_EQ(scaling.err.find("Lower --n"), scaling.err.rfind("Lower --n"));
  EXPECT_THAT(scaling.err, HasSubstr("failed: not enough memory: "));
  const Call list = call(scratch, {"train", write_tiny_recipe(scratch), "--run", scratch.file("run"),
                                   "--quiet", "--set", "train.batch=1000000000000000"});
  EXPECT_EQ(list.status, 1);
  EXPECT_THAT(list.err,
              AllOf(HasSubstr("not enough memory"), HasSubstr("Lower train.micro_batch, train.batch"),
                    HasSubstr("(std::bad_alloc)")));
}

TEST(Errors, AFolderThatIsNotThereIsCalledSo) {
  const kit::ScratchFolder scratch;
  const std::string none = scratch.file("none");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"eval", none},
                                             {"generate", none},
                                             {"compare", none},
                                             {"report", none},
                                             {"train", "--resume", none}}) {
    SCOPED_TRACE(arguments[0]);
    const Call result = call(scratch, arguments);
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, testing::HasSubstr("there is no folder " + none));
  }
}

}  // namespace
}  // namespace edgewise::cli
