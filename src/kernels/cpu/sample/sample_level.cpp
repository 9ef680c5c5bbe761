// What the samplers share, compiled once per CPU level: the exact product, and rows of bits as columns.
#include <bit>

#include "kernels/cpu/sample/sample_level.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE {
namespace {

float dot(const float* a, const float* b, int64_t clusters) {
  return lane_dot(a, b, clusters);
}

int64_t count_bits_plain(const uint64_t* words, int64_t word_count) {
  int64_t count = 0;
  for (int64_t n = 0; n < word_count; ++n) count += std::popcount(words[n]);
  return count;
}

#if defined(__AVX512BW__)
// Eight words by one instruction, which not every CPU with AVX-512 has.
__attribute__((target("avx512vpopcntdq"))) int64_t count_bits_vector(const uint64_t* words,
                                                                     int64_t word_count) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t n = 0; n < word_count; n += 8) {
    const int64_t left = word_count - n;
    const __mmask8 there = static_cast<__mmask8>(left >= 8 ? 255 : (1 << left) - 1);
    sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_maskz_loadu_epi64(there, words + n)));
  }
  return _mm512_reduce_add_epi64(sum);
}
#endif

int64_t count_bits(const uint64_t* words, int64_t word_count) {
#if defined(__AVX512BW__)
  static const bool vector = __builtin_cpu_supports("avx512vpopcntdq");
  if (vector) return count_bits_vector(words, word_count);
#endif
  return count_bits_plain(words, word_count);
}

// ---- bits to columns ----

#if defined(__AVX512BW__)
// The first 64 * word_count keys, in place, when they are first, first + 1, ...: the places of a word's bits
// by one byte-compressing instruction, which not every CPU with AVX-512 has. Stops where fewer than 64
// entries of room are left; `done` becomes the number of words written. `crowded`: words of more than 16 bits
// are common, so that 32 are written without asking.
constexpr int kPrefetch = 1024;  // entries
template <bool crowded>
__attribute__((target("avx512vbmi2"))) int32_t* expand_run(const uint64_t* words, int64_t word_count,
                                                           int32_t first, int32_t* columns,
                                                           const int32_t* stop, int64_t& done) {
  alignas(64) uint8_t places[64];
  for (int n = 0; n < 64; ++n) places[n] = static_cast<uint8_t>(n);
  const __m512i all = _mm512_load_si512(places);
  int64_t n = 0;
  for (; n < word_count && columns + 64 <= stop; ++n) {
    if (crowded) __builtin_prefetch(columns + kPrefetch, 1);  // the columns of a head leave the cache behind
    const __m512i bits = _mm512_maskz_compress_epi8(words[n], all);
    const __m512i base = _mm512_set1_epi32(first + static_cast<int32_t>(64 * n));
    const int count = std::popcount(words[n]);
    _mm512_storeu_si512(columns, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(bits))));
    if (crowded || count > 16) {
      _mm512_storeu_si512(columns + 16,
                          _mm512_add_epi32(base, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(bits, 1))));
      if (count > 32) {
        _mm512_storeu_si512(columns + 32,
                            _mm512_add_epi32(base, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(bits, 2))));
        _mm512_storeu_si512(columns + 48,
                            _mm512_add_epi32(base, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(bits, 3))));
      }
    }
    columns += count;
  }
  done = n;
  return columns;
}
#endif

int64_t expand(const uint64_t* words, int64_t word_count, const int32_t* valid_keys,
               [[maybe_unused]] int64_t key_count, [[maybe_unused]] int64_t degree, int32_t* columns,
               [[maybe_unused]] int64_t room) {
  int32_t* const begin = columns;
  int64_t done = 0;
#if defined(__AVX512BW__)
  // Keys ascend, so that the last one tells whether any is left out.
  static const bool vbmi2 = __builtin_cpu_supports("avx512vbmi2");
  if (vbmi2 && key_count > 0 && valid_keys[key_count - 1] - valid_keys[0] == key_count - 1)
    columns =
        (degree > 10 * word_count ? expand_run<true> : expand_run<false>)(words, word_count, valid_keys[0],
                                                                          columns, begin + room, done);
#endif
  for (int64_t n = done; n < word_count; ++n) {
    uint64_t word = words[n];
    const int32_t* keys = valid_keys + 64 * n;
    if (columns + 64 <= begin + room) {  // room to write more than there is
#if defined(__AVX512BW__)
      if (std::popcount(word) > 6 && 64 * (n + 1) <= key_count) {
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) {
          const __mmask16 mask = static_cast<__mmask16>(word >> (16 * part));
          _mm512_storeu_si512(columns,
                              _mm512_maskz_compress_epi32(mask, _mm512_loadu_si512(keys + 16 * part)));
          columns += std::popcount(static_cast<uint32_t>(mask));
        }
        continue;
      }
#endif
      *columns = keys[word ? std::countr_zero(word) : 0];  // at most one is common: no branch
      columns += word != 0;
      word &= word - 1;
    }
    for (; word; word &= word - 1) *columns++ = keys[std::countr_zero(word)];
  }
  return columns - begin;
}

}  // namespace

extern const SampleKernels kernels;
const SampleKernels kernels{.valid = valid,
                            .measure = measure,
                            .project = project,
                            .fix = fix,
                            .squeeze = squeeze,
                            .refine = refine,
                            .decide = decide,
                            .round_vector = round_vector,
                            .squeeze_products = squeeze_products,
                            .refine_products = refine_products,
                            .dot = dot,
                            .thin = thin,
                            .points = points,
                            .gaps = gaps,
                            .count_bits = count_bits,
                            .expand = expand};

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE
