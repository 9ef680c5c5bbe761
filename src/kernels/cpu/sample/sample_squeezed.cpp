// The squeezed sampler. Every pair has a random number U of 40 bits and is an edge if U < P(edge); but only
// the first byte of U is drawn for all pairs, and the bounds of sample_bounds.h decide nearly all of them
// from it. For the rest, in turn: the finer bits of U against the same bounds in floating point; then the
// probability itself. Bounds and their rounding decide how much work is done, never which edge is drawn:
// the result is that of comparing U with P(edge) for every pair.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/sample/sample_bounds.h"
#include "kernels/cpu/sample/sample_kernels.h"
#include "kernels/cpu/sample/sample_scratch.h"
#include "kernels/cpu/sample/sampler.h"

namespace edgewise::kernels::cpu {
namespace {

constexpr float kUnits = 16384;  // fixed point: 1 is 2^14

// Makes of a row's terms what gives p in fixed point when multiplied by key terms in fixed point.
class RowFixer {
 public:
  RowFixer(const SampleHead& head, const SqueezeBounds& bounds)
      : bounds_(bounds),
        folds_(bounds.second.empty()),
        first_(bounds.largest.first * (kUnits * 65536 / 65535)),
        second_(folds_ ? 0 : bounds.largest.second * (kUnits * 65536 / 32767)),
        rest_(bounds.largest.rest * (kUnits * 65536 / 65535 * 1.001f)),
        fold_(folds_ ? bounds.row_fold * bounds.row_fold : 0),
        offset_(static_cast<float>(head.exploration) * kUnits) {}

  void operator()(int64_t index, SqueezeRow& result) const {
    const Terms& row = bounds_.rows[index];
    const GroupTerms& groups = bounds_.group_terms;
    const bool grouped = groups.row_first != nullptr;
    const float* const firsts = grouped ? groups.row_first + index * groups.lanes : &row.first;
    const float first = (grouped ? *std::max_element(firsts, firsts + bounds_.groups) : *firsts) * first_,
                second = row.second * second_,
                rest = std::sqrt(row.rest * row.rest + fold_ * row.second * row.second) * rest_ + 1;
    // A row whose terms do not fit even the widest range keeps a scaled-down lower bound and no upper one.
    const float most = std::max({first, std::abs(second), rest, offset_});
    float scale = 1;
    result.range = 0;
    for (; most * scale > kFits && result.range < kWidest; ++result.range) scale /= 2;
    result.no_upper = !(most * scale <= kFits);
    if (result.no_upper) scale = kFits / most;  // 0 if `most` is infinite
    if (grouped) {
      const float scaled = first_ * scale;
      for (int64_t g = 0; g < groups.lanes; ++g)
        result.first[g] = static_cast<uint16_t>(static_cast<int32_t>(std::min(firsts[g] * scaled, 32767.0f)));
    } else {
      result.first[0] = fixed(first, scale);
    }
    result.second =
        static_cast<int16_t>(second < 0 ? -fixed(-second, scale, 0.5f) : fixed(second, scale, 0.5f));
    result.rest = fixed(rest, scale, 1);
    result.offset = fixed(offset_, scale);
    if (!folds_)
      result.key_second = bounds_.second.data() + (grouped ? groups.row_group[index] * bounds_.stride : 0);
  }

 private:
  static constexpr float kFits = 32765;
  static constexpr uint16_t kWidest = 6;
  static uint16_t fixed(float x, float scale, float up = 0) {
    const float scaled = x * scale + up;
    return static_cast<uint16_t>(scaled < 32767 ? scaled : scale == 0 ? 0 : 32767);
  }
  const SqueezeBounds& bounds_;
  bool folds_;
  float first_, second_, rest_, fold_, offset_;
};

}  // namespace

void sample_squeezed(const SampleHead& head, const SqueezeBounds& bounds, const ProductBounds& products,
                     SampleScratch& scratch, int64_t row_begin, int64_t row_end, SampledRows& out) {
  const SampleKernels& kernels = sample_kernels();
  const int64_t words_per_row = (head.valid_key_count + 63) / 64;
  const bool poisson = head.law == Law::kPoisson;
  SqueezeParams params;
  params.key_first = bounds.first.data();
  params.key_group = bounds.fixed_group.empty() ? nullptr : bounds.fixed_group.data();
  params.block_rest = bounds.block_rest.data();
  params.stream_key = head.stream_key;
  params.poisson = poisson;
  // Truncation makes the first product at most 2.5 units too low, the second 1.5 too low or 0.5 too high, the
  // offset 1 too low; floating-point rounding stays below one unit per 2048 clusters.
  const int rounding = 1 + static_cast<int>(head.clusters / 2048);
  params.above = rounding + (bounds.second.empty() ? 3 : 5);
  params.below = rounding + (bounds.second.empty() ? 0 : 1);
  params.series = poisson ? 3 : 0;
  const ProductParams product_params{products.keys.data(),
                                     products.key_terms.data(),
                                     products.key_stride,
                                     products.cluster_pairs,
                                     static_cast<float>(head.exploration),
                                     poisson,
                                     head.stream_key};
  RefineParams refine;
  refine.row_terms = bounds.rows;
  refine.key_terms = bounds.keys;
  refine.groups = bounds.group_terms;
  refine.exploration = head.exploration;
  refine.poisson = poisson;
  refine.stream_key = head.stream_key;
  refine.words_per_row = words_per_row;
  ExactParams exact = exact_params(head);
  const RowFixer fix_row(head, bounds);
  SqueezeRow fixed_row;
  scratch.reserve(kProductRows * head.valid_key_count + 1);
  OpenPair* const open = scratch.open();
  double* const numbers = scratch.numbers();
  out.words.assign(static_cast<size_t>((row_end - row_begin) * words_per_row), 0);
  for (int64_t first = row_begin; first < row_end; first += kProductRows) {
    const int64_t last = std::min(first + kProductRows, row_end);
    uint64_t* const words = out.words.data() + (first - row_begin) * words_per_row;
    refine.first_row = exact.first_row = first;
    int64_t count = 0;
    if (products.empty()) {
      for (int64_t row = first; row < last; ++row) {
        const int64_t keys = allowed_keys(head, row);
        if (keys == 0) continue;
        fix_row(row, fixed_row);
        count += kernels.squeeze(params, fixed_row, static_cast<uint32_t>(row), keys,
                                 words + (row - first) * words_per_row, open + count);
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
    kernels.decide(exact, open, numbers, count, words);
    for (int64_t row = first; row < last; ++row)
      out.degrees.push_back(
          static_cast<int32_t>(kernels.count_bits(words + (row - first) * words_per_row, words_per_row)));
  }
}

}  // namespace edgewise::kernels::cpu
