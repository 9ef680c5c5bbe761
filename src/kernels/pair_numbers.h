// The random numbers of the pairs of one head, shared by the CPU and CUDA samplers that visit every pair, so
// that both draw the same edges bit for bit.
//
// Pair (row, column) has a 32-bit number. Its high half decides nearly always and costs one Philox call for
// eight pairs; the low half has a call of its own that is made only where the high half leaves the decision
// open. The eight pairs of a call are columns 32 c + 8 w + 2 t + h (w = 0..3 the word, h = 0, 1 the half) of
// call 4 c + t: what one lane of a tensor-core tile holds.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace edgewise::kernels {

// Philox4x32. Seven rounds are the fewest that pass BigCrush (Salmon et al., SC'11).
struct PairWords {
  uint32_t word[4];
};
// The two halves of a 32 x 32 bit product.
struct WideProduct {
  uint32_t low, high;
};
EDGEWISE_BOTH WideProduct multiply_wide(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  // By hand: from the 64-bit form the compiler makes an addition of zero beside every product.
  WideProduct result;
  asm("{\n.reg .b64 t;\nmul.wide.u32 t, %2, %3;\nmov.b64 {%0, %1}, t;\n}\n"
      : "=r"(result.low), "=r"(result.high)
      : "r"(a), "r"(b));
  return result;
#else
  const uint64_t product = uint64_t{a} * b;
  return {static_cast<uint32_t>(product), static_cast<uint32_t>(product >> 32)};
#endif
}

template <int kRounds>
EDGEWISE_BOTH PairWords philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int round = 0; round < kRounds; ++round) {
    const WideProduct first = multiply_wide(0xD2511F53u, c0), second = multiply_wide(0xCD9E8D57u, c2);
    c0 = second.high ^ c1 ^ key0;
    c1 = second.low;
    c2 = first.high ^ c3 ^ key1;
    c3 = first.low;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

EDGEWISE_BOTH PairWords philox7(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key) {
  return philox<7>(c0, c1, c2, c3, key);
}

inline constexpr uint32_t kPairHighLane = 5, kPairLowLane = 6, kCoinLane = 7;  // beside the lanes of philox.h

// The call that holds the pair (row, column), and where in it.
EDGEWISE_BOTH uint32_t pair_call(int column) {
  return static_cast<uint32_t>(column / 32 * 4 + column % 8 / 2);
}
EDGEWISE_BOTH uint32_t pair_half(const PairWords& words, int column) {  // 0 .. 65535
  return words.word[column / 8 % 4] >> (16 * (column % 2)) & 0xFFFFu;
}
EDGEWISE_BOTH uint32_t pair_number(uint64_t key, int row, int column) {
  const uint32_t r = static_cast<uint32_t>(row), call = pair_call(column);
  return pair_half(philox7(r, call, 0, kPairHighLane, key), column) << 16 |
         pair_half(philox7(r, call, 0, kPairLowLane, key), column);
}

// Asks of one row, columns ascending: is the pair's number below a limit (out of 2^32)?
class PairDecisions {
 public:
  PairDecisions(uint64_t key, int64_t row) : key_(key), row_(static_cast<uint32_t>(row)) {}

  bool below(int column, double limit) {
    if (column / 32 != group_) {
      group_ = column / 32;
      for (uint32_t t = 0; t < 4; ++t)
        high_[t] = philox7(row_, static_cast<uint32_t>(group_) * 4 + t, 0, kPairHighLane, key_);
    }
    const double least = static_cast<double>(pair_half(high_[column % 8 / 2], column) << 16);
    if (least >= limit) return false;
    if (least + 65535 < limit) return true;
    return least + static_cast<double>(
                       pair_half(philox7(row_, pair_call(column), 0, kPairLowLane, key_), column)) <
           limit;
  }

 private:
  uint64_t key_;
  uint32_t row_;
  int group_ = -1;
  PairWords high_[4] = {};
};

// 128 independent coins, each 1 with probability `rate`: four words of a bit tile, those of the rows 16 w + g
// and 16 w + g + 8 (block = 32 tile row + 8 w + g) in tile column
// `tile`. The number of ones is drawn first (Binomial, by inversion), then their places; above a
// rate of 1/2 the coins are turned over.
inline constexpr int kCoins = 128;
inline constexpr uint32_t kSurely = 0xFFFFFFFFu;  // a limit that no number passes
struct CoinLaw {
  uint32_t limits[kCoins];  // 2^32 P(at most k ones)
  uint32_t turned;          // 0, or all bits: the coins are of 1 - rate
  uint32_t padding[3];      // to 16 bytes
};

inline CoinLaw coin_law(double rate) {
  CoinLaw law{};
  law.turned = rate > 0.5 ? ~0u : 0;
  const double rare = rate > 0.5 ? 1 - rate : rate;
  // P(k + 1) = P(k) (128 - k) / (k + 1) rate / (1 - rate).
  double term = 1, total = 0;
  for (int n = 0; n < kCoins; ++n) term *= 1 - rare;
  for (int k = 0; k < kCoins; ++k) {
    total += term;
    const double scaled = total * 4294967296.0;
    law.limits[k] = rare <= 0 || scaled >= 4294967295.0 ? kSurely : static_cast<uint32_t>(scaled);
    term *= rare / (1 - rare) * (kCoins - k) / (k + 1);
  }
  return law;
}

// Writes the four words, not yet turned, to word_at(0 .. 3).
template <typename WordAt>
EDGEWISE_BOTH void coins(uint64_t key, uint32_t block, uint32_t tile, const CoinLaw& law,
                         const WordAt& word_at) {
  uint32_t draw = 0;
  PairWords random = philox7(block, tile, draw, kCoinLane, key);
  const uint32_t number = random.word[0] == kSurely ? kSurely - 1 : random.word[0];
  // The first limits all at once: a loop over them would wait for one after another.
  constexpr int kFirst = 8;
  int count = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int k = 0; k < kFirst; ++k) count += number >= law.limits[k];
  if (count == kFirst)
    while (count < kCoins && number >= law.limits[count]) ++count;
  for (uint32_t n = 0; n < 4; ++n) word_at(n) = 0;
  uint32_t source = random.word[1];
  int word = 1, left = 4;  // places are 7 bits: four to a word
  while (count > 0) {
    if (left == 0) {
      if (++word == 4) {
        random = philox7(block, tile, ++draw, kCoinLane, key);
        word = 0;
      }
      source = word == 0   ? random.word[0]
               : word == 1 ? random.word[1]
               : word == 2 ? random.word[2]
                           : random.word[3];
      left = 4;
    }
    uint32_t& bits = word_at(source >> 5 & 3);
    const uint32_t before = bits, after = before | 1u << (source & 31);
    bits = after;
    count -= after != before;
    source >>= 7;
    --left;
  }
}

}  // namespace edgewise::kernels
