// The thinning sampler, linear in the edges it draws. With g_j and w_i such that w_i g_j bounds p_ij (both
// from the terms of sample_bounds.h), a Poisson process of rate c_i w_i g_j runs over the keys of row after
// row: exponential gaps, the key found in the running sum of g. A point at (i, j) is kept with probability
// rate_ij / (c_i w_i g_j); what is kept is a Poisson process of rate_ij, so that
//
//   P(at least one point kept at (i, j)) = 1 - exp(-rate_ij)
//
// is the law with rate = -log(1 - p) (bernoulli) or min(p, 1) (poisson). Points come in order: no sort. The
// terms decide most points; the others compute p_ij.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/sample.h"
#include "kernels/cpu/sample_bounds.h"
#include "kernels/cpu/sample_kernels.h"
#include "kernels/cpu/sample_points.h"
#include "kernels/cpu/sample_scratch.h"

namespace edgewise::kernels::cpu {
namespace {

// A row that may have p beyond this is drawn by the squeezed sampler: c grows without limit towards 1.
constexpr double kLargestBernoulli = 0.9;
// Under the Poisson law rates above 1 are drawn only to be dropped again.
constexpr double kLargestPoisson = 4;
// Rounding of the terms must not let a rate pass its bound.
constexpr double kGuard = 1 + 1e-5;
constexpr int kBatch = 32;

// Is rate_ij > threshold?
inline bool passes(const SampleKernels& kernels, const SampleHead& head, const float* terms,
                   const ThinningKey& key, int64_t row, int64_t n, double threshold) {
  const double centre = double{terms[0]} * key.first + double{terms[1]} * key.second + head.exploration;
  const double spread = double{terms[2]} * key.rest + 1e-5 * std::abs(centre);
  const double low = std::max(centre - spread, 0.0), high = centre + spread;
  const bool bernoulli = head.law == Law::kBernoulli;
  // p + p^2 / 2 <= -log(1 - p) <= p + p^2 / (2 (1 - p))
  if (low < 1 && (bernoulli ? low + low * low / 2 : low) > threshold) return true;
  if (high < 1 && (bernoulli ? high + high * high / (2 * (1 - high)) : high) < threshold) return false;
  const double p =
      head.exploration + kernels.dot(head.query_membership + row * head.clusters,
                                     head.key_side + head.valid_keys[n] * head.clusters, head.clusters);
  const double capped = std::min(p, 1.0);
  return (bernoulli ? -std::log1p(-capped) : capped) > threshold;
}

}  // namespace

ThinningRate thinning_rate(const SampleHead& head, const SampleBounds& bounds, const ThinningTables& tables,
                           int64_t row) {
  const float* terms = bounds.row_terms.data() + 3 * row;
  ThinningRate result;
  result.weight = terms[0];
  if (tables.second_share > 0)
    result.weight = std::max(result.weight, std::abs(terms[1]) / tables.second_share);
  if (tables.rest_share > 0) result.weight = std::max(result.weight, terms[2] / tables.rest_share);
  if (tables.exploration_share > 0)
    result.weight = std::max(result.weight, head.exploration / tables.exploration_share);
  const double largest = result.weight * tables.largest;
  const bool bernoulli = head.law == Law::kBernoulli;
  result.fits = largest <= (bernoulli ? kLargestBernoulli : kLargestPoisson);
  const double oversampling =
      bernoulli && result.fits && largest > 1e-9 ? -std::log1p(-largest) / largest : 1;
  result.rate = oversampling * kGuard * result.weight;
  return result;
}

ThinningTables thinning_tables(const SampleHead& head, const SampleBounds& bounds) {
  ThinningTables tables;
  // The shares weigh the four terms of the bound against each other. Any value is valid; at the mean row all
  // terms are equally tight.
  double sums[3] = {};
  for (int64_t row = 0; row < head.queries; ++row)
    if (!head.query_mask || head.query_mask[row])
      for (int t = 0; t < 3; ++t) sums[t] += std::abs(bounds.row_terms[static_cast<size_t>(3 * row + t)]);
  const double first = std::max(sums[0], 1e-30);
  tables.second_share = sums[1] / first;
  tables.rest_share = sums[2] / first;
  tables.exploration_share = head.exploration * static_cast<double>(head.valid_query_count) / first;
  const int64_t keys = head.valid_key_count;
  tables.keys.resize(static_cast<size_t>(keys + 1));
  for (int64_t n = 0; n < keys; ++n) {
    const double g = bounds.first()[n] + tables.second_share * std::abs(bounds.second()[n]) +
                     tables.rest_share * bounds.rest()[n] + tables.exploration_share;
    ThinningKey& key = tables.keys[static_cast<size_t>(n)];
    key.first = bounds.first()[n];
    key.second = bounds.second()[n];
    key.rest = bounds.rest()[n];
    tables.keys[static_cast<size_t>(n + 1)].from = key.from + g;
    tables.largest = std::max(tables.largest, g);
  }
  const double total = tables.keys.back().from;
  const int64_t slots = 2 * keys;
  tables.start.resize(static_cast<size_t>(slots));
  int64_t n = 0;
  for (int64_t slot = 0; slot < slots; ++slot) {
    const double from = total * static_cast<double>(slot) / static_cast<double>(slots);
    while (n + 1 < keys && tables.keys[static_cast<size_t>(n + 1)].from <= from) ++n;
    tables.start[static_cast<size_t>(slot)] = static_cast<int32_t>(n);
  }
  return tables;
}

void sample_thinning(const SampleHead& head, const SampleBounds& bounds, const ThinningTables& tables,
                     SampleScratch& scratch, int64_t row_begin, int64_t row_end, SampledRows& out) {
  const ThinningKey* const keys = tables.keys.data();
  const int32_t* const start = tables.start.data();
  const int64_t slots = static_cast<int64_t>(tables.start.size());
  const double total = tables.keys.back().from;
  const double slots_per_unit = total > 0 ? static_cast<double>(slots) / total : 0;
  const SampleKernels& kernels = sample_kernels();
  Points points(kernels, head.stream_key, row_begin);
  int64_t used = 0;
  const auto make_room = [&](int64_t count) {
    if (static_cast<int64_t>(out.columns.size()) < used + count)
      out.columns.resize(static_cast<size_t>(2 * (used + count) + 256));
  };
  double next = points.gap();  // from the start of the row to the next point, in units of expected points
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t allowed = allowed_keys(head, row);
    const int64_t before = used;
    if (allowed > 0) {
      const ThinningRate rate = thinning_rate(head, bounds, tables, row);
      if (!rate.fits) {
        SampledRows one;
        sample_squeezed(head, bounds, ProductBounds{}, scratch, row, row + 1, one);
        make_room(one.degrees[0]);
        one.write_columns(head, out.columns.data() + used);
        used += one.degrees[0];
      } else {
        const double end = rate.rate * keys[allowed].from;
        const double units = rate.rate > 0 ? 1 / rate.rate : 0;
        const float* const terms = bounds.row_terms.data() + 3 * row;
        int64_t kept = -1;
        // A batch of points at a time, so that the tables' lines are on their way when they are needed: on a
        // long sequence the tables do not fit into L2.
        while (next < end) {
          double at[kBatch], coin[kBatch];
          int64_t from[kBatch];
          int count = 0;
          for (; next < end && count < kBatch; next += points.gap(), ++count) {
            at[count] = next * units;
            coin[count] = points.coin();
            from[count] = std::min(static_cast<int64_t>(at[count] * slots_per_unit), slots - 1);
            __builtin_prefetch(start + from[count]);
          }
          for (int i = 0; i < count; ++i) __builtin_prefetch(keys + (from[i] = start[from[i]]));
          for (int i = 0; i < count; ++i) {
            int64_t n = from[i];
            n += keys[n + 1].from <= at[i];  // one step or none is the rule
            while (n + 1 < allowed && keys[n + 1].from <= at[i]) ++n;
            n = std::min(n, allowed - 1);
            if (n == kept) continue;
            const double bound = rate.rate * (keys[n + 1].from - keys[n].from);
            if (!passes(kernels, head, terms, keys[n], row, n, coin[i] * bound)) continue;
            make_room(1);
            out.columns[static_cast<size_t>(used++)] = head.valid_keys[n];
            kept = n;
          }
        }
        next -= end;
      }
    }
    out.degrees.push_back(static_cast<int32_t>(used - before));
  }
  out.columns.resize(static_cast<size_t>(used));
}

}  // namespace edgewise::kernels::cpu
