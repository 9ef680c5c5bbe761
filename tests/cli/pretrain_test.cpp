// Pre-training by hidden tokens and fine-tuning on GLUE, as the page has it, on tiny data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/pages.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kTiny =
    " --set model.layers=1 --set model.dim=32 --set model.heads=2 --set model.hidden=64 --set "
    "train.warmup_steps=5 --set train.batch=8 --set train.eval_every=20 --set train.threads=1 ";

// CoLA in its official form: two words of a sentence are in order, or not.
std::string cola(int rows) {
  std::string text;
  for (int n = 0; n < rows; ++n) {
    text += n % 2 ? "x\t1\t\tedges of head " : "x\t0\t\tof edges head ";
    text += std::to_string(n % 7);
    text += "\n";
  }
  return text;
}

TEST(PreTraining, ThePageWorksAndAClassifierBeginsWithTheEncoder) {
  const ScratchFolder scratch;
  link_project(scratch);
  const std::vector<std::string> lines = commands_of("pretrain.md", "# Pre-train on text");
  ASSERT_EQ(lines.size(), 2u);
  const Call text = shell(scratch, lines[0]);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("byte-bpe of 400 ids"), HasSubstr("bytes a token")));
  const Call masked = shell(scratch, lines[1]);
  ASSERT_EQ(masked.status, 0) << masked.err;
  EXPECT_THAT(masked.out, AllOf(HasSubstr("loss per hidden token"), HasSubstr("token frequencies alone")));
  EXPECT_THAT(shell(scratch, "edgewise eval runs/pages --json").out, HasSubstr("\"masked_loss\": "));
  EXPECT_THAT(shell(scratch, "edgewise predict runs/pages").err,
              HasSubstr("learned to fill in masked words"));

  std::filesystem::create_directory(scratch / "CoLA");
  scratch.write("CoLA/train.tsv", cola(200));
  scratch.write("CoLA/dev.tsv", cola(40));
  const Call glue = shell(
      scratch, "edgewise data glue cola --from . --tokenizer data/pages/reader/tokenizer --out data/cola");
  ASSERT_EQ(glue.status, 0) << glue.err;
  EXPECT_THAT(glue.out,
              AllOf(HasSubstr("2 classes, judged by matthews, byte-bpe of 400 ids"),
                    testing::ContainsRegex("validation +10 "), testing::ContainsRegex("test +40 ")));
  const std::string tune = std::string("edgewise train recipes/texts/glue.toml") + kTiny +
                           "--set model.max_length=64 --set train.weights=runs/pages ";
  const Call tuned = shell(scratch, tune + "--set data.path=data/cola --set train.steps=60 --run runs/cola");
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.err,
              testing::ContainsRegex(
                  "starts with [0-9]+ tensors of .*new in this model: 4, head\\.linear1\\.bias .*of that "
                  "file not used: 5, head\\.bias"));
  EXPECT_THAT(tuned.out, HasSubstr("test Matthews correlation "));
  EXPECT_THAT(shell(scratch, "edgewise eval runs/cola").out,
              AllOf(HasSubstr("macro F1"), HasSubstr("accuracy")));
  EXPECT_THAT(shell(scratch, "edgewise compare runs/cola").out, HasSubstr("test matthews, %"));
  scratch.write("test.tsv", "index\tsentence\n0\tedges of head 3\n");
  EXPECT_THAT(shell(scratch, "edgewise predict runs/cola test.tsv --text sentence").out,
              HasSubstr("{\"line\":2,\"label\":"));

  // Another tokeniser means other words.
  ASSERT_EQ(shell(scratch, "edgewise data glue cola --from . --tokenizer bytes --out data/other").status, 0);
  EXPECT_THAT(shell(scratch, tune + "--set data.path=data/other --set train.steps=5").err,
              AllOf(HasSubstr("those of the data come from another tokeniser"),
                    HasSubstr("/runs/pages/reader/tokenizer")));
}

}  // namespace
}  // namespace edgewise::cli
