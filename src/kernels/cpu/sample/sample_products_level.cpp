// The squeezed sampler with bounds from integer products, compiled once per CPU level; ProductBounds in
// sample_bounds.h says what they are.
#include <bit>
#include <cmath>

#include "kernels/cpu/sample/sample_draw.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE {
namespace {

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
    alignas(64) uint64_t bits[8] = {}, low[8];
    std::memcpy(bits, pairs + begin, static_cast<size_t>(batch) * sizeof(uint64_t));
    draw_fine(keys, bits, low);
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
    spread = error * (row.length + row.error) + length * row.error + (p * 1e-5f + 1e-6f);
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

}  // namespace

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

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE
