// exp of every level against fp64: within 2 ulp over the whole range, denormal results, the ends and NaN. And
// log of normal numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/levels.h"

namespace edgewise::kernels::cpu {

#define EDGEWISE_DECLARE_EXP(name)                           \
  namespace name {                                           \
  void exp_array(const float* x, int64_t count, float* out); \
  void log_array(const float* x, int64_t count, float* out); \
  }
EDGEWISE_DECLARE_EXP(scalar)
EDGEWISE_DECLARE_EXP(avx2)
EDGEWISE_DECLARE_EXP(avx512)
#undef EDGEWISE_DECLARE_EXP

namespace {

using ExpArray = void (*)(const float*, int64_t, float*);

ExpArray exp_of(Level level) {
#if defined(EDGEWISE_X86_LEVELS)
  if (level == Level::kAvx2) return avx2::exp_array;
  if (level == Level::kAvx512) return avx512::exp_array;
#endif
  return scalar::exp_array;
}

std::vector<float> exp_all(Level level, std::vector<float> x) {
  const size_t count = x.size();
  x.resize((count + 15) / 16 * 16);
  std::vector<float> out(x.size());
  exp_of(level)(x.data(), static_cast<int64_t>(x.size()), out.data());
  out.resize(count);
  return out;
}

TEST(LevelExp, WithinTwoUlpFromTheSmallestDenormalToTheLargestNumber) {
  std::vector<float> x;
  for (float value = -104.5f; value < 88.7f; value += 0x1.0p-11f) x.push_back(value);
  for (float value = 1e-30f; value < 1; value *= 1.1f) x.push_back(value), x.push_back(-value);
  for (const Level level : {Level::kScalar, Level::kAvx2, Level::kAvx512}) {
    if (!is_available(level)) continue;
    SCOPED_TRACE(level_name(level));
    const std::vector<float> found = exp_all(level, x);
    double worst = 0;
    for (size_t n = 0; n < x.size(); ++n) {
      const double expected = std::exp(static_cast<double>(x[n]));
      const float near = static_cast<float>(expected);
      const double ulp = std::max<double>(std::nextafter(near, INFINITY) - near, 0x1.0p-149);
      worst = std::max(worst, std::abs(found[n] - expected) / ulp);
    }
    EXPECT_LE(worst, 2);
    RecordProperty(std::string("worst_ulp_") + level_name(level), std::to_string(worst));
  }
}

// Near 1 the result is small, but no less exact.
TEST(LevelLog, WithinThreeUlpOfNormalNumbers) {
  std::vector<float> x;
  for (float value = 0x1.0p-126f; value < 1e38f; value *= 1.0007f) x.push_back(value);
  for (float value = 0.4f; value < 2.5f; value += 0x1.0p-15f) x.push_back(value);
  x.resize(x.size() / 16 * 16);
  for (const Level level : {Level::kScalar, Level::kAvx2, Level::kAvx512}) {
    if (!is_available(level)) continue;
    SCOPED_TRACE(level_name(level));
    std::vector<float> found(x.size());
#if defined(EDGEWISE_X86_LEVELS)
    const auto log_array = level == Level::kAvx512 ? avx512::log_array
                           : level == Level::kAvx2 ? avx2::log_array
                                                   : scalar::log_array;
#else
    const auto log_array = scalar::log_array;
#endif
    log_array(x.data(), static_cast<int64_t>(x.size()), found.data());
    double worst = 0;
    for (size_t n = 0; n < x.size(); ++n) {
      const double expected = std::log(static_cast<double>(x[n]));
      const float near = static_cast<float>(std::abs(expected));
      worst = std::max(worst, std::abs(found[n] - expected) / (std::nextafter(near, INFINITY) - near));
    }
    EXPECT_LE(worst, 3);
  }
}

TEST(LevelExp, EndsOfTheRange) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Level level : {Level::kScalar, Level::kAvx2, Level::kAvx512}) {
    if (!is_available(level)) continue;
    SCOPED_TRACE(level_name(level));
    const std::vector<float> found =
        exp_all(level, {-inf, -3e38f, -1000.0f, -104.1f, 0.0f, -0.0f, 89.0f, 1e30f, inf, std::nanf("")});
    for (int n = 0; n < 4; ++n) EXPECT_EQ(found[static_cast<size_t>(n)], 0.0f) << n;
    EXPECT_EQ(found[4], 1.0f);
    EXPECT_EQ(found[5], 1.0f);
    for (int n = 6; n < 9; ++n) EXPECT_EQ(found[static_cast<size_t>(n)], inf) << n;
    EXPECT_TRUE(std::isnan(found[9]));
  }
}

}  // namespace
}  // namespace edgewise::kernels::cpu
