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

int64_t refine(const RefineParams& params, OpenPair* pairs, int64_t count, uint64_t* words, double* numbers) {
  const PhiloxKeys keys(params.stream_key);
  const float* const first = params.key_terms;
  const float* const second = first + params.key_stride;
  const float* const rest = second + params.key_stride;
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
      const float* row = params.row_terms + 3 * pair.row();
      const double u = (pair.byte() + static_cast<uint32_t>(low[n]) * 0x1.0p-32) * 0x1.0p-8;
      const double centre =
          double{row[0]} * first[position] + double{row[1]} * second[position] + params.exploration;
      // Every probability in question rounds by less than a part in 10^5 of the terms it is made of.
      const double spread = double{row[2]} * rest[position] + 1e-5 * std::fabs(centre) + 1e-7;
      const double capped = centre < 0 ? 0 : centre > 1 ? 1 : centre;
      const double likely = params.poisson ? one_minus_exp(capped) : capped;
      // No branch: which way it goes is a coin.
      const bool edge = u < likely - spread, open = (u <= likely + spread) & !edge;
      words[(pair.row() - params.first_row) * params.words_per_row + position / 64] |= uint64_t{edge}
                                                                                       << (position % 64);
      pairs[kept] = pair;
      numbers[kept] = u;
      kept += open;
    }
  }
  return kept;
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

int64_t expand(const uint64_t* words, int64_t word_count, const int32_t* valid_keys,
               [[maybe_unused]] int64_t key_count, int32_t* columns, [[maybe_unused]] int64_t room) {
  int32_t* const begin = columns;
  for (int64_t n = 0; n < word_count; ++n) {
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
const SampleKernels kernels{measure, squeeze, refine, dot, gaps, count_bits, expand};

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL_NAMESPACE
