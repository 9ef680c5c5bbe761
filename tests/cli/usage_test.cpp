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
           "edgewise: expected a command: train, eval, generate, compare, cost, reproduce, report, data, "
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
           "edgewise eval: --checkpoint: expected best or last; got 'lats'; did you mean last?"},
      Case{{"data", "listops", "--out", "x", "--train", "many"},
           "edgewise data listops: --train: expected a whole number of at least 0; got 'many'; see "
           "edgewise data "
           "listops --help"},
      Case{{"sample", "x", "--exploration", "-0.5"},
           "edgewise sample: --exploration: expected a number of at least 0; got '-0.5'; see edgewise "
           "sample --help"}};
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

}  // namespace
}  // namespace edgewise::cli
