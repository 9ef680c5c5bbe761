// The samplers' inner loops, compiled once per CPU level; sample_kernels.h says what each one does.
#include <bit>
#include <cmath>

#include "kernels/cpu/sample_kernels.h"
#include "kernels/cpu/sample_lanes.h"
#include "kernels/philox.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE {
namespace {

// ---- bounds ----

// Rounding of the terms themselves is covered by widening what bounds the rest.
constexpr float kWiden = 1.0001f, kFloor = 2e-6f;

void measure(const MeasureParams& params, float* terms) {
  const int64_t width = params.clusters;
  const float* const along = params.keys ? params.direction : params.other;  // k
  for (int64_t n = 0; n < params.count; ++n) {
    const float* vector = params.vectors + (params.tokens ? params.tokens[n] : n) * width;
    const float first = lane_dot(vector, along, width);
    float* out = terms + 3 * n;
    Lanes squares{}, rest{}, across{};
    const float subtract = params.keys ? first : lane_dot(vector, params.direction, width);
    const auto step = [&](const Lanes& v, const Lanes& d, const Lanes& o) {
      const Lanes r = v - subtract * d;
      squares += v * v;
      rest += r * r;
      across += r * o;
    };
    int64_t c = 0;
    for (; c + 16 <= width; c += 16)
      step(load<Lanes>(vector + c), load<Lanes>(params.direction + c), load<Lanes>(params.other + c));
    if (c < width)
      step(load_lanes(vector + c, width - c), load_lanes(params.direction + c, width - c),
           load_lanes(params.other + c, width - c));
    const float length = std::sqrt(sum_lanes(squares));
    float rest_square = sum_lanes(rest);
    out[0] = first;
    out[1] = subtract;
    if (params.keys) {
      out[1] = sum_lanes(across);
      // What is left after the second subtraction loses digits: keep a part in 10^6 of what it came from.
      rest_square = std::fmax(rest_square - out[1] * out[1], 1e-6f * rest_square);
    }
    out[2] = std::sqrt(rest_square) * kWiden + kFloor * length;
  }
}

bool valid(const MeasureParams& params) {
  typedef int32_t Truth __attribute__((vector_size(64)));
  Truth good = Truth{} - 1;
  for (int64_t n = 0; n < params.count; ++n) {
    const float* vector = params.vectors + (params.tokens ? params.tokens[n] : n) * params.clusters;
    for (int64_t c = 0; c < params.clusters; c += 16) {
      const Lanes x =
          params.clusters - c >= 16 ? load<Lanes>(vector + c) : load_lanes(vector + c, params.clusters - c);
      good &= (x >= 0.0f) & (x <= 3.402823466e38f);
    }
  }
  for (int n = 0; n < 16; ++n)
    if (!good[n]) return false;
  return true;
}

float dot(const float* a, const float* b, int64_t clusters) {
  return lane_dot(a, b, clusters);
}

// ---- squeezed ----

// 1 - exp(-x) of 2^15 x, for x in [0, 2), capped at x = 1: a power series in 16-bit fixed point, at most 4
// units low and never high by more than 4.
inline Halves one_minus_exp(Halves x) {
  const Halves capped = x - subtract_saturated(x, splat(32767));
  const Halves y = capped + capped;  // 2^16 x
  // x (1 - x/2 (1 - x/3 (1 - x/4 ...))); a product with 65535 / k stands for a division by k.
  Halves series = splat(65535);
#pragma GCC unroll 8
  for (int k = 8; k >= 2; --k)
    series = splat(65535) - multiply_high(multiply_high(series, y), splat(static_cast<uint16_t>(65535 / k)));
  return multiply_high(series, y) >> 1;
}

// Keys taken at a time: their bytes and words stay in the first-level cache. Numbers first, then comparisons,
// then the open pairs: only the last step branches on what was drawn, so the first two never wait for it.
constexpr int64_t kTile = 2048;

void draw_bytes(const PhiloxKeys& keys, uint32_t row_index, int64_t begin, int64_t count, uint8_t* bytes) {
  alignas(64) const uint64_t steps[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int64_t at = 0; at < count; at += 128)
    philox8(
        keys, [&](int) { return Wide{} + uint64_t{row_index}; },
        [&](int n) { return load<Wide>(steps + n) + static_cast<uint64_t>(begin + at) / 16; }, kByteLane,
        bytes + at, bytes + at + 64);
}

template <bool poisson>
void compare_bytes(const SqueezeParams& params, const SqueezeRow& row, int64_t begin, int64_t count,
                   const uint8_t* bytes, uint64_t* certain, uint64_t* possible) {
  const Halves first = splat(row.first), rest = splat(row.rest), margin = splat(row.margin),
               second = splat(static_cast<uint16_t>(row.second));
  // The second product may be negative: it is added with 2^14 on top, which is then taken away again.
  const Halves lift = splat(16384), lifted_offset = splat(static_cast<uint16_t>(16384 + row.offset));
  const Bytes no_upper = reinterpret_cast<Bytes>(splat(row.no_upper ? 0xFFFF : 0));
  const int64_t stride = params.key_stride;
  for (int64_t block = 0; block * 64 < count; ++block) {
    const uint16_t* fixed = params.key_fixed + begin + block * 64;
    uint64_t low_word = 0, high_word = 0;
#pragma GCC unroll 4
    for (int part = 0; part < 64; part += kVectorBytes) {
      Halves low_bound[2], high_bound[2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const uint16_t* terms = fixed + 32 * half + part / 2;
        const Halves added = multiply_high_signed(load<Halves>(terms + stride), second) + lifted_offset;
        Halves centre =
            subtract_saturated(add_saturated(multiply_high(load<Halves>(terms), first), added), lift);
        const Halves spread = add_saturated(multiply_high(load<Halves>(terms + 2 * stride), rest), margin);
        if constexpr (poisson) centre = one_minus_exp(centre);
        low_bound[half] = subtract_saturated(centre, spread) >> 7;
        high_bound[half] = add_saturated(centre, spread) >> 7;
      }
      const Bytes random = load<Bytes>(bytes + block * 64 + part);
      low_word |= less(random, narrow(low_bound[0], low_bound[1])) << part;
      high_word |= less_or_equal(random, narrow(high_bound[0], high_bound[1]) | no_upper) << part;
    }
    certain[block] = low_word;
    possible[block] = high_word;
  }
}

int64_t squeeze(const SqueezeParams& params, const SqueezeRow& row, uint32_t row_index, int64_t count,
                uint64_t* words, OpenPair* open) {
  const PhiloxKeys keys(params.stream_key);
  OpenPair* const begin = open;
  for (int64_t base = 0; base < count; base += kTile) {
    const int64_t size = count - base < kTile ? count - base : kTile;
    alignas(64) uint8_t bytes[kTile];
    uint64_t possible[kTile / 64];
    uint64_t* const certain = words + base / 64;
    draw_bytes(keys, row_index, base, size, bytes);
    params.poisson ? compare_bytes<true>(params, row, base, size, bytes, certain, possible)
                   : compare_bytes<false>(params, row, base, size, bytes, certain, possible);
    if (size % 64) {
      possible[size / 64] &= (uint64_t{1} << (size % 64)) - 1;
      certain[size / 64] &= possible[size / 64];
    }
    for (int64_t block = 0; block * 64 < size; ++block) {
      uint64_t left = possible[block] & ~certain[block];
      const auto pair = [&](uint64_t bits) {
        const int64_t n = block * 64 + (std::countr_zero(bits) & 63);
        return OpenPair(row_index, base + n, bytes[n]);
      };
      // One open pair or none is the rule: written without a branch.
      *open = pair(left);
      open += left != 0;
      for (left &= left - 1; left; left &= left - 1) *open++ = pair(left);
    }
  }
  return open - begin;
}

// 1 - exp(-x) for x in [0, 1], error below 3e-8.
inline double one_minus_exp(double x) {
  double series = 1;
#pragma GCC unroll 10
  for (int k = 10; k >= 2; --k) series = 1 - x * (1.0 / k) * series;
  return x * series;
}

struct Estimate {
  double likely, spread;
};

// estimate(n, pair): P(edge) of the n-th pair and how far off it may be.
template <typename Function>
int64_t refine_each(const RefineParams& params, OpenPair* pairs, int64_t count, uint64_t* words,
                    double* numbers, const Function& estimate) {
  const PhiloxKeys keys(params.stream_key);
  int64_t kept = 0;
  for (int64_t begin = 0; begin < count; begin += 8) {
    const int64_t batch = count - begin < 8 ? count - begin : 8;
    alignas(64) uint64_t bits[8] = {}, low[8], high[8];
    std::memcpy(bits, pairs + begin, static_cast<size_t>(batch) * sizeof(uint64_t));
    philox8(
        keys, [&](int n) { return load<Wide>(bits + n) >> OpenPair::kRowShift; },
        [&](int n) { return load<Wide>(bits + n) & 0xFFFFFFFFu; }, kFineLane, low, high);
    for (int64_t n = 0; n < batch; ++n) {
      OpenPair pair;
      pair.bits = bits[n];
      const int64_t position = pair.position();
      const double u = (pair.byte() + static_cast<uint32_t>(low[n]) * 0x1.0p-32) * 0x1.0p-8;
      const Estimate known = estimate(begin + n, pair);
      // No branch: which way it goes is a coin.
      const bool edge = u < known.likely - known.spread, open = (u <= known.likely + known.spread) & !edge;
      words[(pair.row() - params.first_row) * params.words_per_row + position / 64] |= uint64_t{edge}
                                                                                       << (position % 64);
      pairs[kept] = pair;
      numbers[kept] = u;
      kept += open;
    }
  }
  return kept;
}

int64_t refine(const RefineParams& params, OpenPair* pairs, int64_t count, uint64_t* words, double* numbers) {
  const float* const first = params.key_terms;
  const float* const second = first + params.key_stride;
  const float* const rest = second + params.key_stride;
  return refine_each(params, pairs, count, words, numbers, [&](int64_t, const OpenPair& pair) {
    const int64_t position = pair.position();
    const float* row = params.row_terms + 3 * pair.row();
    const double centre =
        double{row[0]} * first[position] + double{row[1]} * second[position] + params.exploration;
    // Every probability in question rounds by less than a part in 10^5 of the terms it is made of.
    const double spread = double{row[2]} * rest[position] + 1e-5 * std::fabs(centre) + 1e-7;
    const double capped = centre < 0 ? 0 : centre > 1 ? 1 : centre;
    return Estimate{params.poisson ? one_minus_exp(capped) : capped, spread};
  });
}

// ---- squeezed, with bounds from integer products ----

// out[r][n] = rows[r] . key n of the block, for four rows and 64 keys.
#define EDGEWISE_PRODUCTS(add)                                                 \
  constexpr int vectors = kVectorBytes == 64 ? 4 : 2;                          \
  for (int begin = 0; begin < 64; begin += vectors * kSumLanes) {              \
    Sums sums[4][vectors] = {};                                                \
    for (int64_t pair = 0; pair < cluster_pairs; ++pair) {                     \
      Halves values[vectors];                                                  \
      _Pragma("GCC unroll 4") for (int v = 0; v < vectors; ++v) values[v] =    \
          load<Halves>(keys + (pair * 64 + begin + v * kSumLanes) * 2);        \
      _Pragma("GCC unroll 4") for (int r = 0; r < 4; ++r) {                    \
        const Halves row = splat_pair(rows[r] + 2 * pair);                     \
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; ++v) sums[r][v] = \
            add(sums[r][v], values[v], row);                                   \
      }                                                                        \
    }                                                                          \
    _Pragma("GCC unroll 4") for (int r = 0; r < 4; ++r)                        \
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; ++v)              \
            store(out[r] + begin + v * kSumLanes, sums[r][v]);                 \
  }

void products(const int16_t* const* rows, const int16_t* keys, int64_t cluster_pairs, int32_t* const* out) {
  EDGEWISE_PRODUCTS(add_products)
}

#if defined(__AVX512BW__)
// The same with the dot-product instruction, which not every CPU with AVX-512 has.
__attribute__((target("avx512vnni"))) inline Sums add_products_vnni(Sums sum, Halves a, Halves b) {
  return reinterpret_cast<Sums>(_mm512_dpwssd_epi32(
      reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
__attribute__((target("avx512vnni"))) void products_vnni(const int16_t* const* rows, const int16_t* keys,
                                                         int64_t cluster_pairs, int32_t* const* out) {
  EDGEWISE_PRODUCTS(add_products_vnni)
}
#endif

auto* best_products() {
#if defined(__AVX512BW__)
  static const bool vnni = __builtin_cpu_supports("avx512vnni");
  if (vnni) return products_vnni;
#endif
  return products;
}

typedef int32_t IntLanes __attribute__((vector_size(64)));

void round_vector(const RoundParams& params, const float* vector, int16_t* values, float* terms) {
  Lanes top_lanes{}, squares{}, rest{};
  for (int64_t c = 0; c < params.clusters; c += 16) {
    const Lanes x = load_lanes(vector + c, params.clusters - c);
    top_lanes = x > top_lanes ? x : top_lanes;
    squares += x * x;
  }
  float top = 0;
  for (int n = 0; n < 16; ++n) top = std::fmax(top, top_lanes[n]);
  const float scale = top / params.largest, inverse = scale > 0 ? params.largest / top : 0;
  for (int64_t c = 0; c < params.clusters; c += 16) {
    const Lanes x = load_lanes(vector + c, params.clusters - c);
    const Lanes scaled = x * inverse + 0.5f;
    const IntLanes value =
        __builtin_convertvector(scaled < params.largest ? scaled : Lanes{} + params.largest, IntLanes);
    const Lanes off = x - scale * __builtin_convertvector(value, Lanes);
    rest += off * off;
    const int64_t pairs = (params.clusters - c + 1) / 2 < 8 ? (params.clusters - c + 1) / 2 : 8;
    int32_t rounded[16];
    store(rounded, value);
    for (int64_t n = 0; n < pairs; ++n) {
      int16_t* const to = values + (c / 2 + n) * params.pair_step;
      to[0] = static_cast<int16_t>(rounded[2 * n]);
      to[1] = static_cast<int16_t>(rounded[2 * n + 1]);
    }
  }
  // Widened for the rounding of these sums.
  const float length = std::sqrt(sum_lanes(squares));
  terms[0] = scale;
  terms[1] = std::sqrt(sum_lanes(rest)) * 1.001f + 1e-6f * length;
  terms[2] = length * 1.001f;
}

// Bit n is set where lane n is true.
inline uint64_t mask_of(const IntLanes& truth) {
#if defined(__AVX512BW__)
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(truth));
#else
  uint64_t mask = 0;
  for (int n = 0; n < 16; ++n) mask |= uint64_t{truth[n] != 0} << n;
  return mask;
#endif
}

inline Lanes bytes_as_floats(const uint8_t* bytes) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Lanes>(
      _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)))));
#else
  Lanes result;
  for (int n = 0; n < 16; ++n) result[n] = static_cast<float>(bytes[n]);
  return result;
#endif
}

// One value or sixteen: P(edge) from an integer product, and how far off it may be.
template <typename Value>
struct ProductEstimate {
  Value likely, spread;

  ProductEstimate(const ProductParams& params, const ProductRow& row, const Value& product,
                  const Value& scale, const Value& error, const Value& length) {
    const Value p = product * scale * row.scale + params.exploration;
    spread = error * row.length + length * row.error + (p * 1e-5f + 1e-6f);
    likely = p < 1.0f ? p : Value{} + 1.0f;
    if (!params.poisson) return;
    Value series = Value{} + 1.0f;  // 1 - exp(-p) = p (1 - p/2 (1 - p/3 ...)), error below 1e-6
#pragma GCC unroll 10
    for (int k = 10; k >= 2; --k) series = 1.0f - likely * (1.0f / static_cast<float>(k)) * series;
    likely *= series;
  }
};

// One row and one block of 64 keys: their bytes against the bounds.
inline void compare_products(const ProductParams& params, const ProductRow& row, int64_t at,
                             const int32_t* products_of, const uint8_t* bytes, uint64_t& certain,
                             uint64_t& possible) {
  certain = possible = 0;
#pragma GCC unroll 4
  for (int part = 0; part < 64; part += 16) {
    const float* terms = params.key_terms + at + part;
    const ProductEstimate<Lanes> known(
        params, row, __builtin_convertvector(load<IntLanes>(products_of + part), Lanes), load<Lanes>(terms),
        load<Lanes>(terms + params.key_stride), load<Lanes>(terms + 2 * params.key_stride));
    // The pair's number is in [byte, byte + 1) / 256.
    const Lanes byte = bytes_as_floats(bytes + part);
    certain |= mask_of(byte + 1.0f <= (known.likely - known.spread) * 256.0f) << part;
    possible |= mask_of(byte <= (known.likely + known.spread) * 256.0f) << part;
  }
}

// Keys taken at a time: as for single rows, numbers and products first, then comparisons, then open pairs.
constexpr int64_t kProductTile = 256;

int64_t squeeze_products(const ProductParams& params, const ProductRow* rows, int64_t words_per_row,
                         uint64_t* words, OpenPair* open, OpenEstimate* estimates) {
  const PhiloxKeys keys(params.stream_key);
  auto* const multiply = best_products();
  int64_t count = 0, longest = 0;
  for (int64_t r = 0; r < kProductRows; ++r) longest = rows[r].keys > longest ? rows[r].keys : longest;
  for (int64_t base = 0; base < longest; base += kProductTile) {
    alignas(64) uint8_t bytes[kProductRows][kProductTile];
    alignas(64) int32_t product[kProductRows][kProductTile];
    const int64_t size = longest - base < kProductTile ? longest - base : kProductTile;
    for (int64_t r = 0; r < kProductRows; ++r)
      if (rows[r].keys > base) draw_bytes(keys, rows[r].index, base, size, bytes[r]);
    for (int64_t at = 0; at < size; at += 64)
      for (int64_t quad = 0; quad < kProductRows; quad += 4) {
        const int16_t* const values[4] = {rows[quad].values, rows[quad + 1].values, rows[quad + 2].values,
                                          rows[quad + 3].values};
        int32_t* const into[4] = {product[quad] + at, product[quad + 1] + at, product[quad + 2] + at,
                                  product[quad + 3] + at};
        multiply(values, params.keys + (base + at) * params.cluster_pairs * 2, params.cluster_pairs, into);
      }
    for (int64_t r = 0; r < kProductRows; ++r) {
      uint64_t possible[kProductTile / 64];
      uint64_t* const certain = words + r * words_per_row + base / 64;
      const int64_t mine = rows[r].keys - base < size ? rows[r].keys - base : size;
      for (int64_t at = 0; at < mine; at += 64) {
        compare_products(params, rows[r], base + at, product[r] + at, bytes[r] + at, certain[at / 64],
                         possible[at / 64]);
        if (mine - at < 64) {
          possible[at / 64] &= (uint64_t{1} << (mine - at)) - 1;
          certain[at / 64] &= possible[at / 64];
        }
      }
      for (int64_t at = 0; at < mine; at += 64)
        for (uint64_t left = possible[at / 64] & ~certain[at / 64]; left; left &= left - 1) {
          const int64_t n = at + std::countr_zero(left);
          const float* terms = params.key_terms + base + n;
          const ProductEstimate<float> known(params, rows[r], static_cast<float>(product[r][n]), terms[0],
                                             terms[params.key_stride], terms[2 * params.key_stride]);
          open[count] = OpenPair(rows[r].index, base + n, bytes[r][n]);
          estimates[count++] = {known.likely, known.spread};
        }
    }
  }
  return count;
}

int64_t refine_products(const RefineParams& params, const OpenEstimate* estimates, OpenPair* pairs,
                        int64_t count, uint64_t* words, double* numbers) {
  return refine_each(params, pairs, count, words, numbers, [&](int64_t n, const OpenPair&) {
    return Estimate{estimates[n].likely, estimates[n].spread};
  });
}

int64_t count_bits(const uint64_t* words, int64_t word_count) {
  int64_t count = 0;
  for (int64_t n = 0; n < word_count; ++n) count += std::popcount(words[n]);
  return count;
}

// ---- thinning ----

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

void gaps(uint64_t stream_key, uint32_t sequence, uint32_t block, double* out, uint32_t* words) {
  const PhiloxKeys keys(stream_key);
  alignas(64) const uint64_t steps[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  alignas(64) uint64_t low[8], high[8];
  uint32_t gap_words[kGapDraws];
  for (int64_t first = 0; first < kGapDraws; first += 16) {
    const uint64_t counter = (uint64_t{block} * kGapDraws + static_cast<uint64_t>(first)) / 2;
    philox8(
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

// ---- bits to columns ----

#if defined(__AVX512BW__)
// The first 64 * word_count keys, in place, when they are first, first + 1, ...: the places of a word's bits
// by one byte-compressing instruction, which not every CPU with AVX-512 has. Stops where fewer than 64
// entries of room are left; `done` becomes the number of words written.
__attribute__((target("avx512vbmi2"))) int32_t* expand_run(const uint64_t* words, int64_t word_count,
                                                           int32_t first, int32_t* columns,
                                                           const int32_t* stop, int64_t& done) {
  alignas(64) uint8_t places[64];
  for (int n = 0; n < 64; ++n) places[n] = static_cast<uint8_t>(n);
  const __m512i all = _mm512_load_si512(places);
  int64_t n = 0;
  for (; n < word_count && columns + 64 <= stop; ++n) {
    const __m512i bits = _mm512_maskz_compress_epi8(words[n], all);
    const __m512i base = _mm512_set1_epi32(first + static_cast<int32_t>(64 * n));
    const int count = std::popcount(words[n]);
    _mm512_storeu_si512(columns, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(bits))));
    if (count > 16) {
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
               [[maybe_unused]] int64_t key_count, int32_t* columns, [[maybe_unused]] int64_t room) {
  int32_t* const begin = columns;
  int64_t done = 0;
#if defined(__AVX512BW__)
  // Keys ascend, so that the last one tells whether any is left out.
  static const bool vbmi2 = __builtin_cpu_supports("avx512vbmi2");
  if (vbmi2 && key_count > 0 && valid_keys[key_count - 1] - valid_keys[0] == key_count - 1)
    columns = expand_run(words, word_count, valid_keys[0], columns, begin + room, done);
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
const SampleKernels kernels{valid,           measure, squeeze, refine,     round_vector, squeeze_products,
                            refine_products, dot,     gaps,    count_bits, expand};

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE
