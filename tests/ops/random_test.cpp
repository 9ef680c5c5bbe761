// Philox: known answers, and the same words in plain ATen.
#include "kernels/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "kernels/pair_numbers.h"
#include "ops/attention/reference.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

TEST(Philox, KnownAnswers) {
  // The vectors that accompany the generator's publication (Random123, philox4x32-10).
  EXPECT_EQ(kernels::philox({0, 0, 0, 0}, 0),
            (kernels::Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(kernels::philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (kernels::Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(kernels::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (kernels::Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SevenRoundsKnownAnswer) {
  const kernels::PairWords words = kernels::philox7(0, 0, 0, 0, 0);  // Random123, philox4x32-7
  EXPECT_THAT(words.word, ::testing::ElementsAre(0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48));
}

TEST(PairNumbers, AreTheSameFromAtenKernelsAndLazyDecisions) {
  const EdgeShape shape{1, 2, 3, 77};
  const at::Tensor keys = ops::stream_keys({123456789, 42, 3, 10}, kernels::Purpose::kEdges, shape);
  const at::Tensor numbers = ops::reference::pair_numbers(keys, shape, at::kCPU);
  for (int64_t head = 0; head < 2; ++head)
    for (int row = 0; row < 3; ++row) {
      const uint64_t key = static_cast<uint64_t>(keys[head].item<int64_t>());
      kernels::PairDecisions decisions(key, row);
      for (int column = 0; column < 77; ++column) {
        const uint32_t number = kernels::pair_number(key, row, column);
        EXPECT_EQ(numbers[0][head][row][column].item<int64_t>(), number);
        EXPECT_FALSE(decisions.below(column, number));
        EXPECT_TRUE(decisions.below(column, number + 0.5));
      }
    }
}

std::array<uint32_t, 4> draw_coins(uint64_t key, int block, int tile, const kernels::CoinLaw& law) {
  std::array<uint32_t, 4> words;
  kernels::coins(key, static_cast<uint32_t>(block), static_cast<uint32_t>(tile), law,
                 [&](uint32_t n) -> uint32_t& { return words[n]; });
  for (uint32_t& word : words) word ^= law.turned;
  return words;
}

TEST(PairNumbers, CoinsComeUpAtTheirRateAndIndependently) {
  constexpr int kCoins = kernels::kCoins;
  for (const double rate : {0.02, 0.3, 0.9}) {
    const kernels::CoinLaw law = kernels::coin_law(rate);
    constexpr int kDraws = 40000;
    std::vector<int> ones(kCoins);
    double sum = 0, squares = 0, neighbours = 0;
    for (int n = 0; n < kDraws; ++n) {
      const auto bits = draw_coins(99, n % 200, n / 200, law);
      int count = 0;
      for (const uint32_t word : bits)
        count += std::popcount(word), neighbours += std::popcount(word & (word >> 1));
      for (int place = 0; place < kCoins; ++place)
        ones[static_cast<size_t>(place)] += bits[static_cast<size_t>(place) / 32] >> (place % 32) & 1;
      sum += count, squares += count * count;
    }
    const double mean = sum / kDraws, variance = squares / kDraws - mean * mean,
                 deviation = std::sqrt(rate * (1 - rate) * kDraws), pairs = 4 * 31;
    for (const int found : ones) EXPECT_NEAR(found, rate * kDraws, 5 * deviation) << rate;
    EXPECT_NEAR(variance, kCoins * rate * (1 - rate), 0.05 * kCoins * rate * (1 - rate)) << rate;
    EXPECT_NEAR(neighbours / kDraws, pairs * rate * rate, 6 * std::sqrt(pairs * rate * rate / kDraws))
        << rate;
  }
  for (const uint32_t word : draw_coins(1, 2, 3, kernels::coin_law(0))) EXPECT_EQ(word, 0u);
  for (const uint32_t word : draw_coins(1, 2, 3, kernels::coin_law(1))) EXPECT_EQ(word, ~0u);
}

TEST(Philox, AtenWordsEqualTheKernelsWords) {
  const EdgeShape shape{2, 2, 3, 7};
  const at::Tensor keys = ops::stream_keys({123456789, 42, 3, 10}, kernels::Purpose::kDropout, shape);
  const at::Tensor words = ops::reference::pair_words(keys, shape, at::kCPU);
  for (int64_t head = 0; head < 4; ++head)
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t column = 0; column < 7; ++column) {
        const uint64_t key = static_cast<uint64_t>(keys[head].item<int64_t>());
        EXPECT_EQ(words[head / 2][head % 2][row][column].item<int64_t>(),
                  kernels::block_words(key, row, column / 4)[static_cast<size_t>(column % 4)]);
      }
}

TEST(Philox, StreamsDifferInEveryPartOfTheirIdentity) {
  std::set<uint64_t> keys;
  int count = 0;
  for (uint64_t seed : {0, 1})
    for (uint64_t step : {0, 1})
      for (uint32_t layer : {0, 1})
        for (int64_t item : {0, 1})
          for (int64_t head : {0, 1})
            for (auto purpose : {kernels::Purpose::kEdges, kernels::Purpose::kProbes}) {
              keys.insert(kernels::stream_key(seed, step, layer, item, head, purpose));
              ++count;
            }
  EXPECT_EQ(static_cast<int>(keys.size()), count);
}

TEST(Philox, UniformStaysInsideTheOpenInterval) {
  EXPECT_GT(kernels::open_uniform(0, 0), 0);
  EXPECT_LT(kernels::open_uniform(0xffffffff, 0xffffffff), 1);
}

}  // namespace
}  // namespace edgewise
