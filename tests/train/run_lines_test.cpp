// What a run says while it trains.
#include "train/run/run_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace edgewise::train {
namespace {

StepReport report() {
  StepReport result;
  result.task_loss = result.loss = 0.5;
  result.accuracy = 0.175;
  result.density = torch::full({2, 2}, 0.25, torch::kDouble);
  return result;
}

std::string shown(const ProgressFields& fields) {
  std::string text;
  for (const auto& [name, value] : fields) text += (text.empty() ? "" : " ") + name + "=" + value;
  return text;
}

TEST(RunLines, TheLossIsTheTasks) {
  StepReport found = report();
  EXPECT_EQ(shown(step_fields(found, tasks::accuracy())), "loss=0.5 accuracy=17.5% density=25%");
  found.loss = 0.75;
  EXPECT_EQ(shown(step_fields(found, tasks::accuracy())), "loss=0.5 accuracy=17.5% density=25% penalty=0.25");
  EXPECT_EQ(shown(step_fields(found, tasks::bits_per_character())),
            "loss=0.5 bits/char=0.7213 density=25% penalty=0.25");
}

TEST(RunLines, SharesAreInPercent) {
  Evaluation found;
  found.accuracy = 0.175;
  found.loss = 0.6931;
  found.density = torch::full({2, 2}, 0.004, torch::kDouble);
  EXPECT_EQ(validation_line(50, found), "step 50: validation accuracy 17.50 %, loss 0.6931, density 0.40 %");
  found.metric = &tasks::bits_per_character();
  EXPECT_EQ(validation_line(50, found),
            "step 50: validation bits per character 0.9999, loss 0.6931, density 0.40 %");
}

}  // namespace
}  // namespace edgewise::train
