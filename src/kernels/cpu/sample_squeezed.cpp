// The squeezed sampler. Every pair has a random number U of 40 bits and is an edge if U < P(edge); but only
// the first byte of U is drawn for all pairs, and the bounds of sample_bounds.h decide nearly all of them
// from it. For the rest, in turn: the finer bits of U against the same bounds in floating point; then the
// probability itself. Bounds and their rounding decide how much work is done, never which edge is drawn:
// the result is that of comparing U with P(edge) for every pair.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/sample.h"
#include "kernels/cpu/sample_bounds.h"
#include "kernels/cpu/sample_kernels.h"
#include "kernels/cpu/sample_scratch.h"

namespace edgewise::kernels::cpu {
namespace {

constexpr double kUnits = 32768;  // fixed point: 1 is 2^15

// Rows of key_fixed times this row give p in units of 2^-15. Truncations lose at most 4.5 units or gain 0.5,
// the rest loses 1, the series of the Poisson law 4; floating-point rounding stays below one unit per 2048
// clusters.
SqueezeRow squeeze_row(const SampleHead& head, const SampleBounds& bounds, const float* row) {
  SqueezeRow result;
  double first = row[0] * double{bounds.largest_first} / 65535 * 65536 * kUnits;
  double second = row[1] * double{bounds.largest_second} / 32767 * 65536 * kUnits;
  double rest = row[2] * double{bounds.largest_rest} / 65535 * 65536 * kUnits;
  // A row whose terms do not fit (p beyond 2) keeps a scaled-down lower bound and no upper one.
  const double scale = std::max({1.0, first / 65535, std::abs(second) / 32767, rest / 65535});
  result.no_upper = scale > 1;
  result.first = static_cast<uint16_t>(first / scale);
  result.second = static_cast<int16_t>(std::nearbyint(second / scale));
  result.rest = static_cast<uint16_t>(std::min(std::ceil(rest / scale), 65535.0));
  result.offset = static_cast<uint16_t>(head.exploration * kUnits);
  result.margin = static_cast<uint16_t>((head.law == Law::kPoisson ? 12 : 8) + head.clusters / 2048);
  return result;
}

}  // namespace

void sample_squeezed(const SampleHead& head, const SampleBounds& bounds, const ProductBounds& products,
                     SampleScratch& scratch, int64_t row_begin, int64_t row_end, SampledRows& out) {
  const SampleKernels& kernels = sample_kernels();
  const int64_t words_per_row = (head.valid_key_count + 63) / 64;
  const bool poisson = head.law == Law::kPoisson;
  const SqueezeParams params{bounds.key_fixed.data(), bounds.key_stride, head.stream_key, poisson};
  const ProductParams product_params{products.keys.data(),
                                     products.key_terms.data(),
                                     products.key_stride,
                                     products.cluster_pairs,
                                     static_cast<float>(head.exploration),
                                     poisson,
                                     head.stream_key};
  RefineParams refine{bounds.row_terms.data(),
                      bounds.key_terms.data(),
                      bounds.key_stride,
                      head.exploration,
                      poisson,
                      head.stream_key,
                      row_begin,
                      words_per_row};
  scratch.reserve(kProductRows * head.valid_key_count + 1);
  OpenPair* const open = scratch.open();
  double* const numbers = scratch.numbers();
  out.words.assign(static_cast<size_t>((row_end - row_begin) * words_per_row), 0);
  for (int64_t first = row_begin; first < row_end; first += kProductRows) {
    const int64_t last = std::min(first + kProductRows, row_end);
    uint64_t* const words = out.words.data() + (first - row_begin) * words_per_row;
    refine.first_row = first;
    int64_t count = 0;
    if (products.empty()) {
      for (int64_t row = first; row < last; ++row) {
        const int64_t keys = allowed_keys(head, row);
        if (keys == 0) continue;
        count += kernels.squeeze(params, squeeze_row(head, bounds, bounds.row_terms.data() + 3 * row),
                                 static_cast<uint32_t>(row), keys, words + (row - first) * words_per_row,
                                 open + count);
      }
      count = kernels.refine(refine, open, count, words, numbers);
    } else {
      ProductRow rows[kProductRows];
      for (int64_t n = 0; n < kProductRows; ++n) {
        const int64_t row = std::min(first + n, last - 1);
        const float* terms = products.row_terms.data() + 3 * row;
        rows[n] = {static_cast<uint32_t>(row),
                   first + n < last ? allowed_keys(head, row) : 0,
                   products.rows.data() + row * products.cluster_pairs * 2,
                   terms[0],
                   terms[1],
                   terms[2]};
      }
      count = kernels.squeeze_products(product_params, rows, words_per_row, words, open, scratch.estimates());
      count = kernels.refine_products(refine, scratch.estimates(), open, count, words, numbers);
    }
    for (int64_t n = 0; n < count; ++n) {
      const int64_t row = open[n].row(), position = open[n].position();
      const float p = kernels.dot(head.query_membership + row * head.clusters,
                                  head.key_side + head.valid_keys[position] * head.clusters, head.clusters);
      const bool edge = numbers[n] < edge_probability(head.law, p + head.exploration);
      words[(row - first) * words_per_row + position / 64] |= uint64_t{edge} << (position % 64);
    }
    for (int64_t row = first; row < last; ++row)
      out.degrees.push_back(
          static_cast<int32_t>(kernels.count_bits(words + (row - first) * words_per_row, words_per_row)));
  }
}

}  // namespace edgewise::kernels::cpu
