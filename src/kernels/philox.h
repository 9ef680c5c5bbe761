// Philox4x32-10, the counter-based generator behind every random number of the project (Salmon et al.,
// SC'11).
//
// A stream is found in two steps: the identity (seed, step, layer, item, head, purpose) is hashed by Philox
// itself into a 64-bit key; then the counter (row, block, draw, lane) under that key gives the numbers. So a
// number depends only on what it is for, never on threads, batch mates or order.
#pragma once

#include <array>
#include <cstdint>

namespace edgewise::kernels {

using Words = std::array<uint32_t, 4>;

inline Words philox(Words counter, uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// What random numbers are for; part of the stream's identity.
enum class Purpose : uint32_t { kEdges = 1, kProbes = 2, kDropout = 3, kData = 4, kShuffle = 5 };

// The key of the stream of one item and head.
inline uint64_t stream_key(uint64_t seed, uint64_t step, uint32_t layer, int64_t item, int64_t head,
                           Purpose purpose) {
  const Words outer = philox(
      {static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), layer, static_cast<uint32_t>(purpose)},
      seed);
  const uint64_t key = outer[0] | (uint64_t{outer[1]} << 32);
  const Words inner =
      philox({static_cast<uint32_t>(item), static_cast<uint32_t>(static_cast<uint64_t>(item) >> 32),
              static_cast<uint32_t>(head), outer[2]},
             key);
  return inner[0] | (uint64_t{inner[1]} << 32);
}

// Uniform in (0, 1), 52 bits, never 0 or 1: the midpoints of 2^52 equal intervals.
inline double open_uniform(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 20) | (low >> 12);
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-52;
}

// Counters under a stream's key are (row, block, draw, lane). The lane separates the users of one key:
inline constexpr uint32_t kBlockLane = 0;     // word j % 4 of block j / 4 belongs to the pair (row, j)
inline constexpr uint32_t kSequenceLane = 1;  // RowStream
inline constexpr uint32_t kByteLane = 2;  // (row, counter): the bytes of 16 keys, eight in each of two blocks
inline constexpr uint32_t kFineLane = 3;  // (row, position): the 32 bits below a pair's byte
inline constexpr uint32_t kThinningLane = 4;  // (chunk of rows, draw / 2): a gap and a coin, twice

// The number of the pair (row, column), for samplers that visit every pair.
inline Words block_words(uint64_t key, int64_t row, int64_t block) {
  return philox({static_cast<uint32_t>(row), static_cast<uint32_t>(block), 0, kBlockLane}, key);
}

// A sequence of numbers for one row, for samplers that draw as many as they need.
class RowStream {
 public:
  RowStream(uint64_t key, int64_t row) : key_(key), row_(static_cast<uint32_t>(row)) {}

  uint32_t next32() {
    if (used_ == 4) {
      words_ = philox({row_, 0, draw_++, kSequenceLane}, key_);
      used_ = 0;
    }
    return words_[used_++];
  }
  double next_uniform() {
    const uint32_t high = next32();
    return open_uniform(high, next32());
  }

 private:
  uint64_t key_;
  uint32_t row_;
  uint32_t draw_ = 0;
  Words words_{};
  uint32_t used_ = 4;
};

}  // namespace edgewise::kernels
