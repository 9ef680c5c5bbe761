// When a benchmark says that the machine is busy.
#include "bench/timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace edgewise::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Timing, TakesMedianSpreadAndBestOfRepeatsInAnyOrder) {
  const Timing timing = timing_of({3, 1, 2, 5, 4});
  EXPECT_EQ(timing.median_ms, 3);
  EXPECT_EQ(timing.spread, (4. - 2.) / 3.);
  EXPECT_EQ(timing.best_ms, 1);
  EXPECT_EQ(timing.disturbance(), 3);
  EXPECT_EQ(timing_of({7}).disturbance(), 1);
}

TEST(Timing, WarnsOfMediansFarFromTheBestRepeat) {
  const auto warning = [](std::vector<double> repeats) {
    return disturbance_warning(timing_of(std::move(repeats)).disturbance());
  };
  EXPECT_EQ(warning({1, 1, 1, 1, 1}), "");
  EXPECT_EQ(warning({1, 1.2, 1.25, 1.3, 40}), "") << "one repeat that was disturbed is no busy machine";
  EXPECT_EQ(warning({1, 1.9, 1.99, 2.5, 3}), "");
  EXPECT_THAT(warning({1, 2, 2, 2, 2}), HasSubstr("a median is 2.0 times its best repeat"));
  EXPECT_THAT(warning({1, 9, 9.6, 11, 12}),
              AllOf(HasSubstr("this machine is busy: a median is 9.6 times its best repeat"),
                    HasSubstr("OMP_WAIT_POLICY=passive")));
}

}  // namespace
}  // namespace edgewise::app
