// Predicted nanoseconds of each sampler for one head on one core, for choosing between them. The constants
// were measured (docs/kernels/cpu-samplers.md); what they multiply follows from the bounds, so the choice
// depends on nothing but the head.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/sample.h"
#include "kernels/cpu/sample_bounds.h"

namespace edgewise::kernels::cpu {
namespace {

double pair_count(const SampleHead& head) {
  return static_cast<double>(head.valid_query_count) * static_cast<double>(head.valid_key_count) *
         (head.is_causal ? 0.5 : 1);
}

// One exact probability: C multiply-adds on a key that is rarely in the nearest cache.
double exact_ns(const SampleHead& head) {
  return 12 + 0.2 * static_cast<double>(head.clusters);
}

// Sum over pairs of the width that the bounds leave open.
double gap_pairs(const SampleHead& head, const SampleBounds& bounds) {
  return 2 * bounds.of_rows.rest * bounds.of_keys.rest * (head.is_causal ? 0.5 : 1);
}

}  // namespace

double direct_cost(const SampleHead& head) {
  return pair_count(head) * (9.0 + 0.16 * static_cast<double>(head.clusters));
}

double squeezed_cost(const SampleHead& head, const SampleBounds& bounds) {
  const double pairs = pair_count(head), edges = std::min(expected_edges(head, bounds), pairs);
  const double gap = std::min(gap_pairs(head, bounds), pairs);
  const double open = std::min(gap + pairs / 256, pairs);
  return 0.45 * pairs + 0.6 * edges + 15 * open + exact_ns(head) * gap;
}

double products_cost(const SampleHead& head, const SampleBounds& bounds) {
  const double pairs = pair_count(head), edges = std::min(expected_edges(head, bounds), pairs);
  const double tokens = static_cast<double>(head.valid_query_count + head.valid_key_count);
  const double clusters = static_cast<double>(head.clusters);
  return pairs * (1.3 + 0.0075 * clusters) + 0.6 * edges + 3 * tokens * clusters;
}

double thinning_cost(const SampleHead& head, const SampleBounds& bounds) {
  const double share = head.is_causal ? 0.5 : 1;
  double points = 0, pairs_elsewhere = 0;
  for (int64_t row = 0; row < head.queries; ++row) {
    if (head.query_mask && !head.query_mask[row]) continue;
    const ThinningRate rate = thinning_rate(head, bounds, bounds.rows[static_cast<size_t>(row)]);
    const double pairs = static_cast<double>(head.valid_key_count) * share;
    points += rate.fits ? rate.rate * pairs : 0;
    pairs_elsewhere += rate.fits ? 0 : pairs;
  }
  const double gap = std::min(gap_pairs(head, bounds), points);
  return 21 * points + exact_ns(head) * (gap + pairs_elsewhere) +
         60 * static_cast<double>(head.valid_query_count);
}

double fastrg_cost(const SampleHead& head, double edges) {
  // Thinning needs a dot product per edge; the oversampling factor is taken at the mean density.
  const double pairs = pair_count(head);
  const double density = pairs > 0 ? std::min(edges / pairs, 0.999) : 0;
  const double oversampling = density > 1e-9 ? -std::log1p(-density) / density : 1;
  const double clusters = static_cast<double>(head.clusters);
  return 15 * clusters * static_cast<double>(head.valid_key_count) +
         static_cast<double>(head.valid_query_count) * (60.0 + clusters) +
         edges * oversampling * (120.0 + 0.6 * clusters);
}

}  // namespace edgewise::kernels::cpu
