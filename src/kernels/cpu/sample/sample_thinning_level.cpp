// The thinning sampler's inner loops, compiled once per CPU level; sample_thinning.cpp says what they are
// for.
#include <bit>
#include <cmath>

#include "kernels/cpu/sample/sample_level.h"
#include "kernels/philox.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE {
namespace {

// -log(u) for u = (word + 1/2) / 2^32: u = m 2^e with m in [sqrt(1/2), sqrt(2)), log m by its series in
// (m - 1) / (m + 1). Plain operations only, so that all levels agree; relative error below 1e-9.
inline double negative_log(uint32_t word) {
  const double u = (static_cast<double>(word) + 0.5) * 0x1.0p-32;
  uint64_t bits;
  std::memcpy(&bits, &u, 8);
  constexpr uint64_t half_root = 0x3FE6A09E667F3BCDull;  // sqrt(1/2)
  const int64_t exponent = static_cast<int64_t>(bits - half_root) >> 52;
  bits -= static_cast<uint64_t>(exponent) << 52;
  double m;
  std::memcpy(&m, &bits, 8);
  const double s = (m - 1) / (m + 1), t = s * s;
  const double series =
      2 * s *
      (1 + t * (1.0 / 3 + t * (1.0 / 5 + t * (1.0 / 7 + t * (1.0 / 9 + t * (1.0 / 11 + t * (1.0 / 13)))))));
  return -(static_cast<double>(exponent) * 0.6931471805599453 + series);
}

// One value or sixteen: is the rate of a pair, whose p is at least `low`, surely above the threshold? With
// p + p^2/2 + p^3/3 <= -log(1 - p).
template <typename Value>
inline auto surely_above(const Value& low, const Value& threshold, bool poisson) {
  const Value capped = low < 1.0f ? low : Value{} + 1.0f;
  return (poisson ? capped : low * (1.0f + low * (0.5f + low * 0.33333f))) > threshold;
}
// Is it surely not, where p is at most `high` (below 1 under the Bernoulli law)? With
// -log(1 - p) <= p + p^2/2 + p^3 / (3 (1 - p)), times 1 - p.
template <typename Value>
inline auto surely_below(const Value& high, const Value& threshold, bool poisson) {
  const Value capped = high < 1.0f ? high : Value{} + 1.0f;
  const Value short_of =
      poisson ? threshold * 0.99999f - capped
              : (threshold - high * (1.0f + high * 0.5f)) * (1.0f - high) - high * high * high * 0.33334f;
  return short_of > 0.0f;
}

// Is the rate above the threshold? What every decision is defined by.
bool passes(const ExactParams& params, const ThinRow& row, int64_t key, uint32_t coin) {
  const double p = params.exploration + lane_dot(params.query_membership + row.index * params.clusters,
                                                 params.key_side + params.valid_keys[key] * params.clusters,
                                                 params.clusters);
  const double capped = p < 1 ? p : 1, threshold = (coin + 0.5) * 0x1.0p-32 * row.rate;
  return (params.poisson ? capped : -std::log1p(-capped)) > threshold;
}

// Which key a point falls on. Rounding must not carry it past the last one.
inline int64_t key_of(const ThinRow& row, double point) {
  const int64_t key = static_cast<int64_t>((point - row.begin) * row.keys_per_unit);
  return key < row.keys ? key : row.keys - 1;
}

#if defined(__AVX512BW__)

typedef int32_t IntLanes __attribute__((vector_size(64)));

#endif

}  // namespace

#if defined(__AVX512BW__)

int64_t thin(const ThinParams& params, const ThinRow& row, const double* points, const uint32_t* coins,
             int32_t* positions, int64_t& taken) {
  const __m512d begin = _mm512_set1_pd(row.begin), end = _mm512_set1_pd(row.end),
                scale = _mm512_set1_pd(row.keys_per_unit);
  const __m256i last = _mm256_set1_epi32(static_cast<int>(row.keys - 1));
  const float per_coin = static_cast<float>(row.rate * 0x1.0p-32);
  const float exploration = static_cast<float>(params.exact.exploration);
  const bool poisson = params.exact.poisson;
  int64_t used = 0;
  int32_t before = -1;  // the key of the point before, and whether the pair already is an edge
  uint32_t before_is_edge = 0;
  taken = 0;
  for (int64_t n = 0; taken == n; n += 16) {  // until fewer than sixteen were there
    const __m512d a = _mm512_loadu_pd(points + n), b = _mm512_loadu_pd(points + n + 8);
    const uint32_t beyond = 0x10000u | ~(_mm512_cmp_pd_mask(a, end, _CMP_LT_OQ) |
                                         uint32_t{_mm512_cmp_pd_mask(b, end, _CMP_LT_OQ)} << 8);
    const int mine = std::countr_zero(beyond);  // what comes after the first beyond the end may be anything
    const uint32_t there = (1u << mine) - 1;
    taken += mine;
    const auto keys_at = [&](__m512d x, uint32_t mask) {
      return _mm256_min_epi32(_mm512_maskz_cvttpd_epi32(static_cast<__mmask8>(mask),
                                                        _mm512_mul_pd(_mm512_sub_pd(x, begin), scale)),
                              last);
    };
    const __m512i key =
        _mm512_inserti64x4(_mm512_castsi256_si512(keys_at(a, there & 255)), keys_at(b, there >> 8), 1);
    alignas(64) int32_t keys[16];
    _mm512_store_si512(keys, key);
    const Transposed terms([&](int at) { return _mm_load_ps(&params.keys[keys[at]].first); });
    const Lanes threshold = reinterpret_cast<Lanes>(_mm512_cvtepu32_ps(
                                _mm512_maskz_loadu_epi32(static_cast<__mmask16>(there), coins + n))) *
                            per_coin;
    const Lanes centre = row.terms.first * terms.first + row.terms.second * terms.second + exploration;
    const Lanes spread = row.terms.rest * terms.third + row.margin;
    const auto mask = [](const IntLanes& truth) {
      return static_cast<uint32_t>(_mm512_movepi32_mask(reinterpret_cast<__m512i>(truth)));
    };
    uint32_t kept = mask(surely_above(centre - spread, threshold, poisson)) & there;
    uint32_t open = there & ~(kept | mask(surely_below(centre + spread, threshold, poisson)));
    for (; open; open &= open - 1) {
      const int at = std::countr_zero(open);
      kept |= static_cast<uint32_t>(passes(params.exact, row, keys[at], coins[n + at])) << at;
    }
    // A pair may have several points, one after the other; it is one edge.
    const __m512i shifted = _mm512_alignr_epi32(key, _mm512_set1_epi32(before), 15);
    const uint32_t again = _mm512_cmpeq_epi32_mask(key, shifted) & there;
    if (again & (again << 1)) [[unlikely]] {
      uint32_t is_edge = before_is_edge, result = 0;
      for (int at = 0; at < 16; ++at) {
        const uint32_t drawn = kept >> at & 1;
        is_edge &= again >> at & 1;
        result |= (drawn & ~is_edge) << at;
        is_edge |= drawn;
      }
      before_is_edge = is_edge;
      kept = result;
    } else {
      // No pair has three points here: the point before decides, unless it began with the last sixteen.
      const uint32_t was_edge = (kept << 1 | before_is_edge) | ((again & 1 & before_is_edge) << 1);
      const uint32_t fresh = kept & ~(again & was_edge);
      before_is_edge = (kept >> 15 & 1) | ((again >> 15) & (kept >> 14) & 1);
      kept = fresh;
    }
    before = keys[15];
    _mm512_storeu_si512(positions + used, _mm512_maskz_compress_epi32(static_cast<__mmask16>(kept), key));
    used += std::popcount(kept);
  }
  return used;
}

#else

int64_t thin(const ThinParams& params, const ThinRow& row, const double* points, const uint32_t* coins,
             int32_t* positions, int64_t& taken) {
  const float per_coin = static_cast<float>(row.rate * 0x1.0p-32);
  const float exploration = static_cast<float>(params.exact.exploration);
  const bool poisson = params.exact.poisson;
  int64_t used = 0, edge = -1;  // the last key that became one: a pair may have several points
  for (taken = 0; points[taken] < row.end; ++taken) {
    const int64_t key = key_of(row, points[taken]);
    const Terms& terms = params.keys[key];
    const float threshold = static_cast<float>(coins[taken]) * per_coin;
    const float centre = row.terms.first * terms.first + row.terms.second * terms.second + exploration;
    const float spread = row.terms.rest * terms.rest + row.margin;
    if (key == edge || surely_below(centre + spread, threshold, poisson)) continue;
    if (!surely_above(centre - spread, threshold, poisson) && !passes(params.exact, row, key, coins[taken]))
      continue;
    positions[used++] = static_cast<int32_t>(key);
    edge = key;
  }
  return used;
}

#endif

void gaps(uint64_t stream_key, uint32_t sequence, uint32_t block, double* out, uint32_t* words) {
  const PhiloxKeys keys(stream_key);
  alignas(64) const uint64_t steps[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  alignas(64) uint64_t low[8], high[8];
  uint32_t gap_words[kGapDraws];
  for (int64_t first = 0; first < kGapDraws; first += 16) {
    const uint64_t counter = (uint64_t{block} * kGapDraws + static_cast<uint64_t>(first)) / 2;
    philox8<10>(
        keys, [&](int) { return Wide{} + uint64_t{sequence}; },
        [&](int n) { return load<Wide>(steps + n) + counter; }, kThinningLane, low, high);
    for (int64_t n = 0; n < 8; ++n) {
      gap_words[first + 2 * n] = static_cast<uint32_t>(low[n]);
      words[first + 2 * n] = static_cast<uint32_t>(low[n] >> 32);
      gap_words[first + 2 * n + 1] = static_cast<uint32_t>(high[n]);
      words[first + 2 * n + 1] = static_cast<uint32_t>(high[n] >> 32);
    }
  }
  for (int64_t n = 0; n < kGapDraws; ++n) out[n] = negative_log(gap_words[n]);
}

void points(uint64_t stream_key, uint32_t sequence, uint32_t block, double sum, double* points,
            uint32_t* coins) {
  typedef double Eight __attribute__((vector_size(64)));
  gaps(stream_key, sequence, block, points, coins);
  // Sums of one, two, four and eight neighbours: every level adds in this order.
  for (int64_t n = 0; n < kGapDraws; n += 8) {
    const Eight zero{};
    Eight x = load<Eight>(points + n);
    x += __builtin_shufflevector(zero, x, 7, 8, 9, 10, 11, 12, 13, 14);
    x += __builtin_shufflevector(zero, x, 6, 7, 8, 9, 10, 11, 12, 13);
    x += __builtin_shufflevector(zero, x, 4, 5, 6, 7, 8, 9, 10, 11);
    x += sum;
    store(points + n, x);
    sum = x[7];
  }
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE
