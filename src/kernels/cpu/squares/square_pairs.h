// Which of a square's pairs take part, and which of those dropout keeps: bits of 16 queries for each key.
// Compiled once per level (simd.h).
#pragma once

#include <cmath>

#include "kernels/cpu/attention/dropout_level.h"
#include "kernels/cpu/squares/square_kernels.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

inline constexpr uint32_t kAllBits = 0xFFFF;

EDGEWISE_INLINE uint32_t first_bits(int64_t count) {
  return count >= 16 ? kAllBits : count <= 0 ? 0 : (1u << count) - 1;
}

struct SquareBits {
  uint32_t keys;         // that take part at all
  bool whole;            // every pair does
  uint16_t queries[16];  // of each key; set where not `whole`

  EDGEWISE_INLINE bool any() const { return keys != 0; }
};

// Queries beyond the last count as taking part.
template <typename T>
EDGEWISE_INLINE void pairs_of(const SquareParams<T>& params, int64_t batch, int64_t query_group,
                              int64_t key_group, SquareBits& bits) {
  const int64_t first_key = key_group * kSquareSide;
  bits.keys = first_bits(params.keys - first_key);
  if (params.key_bits)
    bits.keys &= static_cast<uint32_t>(params.key_bits[batch * square_groups(params.keys) + key_group]);
  // Key j and query i of the square: only from query `limit + j` on.
  const int64_t limit =
      params.is_causal ? first_key - params.query_offset - query_group * kSquareSide : -kSquareSide;
  if (limit > 0) bits.keys &= first_bits(kSquareSide - limit);
  bits.whole = bits.keys == kAllBits && limit + kSquareSide - 1 <= 0;
  if (bits.whole || bits.keys == 0) return;
  for (int64_t j = 0; j < kSquareSide; ++j)
    bits.queries[j] = static_cast<uint16_t>(bits.keys >> j & 1 ? kAllBits & ~first_bits(limit + j) : 0);
}

// The same bits the other way round: bit j of out[i] is bit i of in[j].
EDGEWISE_INLINE void transpose_bits(const uint16_t (&in)[16], uint16_t (&out)[16]) {
  for (int i = 0; i < 16; ++i) {
    uint32_t bits = 0;
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) bits |= (static_cast<uint32_t>(in[j]) >> i & 1) << j;
    out[i] = static_cast<uint16_t>(bits);
  }
}

// Of 32-bit words in 64-bit lanes, those that are at least `least`.
EDGEWISE_INLINE uint32_t at_least(Words64 words, uint64_t least) {
#if defined(__AVX512F__)
  const __m512i low = _mm512_and_si512(reinterpret_cast<__m512i>(words.v), _mm512_set1_epi64(0xFFFFFFFF));
  return _mm512_cmpge_epu64_mask(low, _mm512_set1_epi64(static_cast<int64_t>(least)));
#else
  uint32_t bits = 0;
  for (int lane = 0; lane < Words64::kLanes; ++lane)
    bits |= static_cast<uint32_t>((words.v[lane] & 0xFFFFFFFFu) >= least) << lane;
  return bits;
#endif
}

// Dropout of a call: the pair (query, key) is kept when its number is at least p * 2^32.
struct SquareDropout {
  uint64_t least;
  double kept_scale;  // of pairs that are kept

  explicit SquareDropout(const DropoutParams& params)
      : least(static_cast<uint64_t>(std::ceil(params.p * 4294967296.0))),
        kept_scale(params.p < 1 ? 1 / (1 - params.p) : 0) {}
  EDGEWISE_INLINE bool drops() const { return least > 0; }

  // Word key % 4 of the Philox block (query, key / 4).
  EDGEWISE_INLINE void kept(uint64_t head_key, int64_t query_group, int64_t key_group,
                            uint16_t (&queries)[16]) const {
    for (int j = 0; j < 16; ++j) queries[j] = 0;
    for (int i = 0; i < 16; i += Words64::kLanes) {
      Words64 rows{Words64::Register{}};
      for (int lane = 0; lane < Words64::kLanes; ++lane)
        rows.v[lane] = static_cast<uint64_t>(query_group * kSquareSide + i + lane);
      for (int block = 0; block < 4; ++block) {
        Words64 words[4];
        philox_blocks(head_key, rows,
                      {Words64::Register{} + static_cast<uint64_t>(key_group * (kSquareSide / 4) + block)},
                      words);
#pragma GCC unroll 4
        for (int m = 0; m < 4; ++m)
          queries[4 * block + m] |= static_cast<uint16_t>(at_least(words[m], least) << i);
      }
    }
  }
};

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
