// Prefetcher: order, exceptions in their place, and a clean end at any moment.
#include <edgewise/data/prefetcher.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "data/expect_error.h"

namespace edgewise::data {
namespace {

Batch numbered(int64_t step) {
  return {.towers = {{.tokens = at::full({1, 1}, step, at::kLong)}}};
}
int64_t number(const Batch& batch) {
  return batch.towers[0].tokens.item<int64_t>();
}

TEST(Prefetcher, KeepsTheOrderAndEndsAtTheLastStep) {
  Prefetcher prefetcher(numbered, 5, 50, 3);
  for (int64_t step = 5; step < 50; ++step) EXPECT_EQ(number(prefetcher.next()), step);
  EXPECT_ERROR(prefetcher.next(), "step 50 is the end");
}

TEST(Prefetcher, AnExceptionComesAfterTheBatchesBeforeIt) {
  Prefetcher prefetcher(
      [](int64_t step) {
        if (step == 2) throw std::runtime_error("broken file");
        return numbered(step);
      },
      0, 10, 4);
  EXPECT_EQ(number(prefetcher.next()), 0);
  EXPECT_EQ(number(prefetcher.next()), 1);
  EXPECT_THROW(prefetcher.next(), std::runtime_error);
  EXPECT_THROW(prefetcher.next(), std::runtime_error);  // and again, rather than hanging
}

TEST(Prefetcher, PreparesAtMostAheadBatchesAndStopsWhenDropped) {
  std::atomic<int> made = 0;
  {
    Prefetcher prefetcher([&](int64_t step) { return ++made, numbered(step); }, 0, 1'000'000, 2);
    EXPECT_EQ(number(prefetcher.next()), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_LE(made, 3);
  }
  EXPECT_LE(made, 3);
}

TEST(Prefetcher, NothingToMakeIsFine) {
  Prefetcher prefetcher(numbered, 3, 3);
  EXPECT_ERROR(prefetcher.next(), "step 3 is the end");
  EXPECT_ERROR(Prefetcher(numbered, 0, 1, 0), "ahead to be at least 1; got 0");
}

}  // namespace
}  // namespace edgewise::data
