// Dropout factors of a row's edges: 0 or 1 / (1 - p), decided by the number of the pair (row, column), which
// is word column % 4 of the Philox block (row, column / 4); see kernels/philox.h. Several blocks at a time.
#pragma once

#include <cmath>

#include "kernels/cpu/simd.h"
#include "kernels/params.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// 32-bit words in 64-bit lanes: what the widening multiplication of Philox wants. Only the low halves count.
struct Words64 {
#if defined(__AVX512F__)
  static constexpr int kLanes = 8;
#else
  static constexpr int kLanes = 4;
#endif
  typedef uint64_t Register __attribute__((vector_size(8 * kLanes), aligned(8)));
  Register v;

  EDGEWISE_INLINE static Words64 multiply(Words64 a, uint32_t b) {
#if defined(__AVX512F__)
    return {reinterpret_cast<Register>(
        _mm512_mul_epu32(reinterpret_cast<__m512i>(a.v), _mm512_set1_epi64(static_cast<int64_t>(b))))};
#elif defined(__AVX2__)
    return {reinterpret_cast<Register>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(a.v), _mm256_set1_epi64x(static_cast<int64_t>(b))))};
#else
    return {(a.v & 0xFFFFFFFFu) * uint64_t{b}};
#endif
  }
};

// Philox4x32-10 of kLanes counters {row, block, 0, 0}; words[w] is output word w.
EDGEWISE_INLINE void philox_blocks(uint64_t key, Words64 rows, Words64 blocks, Words64 (&words)[4]) {
  Words64 c0 = rows, c1 = blocks, c2{Words64::Register{}}, c3{Words64::Register{}};
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Words64 product0 = Words64::multiply(c0, 0xD2511F53u),
                  product1 = Words64::multiply(c2, 0xCD9E8D57u);
    c0.v = (product1.v >> 32) ^ c1.v ^ key0;
    c1 = product1;
    c2.v = (product0.v >> 32) ^ c3.v ^ key1;
    c3 = product0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

// factors[e] of the pairs (row_of(e), column_of(e)).
template <typename Acc, typename RowOf, typename ColumnOf>
EDGEWISE_INLINE void dropout_factors(const DropoutParams& params, int64_t head_index, const RowOf& row_of,
                                     const ColumnOf& column_of, int64_t count, Acc* factors) {
  const uint64_t key = params.head_keys[head_index];
  const uint64_t least = static_cast<uint64_t>(std::ceil(params.p * 4294967296.0));  // kept from here on
  const Acc kept = static_cast<Acc>(params.p < 1 ? 1 / (1 - params.p) : 0);
  for (int64_t e = 0; e < count; e += Words64::kLanes) {
    const int lanes = count - e < Words64::kLanes ? static_cast<int>(count - e) : Words64::kLanes;
    Words64 rows{Words64::Register{}}, blocks{Words64::Register{}};
    for (int lane = 0; lane < lanes; ++lane) {
      rows.v[lane] = static_cast<uint64_t>(row_of(e + lane));
      blocks.v[lane] = static_cast<uint64_t>(column_of(e + lane)) / 4;
    }
    Words64 words[4];
    philox_blocks(key, rows, blocks, words);
    uint64_t stored[4][Words64::kLanes];
    __builtin_memcpy(stored, words, sizeof(stored));
    for (int lane = 0; lane < lanes; ++lane) {
      const uint64_t word = stored[column_of(e + lane) % 4][lane] & 0xFFFFFFFFu;
      factors[e + lane] = word >= least ? kept : Acc{0};
    }
  }
}

// Of a row's edges.
template <typename Acc>
void dropout_of_row(const DropoutParams& params, int64_t head_index, int64_t row, const int32_t* columns,
                    int64_t count, Acc* factors) {
  dropout_factors(
      params, head_index, [&](int64_t) EDGEWISE_INLINE_LAMBDA { return row; },
      [&](int64_t e) EDGEWISE_INLINE_LAMBDA { return columns[e]; }, count, factors);
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
