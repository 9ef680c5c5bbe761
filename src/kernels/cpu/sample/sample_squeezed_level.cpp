// The squeezed sampler's inner loops, compiled once per CPU level; sample_squeezed.cpp says what they are
// for.
#include <bit>
#include <cmath>

#include "kernels/cpu/sample/sample_draw.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE {
namespace {

// 1 - exp(-x) of 2^(14 - range) x, capped at x = 1, in units of 2^-14: a power series in 16-bit fixed point,
// off by at most 3 units and what was cut off x.
inline Halves one_minus_exp(Halves x, int range) {
  const Halves y = (x - subtract_saturated(x, splat(static_cast<uint16_t>(16383 >> range)))) << (2 + range);
  // x (1 - x/2 (1 - x/3 (1 - x/4 ...))); a product with 65535 / k stands for a division by k.
  Halves series = splat(65535);
#pragma GCC unroll 8
  for (int k = 8; k >= 2; --k)
    series = splat(65535) - multiply_high(multiply_high(series, y), splat(static_cast<uint16_t>(65535 / k)));
  return multiply_high(series, y) >> 2;
}

// Keys taken at a time: their bytes and words stay in the first-level cache. Numbers first, then comparisons,
// then the open pairs: only the last step branches on what was drawn, so the first two never wait for it.
constexpr int64_t kTile = 2048;

// What is added to the centre of a block for its bounds: two equal 16-bit numbers each, so that one broadcast
// of 32 bits spreads them.
struct BlockOffsets {
  uint32_t low[kTile / 64], high[kTile / 64];

  BlockOffsets(const SqueezeParams& params, const SqueezeRow& row, int64_t begin, int64_t count) {
    const uint16_t* const rest = params.block_rest + begin / 64;
    // The Poisson law's series has the offset in it already, and gives units of range 0.
    const int shift = params.poisson ? row.range : 0, offset = params.poisson ? 0 : row.offset;
    const int32_t down = offset - params.below - 1, up = offset + params.above + 1;
    for (int64_t block = 0; block * 64 < count; ++block) {
      const int32_t spread = static_cast<int32_t>(uint32_t{rest[block]} * row.rest >> 16);
      const int32_t bottom = ((down - spread) << shift) - params.series,
                    top = ((up + spread) << shift) + params.series;
      low[block] = static_cast<uint32_t>((bottom < -32768 ? -32768 : bottom) & 0xFFFF) * 0x10001u;
      high[block] = static_cast<uint32_t>(top < 32767 ? top : 32767) * 0x10001u;
    }
  }
};

// How the first two terms of a pair are found.
enum class Shape { kOneTerm, kTwoTerms, kGroups };

template <bool poisson, Shape shape>
void compare_bytes(const SqueezeParams& params, const SqueezeRow& row, int64_t begin, int64_t count,
                   const uint8_t* bytes, uint64_t* certain, uint64_t* possible) {
  const BlockOffsets offsets(params, row, begin, count);
  const Halves first = splat(row.first[0]), second = splat(static_cast<uint16_t>(row.second));
  const Halves to_byte = splat(static_cast<uint16_t>(poisson ? 6 : 6 - row.range));
  const Bytes no_upper = reinterpret_cast<Bytes>(splat(row.no_upper ? 0xFFFF : 0));
  for (int64_t block = 0; block * 64 < count; ++block) {
    const int64_t at = begin + block * 64;
    const Halves low_offset = splat_word(offsets.low[block]), high_offset = splat_word(offsets.high[block]);
    uint64_t low_word = 0, high_word = 0;
#pragma GCC unroll 4
    for (int part = 0; part < 64; part += kVectorBytes) {
      Halves low_bound[2], high_bound[2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const int64_t terms = at + 32 * half + part / 2;
        const Halves key = load<Halves>(params.key_first + terms);
        Halves centre = multiply_high(key, shape == Shape::kGroups
                                               ? look_up(row.first, load<Halves>(params.key_group + terms))
                                               : first);
        if constexpr (shape != Shape::kOneTerm)
          centre = add_signed(centre, multiply_high_signed(load<Halves>(row.key_second + terms), second));
        if constexpr (poisson)
          centre = one_minus_exp(not_negative(add_signed(centre, splat(row.offset))), row.range);
        low_bound[half] = shift_signed(add_signed(centre, low_offset), to_byte);
        high_bound[half] = shift_signed(add_signed(centre, high_offset), to_byte);
      }
      const Bytes random = load<Bytes>(bytes + block * 64 + part);
      low_word |= less(random, narrow(low_bound[0], low_bound[1])) << part;
      high_word |= less_or_equal(random, narrow(high_bound[0], high_bound[1]) | no_upper) << part;
    }
    certain[block] = low_word;
    possible[block] = high_word;
  }
}

template <bool poisson>
auto* comparison(const SqueezeParams& params, const SqueezeRow& row) {
  return params.key_group ? compare_bytes<poisson, Shape::kGroups>
         : row.key_second ? compare_bytes<poisson, Shape::kTwoTerms>
                          : compare_bytes<poisson, Shape::kOneTerm>;
}

// 1 - exp(-x) for x in [0, 1], one value or sixteen; error below 1e-6.
template <typename Value>
inline Value one_minus_exp_of(const Value& x) {
  Value series = Value{} + 1.0f;
#pragma GCC unroll 10
  for (int k = 10; k >= 2; --k) series = 1.0f - x * (1.0f / static_cast<float>(k)) * series;
  return x * series;
}

// P(edge) as the bounds know it. Rounding, of the pair's number too, stays below a part in 10^5 of the terms.
template <typename Value>
struct Estimate {
  Value likely, spread;

  // Products of the row's terms with the key's.
  Estimate(const RefineParams& params, const Value& first, const Value& second, const Value& rest) {
    const Value centre = first + second + static_cast<float>(params.exploration);
    spread = rest + 1e-5f * (first + (second < 0.0f ? -second : second)) + 2e-6f;
    likely = centre < 0.0f ? Value{} : centre;
    likely = likely > 1.0f ? Value{} + 1.0f : likely;
    if (params.poisson) likely = one_minus_exp_of(likely);
  }
};

constexpr int64_t kBatch = 16;

// Which of up to sixteen pairs are edges, and which stay open, given the finer bits of their numbers.
struct Verdict {
  uint32_t edges = 0, open = 0;
};

#if defined(__AVX512BW__)

inline Verdict judge(const RefineParams& params, const OpenPair* pairs, const uint64_t* fine) {
  const GroupTerms& groups = params.groups;
  const auto one_group = [&](int n) {
    return _mm_mul_ps(_mm_load_ps(&params.row_terms[pairs[n].row()].first),
                      _mm_load_ps(&params.key_terms[pairs[n].position()].first));
  };
  const auto several = [&](int n) {
    const int64_t row = pairs[n].row(), key = pairs[n].position();
    const __m128 of_row =
        _mm_move_ss(_mm_load_ps(&params.row_terms[row].first),
                    _mm_load_ss(groups.row_first + row * groups.lanes + groups.key_group[key]));
    const __m128 of_key =
        _mm_insert_ps(_mm_load_ps(&params.key_terms[key].first),
                      _mm_load_ss(groups.key_second + groups.row_group[row] * groups.key_stride + key), 0x10);
    return _mm_mul_ps(of_row, of_key);
  };
  const Transposed products = groups.row_first ? Transposed(several) : Transposed(one_group);
  // The byte and 24 of the bits below it.
  const auto number = [&](int64_t n) {
    const __m512i byte = _mm512_srli_epi64(_mm512_loadu_si512(pairs + n), OpenPair::kByteShift);
    const __m512i bits =
        _mm512_srli_epi64(_mm512_and_si512(_mm512_loadu_si512(fine + n), _mm512_set1_epi64(0xFFFFFFFF)), 8);
    return _mm512_cvtepi64_epi32(_mm512_or_si512(_mm512_slli_epi64(byte, 24), bits));
  };
  const Lanes u = reinterpret_cast<Lanes>(_mm512_cvtepu32_ps(
                      _mm512_inserti64x4(_mm512_castsi256_si512(number(0)), number(8), 1))) *
                  0x1.0p-32f;
  const Estimate<Lanes> known(params, products.first, products.second, products.third);
  Verdict verdict;
  verdict.edges = _mm512_cmp_ps_mask(reinterpret_cast<__m512>(u),
                                     reinterpret_cast<__m512>(known.likely - known.spread), _CMP_LT_OQ);
  verdict.open = _mm512_cmp_ps_mask(reinterpret_cast<__m512>(u),
                                    reinterpret_cast<__m512>(known.likely + known.spread), _CMP_LE_OQ) &
                 ~verdict.edges;
  return verdict;
}

#else

inline Verdict judge(const RefineParams& params, const OpenPair* pairs, const uint64_t* fine) {
  Verdict verdict;
  for (int n = 0; n < kBatch; ++n) {
    const int64_t at_row = pairs[n].row(), at_key = pairs[n].position();
    const Terms &row = params.row_terms[at_row], &key = params.key_terms[at_key];
    float row_first = row.first, key_second = key.second;
    if (const GroupTerms& groups = params.groups; groups.row_first) {
      row_first = groups.row_first[at_row * groups.lanes + groups.key_group[at_key]];
      key_second = groups.key_second[groups.row_group[at_row] * groups.key_stride + at_key];
    }
    const uint32_t bits = pairs[n].byte() << 24 | static_cast<uint32_t>(fine[n]) >> 8;
    const float u = static_cast<float>(bits) * 0x1.0p-32f;
    const Estimate<float> known(params, row_first * key.first, row.second * key_second, row.rest * key.rest);
    const bool edge = u < known.likely - known.spread;
    verdict.edges |= uint32_t{edge} << n;
    verdict.open |= uint32_t{!edge && u <= known.likely + known.spread} << n;
  }
  return verdict;
}

#endif

// Appends the pairs that are possible and not certain. `first` is that of the first word.
inline OpenPair* list_open(const uint64_t* certain, const uint64_t* possible, int64_t words,
                           const OpenPair& first, const uint8_t* bytes, OpenPair* open) {
  const auto pair = [&](int64_t word, uint64_t bits) {
    const int64_t n = word * 64 + (std::countr_zero(bits) & 63);
    OpenPair result;
    result.bits = (first.bits + static_cast<uint64_t>(n)) | uint64_t{bytes[n]} << OpenPair::kByteShift;
    return result;
  };
#if defined(__AVX512BW__)
  // The words that have any, side by side.
  uint64_t some[kTile / 64 + 8];
  uint64_t which[kTile / 64 + 8];
  int64_t count = 0;
  const __m512i steps = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  for (int64_t word = 0; word < words; word += 8) {
    const __mmask8 there = static_cast<__mmask8>(words - word >= 8 ? 255 : (1 << (words - word)) - 1);
    const __m512i left = _mm512_andnot_si512(_mm512_maskz_loadu_epi64(there, certain + word),
                                             _mm512_maskz_loadu_epi64(there, possible + word));
    const __mmask8 any = _mm512_test_epi64_mask(left, left);
    _mm512_storeu_si512(some + count, _mm512_maskz_compress_epi64(any, left));
    _mm512_storeu_si512(which + count,
                        _mm512_maskz_compress_epi64(any, _mm512_add_epi64(steps, _mm512_set1_epi64(word))));
    count += std::popcount(static_cast<uint32_t>(any));
  }
  for (int64_t n = 0; n < count; ++n) {
    uint64_t left = some[n];
    const int64_t word = static_cast<int64_t>(which[n]);
    do *open++ = pair(word, left);
    while (left &= left - 1);
  }
#else
  for (int64_t word = 0; word < words; ++word) {
    uint64_t left = possible[word] & ~certain[word];
    // One open pair or none is the rule: written without a branch.
    *open = pair(word, left);
    open += left != 0;
    for (left &= left - 1; left; left &= left - 1) *open++ = pair(word, left);
  }
#endif
  return open;
}

inline void set_bit(uint64_t* words, int64_t words_per_row, int64_t first_row, const OpenPair& pair,
                    bool edge) {
  words[(pair.row() - first_row) * words_per_row + pair.position() / 64] |= uint64_t{edge}
                                                                            << (pair.position() % 64);
}

// Sets the bits of a batch's edges and moves the pairs that stay open, with their numbers, to `pairs` and
// `numbers`, where one place more may be written; returns how many. No branch: which way it goes is a coin.
#if defined(__AVX512BW__)
inline int64_t settle(const RefineParams& params, const OpenPair* batch, const uint64_t* fine,
                      const Verdict& verdict, uint64_t* words, OpenPair* pairs, double* numbers) {
  alignas(64) uint64_t places[kBatch], bits[kBatch];
  int64_t kept = 0;
#pragma GCC unroll 2
  for (int64_t n = 0; n < kBatch; n += 8) {
    const __mmask8 edges = static_cast<__mmask8>(verdict.edges >> n),
                   open = static_cast<__mmask8>(verdict.open >> n);
    const __m512i low_half = _mm512_set1_epi64(0xFFFFFFFF), pair = _mm512_loadu_si512(batch + n);
    const __m512i row = _mm512_sub_epi64(_mm512_srli_epi64(pair, OpenPair::kRowShift),
                                         _mm512_set1_epi64(params.first_row)),
                  position = _mm512_and_si512(pair, low_half);
    _mm512_store_si512(places + n,
                       _mm512_add_epi64(_mm512_mul_epu32(row, _mm512_set1_epi64(params.words_per_row)),
                                        _mm512_srli_epi64(position, 6)));
    _mm512_store_si512(bits + n, _mm512_maskz_sllv_epi64(edges, _mm512_set1_epi64(1),
                                                         _mm512_and_si512(position, _mm512_set1_epi64(63))));
    // Byte and finer bits, 40 in all.
    const __m512i number =
        _mm512_and_si512(_mm512_or_si512(_mm512_andnot_si512(low_half, pair),
                                         _mm512_and_si512(_mm512_loadu_si512(fine + n), low_half)),
                         _mm512_set1_epi64((int64_t{1} << OpenPair::kRowShift) - 1));
    const int count = std::popcount(static_cast<uint32_t>(open));
    const __mmask8 first = static_cast<__mmask8>((1u << count) - 1);
    _mm512_mask_storeu_epi64(pairs + kept, first, _mm512_maskz_compress_epi64(open, pair));
    _mm512_mask_storeu_pd(
        numbers + kept, first,
        _mm512_maskz_compress_pd(open, _mm512_mul_pd(_mm512_cvtepu64_pd(number), _mm512_set1_pd(0x1.0p-40))));
    kept += count;
  }
#pragma GCC unroll 16
  for (int n = 0; n < kBatch; ++n) words[places[n]] |= bits[n];
  return kept;
}
#else
inline int64_t settle(const RefineParams& params, const OpenPair* batch, const uint64_t* fine,
                      const Verdict& verdict, uint64_t* words, OpenPair* pairs, double* numbers) {
  int64_t kept = 0;
  for (int64_t n = 0; n < kBatch; ++n) {
    set_bit(words, params.words_per_row, params.first_row, batch[n], verdict.edges >> n & 1);
    pairs[kept] = batch[n];
    numbers[kept] = (batch[n].byte() + static_cast<uint32_t>(fine[n]) * 0x1.0p-32) * 0x1.0p-8;
    kept += verdict.open >> n & 1;
  }
  return kept;
}
#endif

}  // namespace

int64_t squeeze(const SqueezeParams& params, const SqueezeRow& row, uint32_t row_index, int64_t count,
                uint64_t* words, OpenPair* open) {
  const PhiloxKeys keys(params.stream_key);
  OpenPair* const begin = open;
  auto* const compare = params.poisson ? comparison<true>(params, row) : comparison<false>(params, row);
  for (int64_t base = 0; base < count; base += kTile) {
    const int64_t size = count - base < kTile ? count - base : kTile;
    alignas(64) uint8_t bytes[kTile];
    uint64_t possible[kTile / 64];
    uint64_t* const certain = words + base / 64;
    draw_bytes(keys, row_index, base, size, bytes);
    compare(params, row, base, size, bytes, certain, possible);
    if (size % 64) {
      possible[size / 64] &= (uint64_t{1} << (size % 64)) - 1;
      certain[size / 64] &= possible[size / 64];
    }
    open = list_open(certain, possible, (size + 63) / 64, OpenPair(row_index, base, 0), bytes, open);
  }
  return open - begin;
}

int64_t refine(const RefineParams& params, OpenPair* pairs, int64_t count, uint64_t* words, double* numbers) {
  const PhiloxKeys keys(params.stream_key);
  int64_t kept = 0;
  for (int64_t begin = 0; begin < count; begin += kBatch) {
    alignas(64) OpenPair mine[kBatch];
    alignas(64) uint64_t fine[kBatch];
    uint32_t there = (1u << kBatch) - 1;
    if (count - begin >= kBatch) {
      std::memcpy(mine, pairs + begin, sizeof(mine));
    } else {
      there = (1u << (count - begin)) - 1;
      for (int64_t n = 0; n < kBatch; ++n) mine[n] = pairs[begin + n < count ? begin + n : begin];
    }
    draw_fine(keys, &mine[0].bits, fine);
    draw_fine(keys, &mine[8].bits, fine + 8);
    Verdict verdict = judge(params, mine, fine);
    verdict.edges &= there, verdict.open &= there;
    kept += settle(params, mine, fine, verdict, words, pairs + kept, numbers + kept);
  }
  return kept;
}

void decide(const ExactParams& params, const OpenPair* pairs, const double* numbers, int64_t count,
            uint64_t* words) {
  // Keys come from the second-level cache or beyond: asked for a few pairs ahead.
  constexpr int64_t kAhead = 4;
  const auto key_of = [&](int64_t n) {
    return params.key_side + params.valid_keys[pairs[n].position()] * params.clusters;
  };
  for (int64_t n = 0; n < count; ++n) {
    if (n + kAhead < count)
      for (int64_t c = 0; c < params.clusters; c += 16) __builtin_prefetch(key_of(n + kAhead) + c);
    const double p =
        lane_dot(params.query_membership + pairs[n].row() * params.clusters, key_of(n), params.clusters) +
        params.exploration;
    const double capped = p < 1 ? p : 1;
    const double probability = params.poisson ? -std::expm1(-capped) : capped;
    set_bit(words, params.words_per_row, params.first_row, pairs[n], numbers[n] < probability);
  }
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE
