// The thinning sampler, linear in the points it draws. With b_i >= p_ij for every key j (from the terms of
// sample_bounds.h) a Poisson process of rate c_i b_i runs over the keys of row after row: exponential gaps. A
// point on the pair (i, j) is kept with probability rate_ij / (c_i b_i); what is kept is a Poisson process of
// rate_ij, so that
//
//   P(at least one point kept on (i, j)) = 1 - exp(-rate_ij)
//
// is the law with rate = -log(1 - p) (bernoulli) or min(p, 1) (poisson). Points come in order: no sort, and
// no table of where they fall. The terms decide most points; the others compute p_ij.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/sample/sample_bounds.h"
#include "kernels/cpu/sample/sample_kernels.h"
#include "kernels/cpu/sample/sample_scratch.h"
#include "kernels/cpu/sample/sampler.h"

namespace edgewise::kernels::cpu {
namespace {

// A row that may have p beyond this is drawn by the squeezed sampler: c grows without limit towards 1.
constexpr double kLargestBernoulli = 0.9;
// Under the Poisson law rates above 1 are drawn only to be dropped again.
constexpr double kLargestPoisson = 4;

// The points of a chunk of rows, as far as they are needed: running sums of exponential gaps.
class Points {
 public:
  Points(const SampleKernels& kernels, uint64_t stream_key, int64_t sequence, SampleScratch& scratch)
      : kernels_(kernels),
        stream_key_(stream_key),
        sequence_(static_cast<uint32_t>(sequence)),
        points_(scratch.points()),
        coins_(scratch.coins()) {}

  // Draws until a point lies beyond `end`; returns how many there are in all.
  int64_t reach(double end) {
    if (begin_ >= kKept) {
      std::copy(points_.begin() + begin_, points_.begin() + size_, points_.begin());
      std::copy(coins_.begin() + begin_, coins_.begin() + size_, coins_.begin());
      size_ -= begin_;
      begin_ = 0;
    }
    while (sum_ <= end) {
      if (static_cast<int64_t>(points_.size()) < size_ + kGapDraws + 16) {
        points_.resize(static_cast<size_t>(2 * (size_ + kKept)));
        coins_.resize(points_.size());
      }
      kernels_.points(stream_key_, sequence_, block_++, sum_, points_.data() + size_, coins_.data() + size_);
      size_ += kGapDraws;
      sum_ = points_[static_cast<size_t>(size_ - 1)];
    }
    return size_ - begin_;
  }
  const double* points() const { return points_.data() + begin_; }
  const uint32_t* coins() const { return coins_.data() + begin_; }
  void take(int64_t count) { begin_ += count; }

 private:
  static constexpr int64_t kKept = 1024;
  const SampleKernels& kernels_;
  uint64_t stream_key_;
  uint32_t sequence_, block_ = 0;
  double sum_ = 0;
  int64_t begin_ = 0, size_ = 0;
  std::vector<double>& points_;
  std::vector<uint32_t>& coins_;
};

}  // namespace

ThinningRate thinning_rate(const SampleHead& head, const SampleBounds& bounds, const Terms& row) {
  const MeasureResult& keys = bounds.of_keys;
  // The margin keeps rounding from letting a rate pass its bound.
  const double bound = (row.first * double{keys.largest_first} + row.second * double{keys.largest_second} +
                        row.rest * double{keys.largest_rest} + head.exploration) *
                       (1 + 1e-4);
  const bool bernoulli = head.law == Law::kBernoulli;
  ThinningRate result;
  result.fits = bound <= (bernoulli ? kLargestBernoulli : kLargestPoisson);
  // At least -log(1 - b) / b, from -log(1 - b) <= b + b^2/2 + b^3 / (3 (1 - b)).
  const double oversampling = bernoulli && result.fits ? 1 + bound * (0.5 + bound / (3 * (1 - bound))) : 1;
  result.bound = bound;
  result.rate = oversampling * bound;
  return result;
}

void sample_thinning(const SampleHead& head, const SampleBounds& bounds, const SqueezeBounds& squeeze,
                     SampleScratch& scratch, int64_t row_begin, int64_t row_end, SampledRows& out) {
  const SampleKernels& kernels = sample_kernels();
  // Where each row ends, first: a division per row, and none of them waits for another.
  std::vector<ThinRow>& rows = scratch.thin_rows();
  rows.resize(static_cast<size_t>(row_end - row_begin));
  double end = 0;  // of the rows so far, in units of expected points
  for (int64_t index = row_begin; index < row_end; ++index) {
    ThinRow& row = rows[static_cast<size_t>(index - row_begin)];
    row = ThinRow{};
    row.index = index;
    row.keys = allowed_keys(head, index);
    row.terms = bounds.rows[static_cast<size_t>(index)];
    row.begin = row.end = end;
    if (row.keys == 0) continue;
    const ThinningRate rate = thinning_rate(head, bounds, row.terms);
    row.squeezed = !rate.fits;
    if (row.squeezed || rate.rate <= 0) continue;
    row.rate = rate.rate;
    row.keys_per_unit = 1 / rate.rate;
    row.margin = static_cast<float>(1e-5 * rate.bound);
    row.end = end += rate.rate * static_cast<double>(row.keys);
  }

  const ThinParams params{bounds.keys.data(), exact_params(head)};
  Points points(kernels, head.stream_key, row_begin, scratch);
  int64_t used = 0;
  const auto room = [&](int64_t count) {
    if (static_cast<int64_t>(out.columns.size()) < used + count)
      out.columns.resize(static_cast<size_t>(2 * (used + count)));
    return out.columns.data() + used;
  };
  out.degrees.reserve(rows.size());
  room(static_cast<int64_t>(end * 1.1) + 256);
  for (const ThinRow& row : rows) {
    int64_t degree = 0;
    if (row.squeezed) {
      SampledRows one;
      sample_squeezed(head, squeeze, ProductBounds{}, scratch, row.index, row.index + 1, one);
      degree = one.degrees[0];
      int32_t* const to = room(degree);
      one.write_columns(head, to);
      for (int64_t n = 0; n < degree; ++n)
        to[n] = static_cast<int32_t>(
            std::lower_bound(head.valid_keys, head.valid_keys + head.valid_key_count, to[n]) -
            head.valid_keys);
    } else if (row.end > row.begin) {
      const int64_t most = points.reach(row.end);
      int64_t taken = 0;
      degree = kernels.thin(params, row, points.points(), points.coins(), room(most + 16), taken);
      points.take(taken);
    }
    used += degree;
    out.degrees.push_back(static_cast<int32_t>(degree));
  }
  out.columns.resize(static_cast<size_t>(used));
  out.are_positions = true;
}

}  // namespace edgewise::kernels::cpu
