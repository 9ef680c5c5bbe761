// The schedules against torch.optim.lr_scheduler.OneCycleLR (torch 2.11, anneal_strategy="linear", peak
// 5e-4).
#include <edgewise/train/schedule.h>

#include <vector>

#include <c10/util/Exception.h>
#include <cmath>

#include <gtest/gtest.h>

namespace edgewise::train {
namespace {

struct Golden {
  int64_t step;
  double learning_rate, beta1;
};

void check(int64_t steps, int64_t warmup, const std::vector<Golden>& golden) {
  const Schedule schedule({.kind = ScheduleKind::kOneCycle, .peak = 5e-4, .steps = steps, .warmup = warmup});
  for (const Golden& expected : golden) {
    const SchedulePoint found = schedule.at(expected.step);
    EXPECT_NEAR(found.learning_rate, expected.learning_rate, 1e-15) << "step " << expected.step;
    EXPECT_NEAR(found.beta1, expected.beta1, 1e-12) << "step " << expected.step;
  }
}

TEST(OneCycle, EqualsTorchOnAShortRun) {
  check(20, 4,
        {{0, 2e-05, 0.95},
         {1, 0.00017999999999999998, 0.9166666666666666},
         {2, 0.00033999999999999997, 0.8833333333333333},
         {3, 0.0005, 0.85},
         {4, 0.000468750125, 0.85625},
         {10, 0.000281250875, 0.8937499999999999},
         {18, 3.125187500000002e-05, 0.94375},
         {19, 2.0000000000314905e-09, 0.95}});
}

TEST(OneCycle, EqualsTorchOnTheListOpsRun) {
  check(5000, 1000,
        {{0, 2e-05, 0.95},
         {1, 2.0480480480480483e-05, 0.9498998998998999},
         {500, 0.00026024024024024026, 0.8999499499499499},
         {998, 0.0004995195195195196, 0.8501001001001001},
         {999, 0.0005, 0.85},
         {1000, 0.0004998750005, 0.850025},
         {2500, 0.0003123757505, 0.887525},
         {4998, 1.2699950000005008e-07, 0.949975},
         {4999, 2.0000000000314905e-09, 0.95}});
}

// Runs too short for a warm-up or for a way down must not divide by zero.
TEST(OneCycle, SurvivesTheShortestRuns) {
  const auto at = [](int64_t steps, int64_t warmup, int64_t step) {
    return Schedule({.kind = ScheduleKind::kOneCycle, .peak = 1, .steps = steps, .warmup = warmup})
        .at(step)
        .learning_rate;
  };
  EXPECT_DOUBLE_EQ(at(1, 1, 0), 1);
  EXPECT_DOUBLE_EQ(at(10, 1, 0), 1);
  EXPECT_DOUBLE_EQ(at(10, 10, 9), 1);
  EXPECT_NEAR(at(10, 0, 9), 4e-6, 1e-12);
}

TEST(Constant, StaysPut) {
  const Schedule schedule({.kind = ScheduleKind::kConstant, .peak = 1e-3, .steps = 10, .warmup = 0});
  EXPECT_EQ(schedule.at(0).learning_rate, 1e-3);
  EXPECT_EQ(schedule.at(9).learning_rate, 1e-3);
  EXPECT_EQ(schedule.at(5).beta1, 0.9);
}

// With a warm-up the peak comes in update `warmup`, and half of it midway between there and the end.
TEST(Schedule, CosineFallsFromThePeakTowardsZero) {
  const Schedule plain({.kind = ScheduleKind::kCosine, .peak = 0.1, .steps = 100});
  EXPECT_DOUBLE_EQ(plain.at(0).learning_rate, 0.1);
  EXPECT_NEAR(plain.at(50).learning_rate, 0.05, 1e-12);
  EXPECT_NEAR(plain.at(99).learning_rate, 0.1 * (1 + std::cos(std::acos(-1.0) * 0.99)) / 2, 1e-12);
  EXPECT_GT(plain.at(99).learning_rate, 0);
  const Schedule warmed(
      {.kind = ScheduleKind::kCosine, .peak = 0.2, .steps = 109, .warmup = 10, .initial = 0.1});
  EXPECT_NEAR(warmed.at(0).learning_rate, 0.11, 1e-12);
  EXPECT_NEAR(warmed.at(4).learning_rate, 0.15, 1e-12);
  EXPECT_NEAR(warmed.at(9).learning_rate, 0.2, 1e-12);
  EXPECT_NEAR(warmed.at(59).learning_rate, 0.1, 1e-12);
  for (int64_t step = 10; step < 109; ++step)
    EXPECT_LT(warmed.at(step).learning_rate, warmed.at(step - 1).learning_rate);
}

TEST(RisingWeight, IsWholeFromItsWarmUpOn) {
  EXPECT_EQ((RisingWeight{.whole = 0.3}.at(0)), 0.3);
  const RisingWeight rising{.whole = 0.3, .start = 0, .warmup = 10};
  EXPECT_EQ(rising.at(0), 0);
  EXPECT_DOUBLE_EQ(rising.at(5), 0.15);
  EXPECT_EQ(rising.at(10), 0.3);
  EXPECT_EQ(rising.at(1000), 0.3);
  const RisingWeight later{.whole = 0.3, .start = 100, .warmup = 10};
  EXPECT_EQ(later.at(99), 0);
  EXPECT_EQ(later.at(100), 0);
  EXPECT_DOUBLE_EQ(later.at(105), 0.15);
  EXPECT_EQ(later.at(110), 0.3);
  EXPECT_EQ((RisingWeight{.whole = 0.3, .start = 7, .warmup = 0}.at(7)), 0.3);
}

TEST(Schedule, MistakesAreExplained) {
  EXPECT_THROW(parse_schedule("exponential"), c10::ValueError);
  EXPECT_THROW(Schedule({.kind = ScheduleKind::kOneCycle, .peak = 1, .steps = 5, .warmup = 6}),
               c10::ValueError);
  EXPECT_THROW(Schedule({.kind = ScheduleKind::kOneCycle, .peak = 0, .steps = 5, .warmup = 1}),
               c10::ValueError);
  EXPECT_THROW(Schedule({.kind = ScheduleKind::kOneCycle, .peak = 1, .steps = 5, .warmup = 1}).at(5),
               c10::IndexError);
}

}  // namespace
}  // namespace edgewise::train
