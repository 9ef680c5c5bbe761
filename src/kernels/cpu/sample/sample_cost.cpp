// Predicted nanoseconds of each sampler for one head on one core, for choosing between them. The constants
// were measured (docs/kernels/cpu-samplers.md); what they multiply follows from the bounds, so the choice
// depends on nothing but the head.
#include "kernels/cpu/sample/sample_cost.h"

#include <algorithm>
#include <cmath>

namespace edgewise::kernels::cpu {
namespace {

double pair_count(const SampleHead& head) {
  return static_cast<double>(head.valid_query_count) * static_cast<double>(head.valid_key_count) *
         (head.is_causal ? 0.5 : 1);
}
double token_count(const SampleHead& head) {
  return static_cast<double>(head.valid_query_count + head.valid_key_count);
}

// One exact probability: C multiply-adds on a key that is rarely in the nearest cache.
double exact_ns(const SampleHead& head) {
  return 12 + 0.2 * static_cast<double>(head.clusters);
}

// Sum over pairs of the width that bounds with these sums of rests leave open.
double gap_pairs(const SampleHead& head, double row_rest, double key_rest) {
  return 2 * row_rest * key_rest * (head.is_causal ? 0.5 : 1);
}

// Bytes of all pairs, columns of all edges; and the pairs that bounds leave open.
double squeezed_ns(const SampleHead& head, double edges, double gap) {
  const double pairs = pair_count(head), open = std::min(gap + pairs / 230, pairs);
  return 0.2 * pairs + 0.45 * std::min(edges, pairs) + 8 * open + exact_ns(head) * std::min(gap, pairs);
}

double thinning_ns(const SampleHead& head, const SampleBounds& bounds) {
  const double keys = static_cast<double>(head.valid_key_count) * (head.is_causal ? 0.5 : 1);
  double points = 0, elsewhere = 0;
  for (int64_t row = 0; row < head.queries; ++row) {
    if (head.query_mask && !head.query_mask[row]) continue;
    const ThinningRate rate = thinning_rate(head, bounds, bounds.rows[static_cast<size_t>(row)]);
    points += rate.fits ? rate.rate * keys : 0;
    elsewhere += rate.fits ? 0 : keys;
  }
  const double gap = gap_pairs(head, bounds.of_rows.rest, bounds.of_keys.rest);
  return 6.5 * points + exact_ns(head) * (std::min(gap, points) + elsewhere) +
         60 * static_cast<double>(head.valid_query_count);
}

double fastrg_ns(const SampleHead& head, double edges) {
  // Thinning needs a dot product per edge; the oversampling factor is taken at the mean density.
  const double pairs = pair_count(head);
  const double density = pairs > 0 ? std::min(edges / pairs, 0.999) : 0;
  const double oversampling = density > 1e-9 ? -std::log1p(-density) / density : 1;
  const double clusters = static_cast<double>(head.clusters);
  return 4 * clusters * static_cast<double>(head.valid_key_count) +
         static_cast<double>(head.valid_query_count) * (60.0 + clusters) +
         edges * oversampling * (120.0 + 0.6 * clusters);
}

}  // namespace

double direct_cost(const SampleHead& head) {
  return pair_count(head) * (9.0 + 0.16 * static_cast<double>(head.clusters));
}

SamplerCosts sampler_costs(const SampleHead& head, const SampleBounds& bounds, GroupBounds& groups) {
  const double clusters = static_cast<double>(head.clusters), pairs = pair_count(head),
               edges = std::min(expected_edges(head, bounds), pairs);
  SamplerCosts costs;
  costs.bounds = 0.25 * token_count(head) * clusters;
  const double gap = gap_pairs(head, bounds.of_rows.rest, bounds.of_keys.rest);
  costs.one_direction = squeezed_ns(head, edges, gap);
  costs.thinning = thinning_ns(head, bounds);
  costs.fastrg = fastrg_ns(head, edges);
  costs.products = pairs * (1.3 + 0.0075 * clusters) + 0.45 * edges + 3 * token_count(head) * clusters;
  // Directions are looked for where they could save much more than the search costs.
  const double least = std::min({costs.one_direction, costs.thinning, costs.fastrg, costs.products});
  if (least > 1.4 * squeezed_ns(head, edges, 0) + 600 * clusters) {
    groups = group_directions(head);
    if (groups.groups > 1)
      costs.groups = squeezed_ns(head, edges, gap_pairs(head, groups.row_rest, groups.key_rest)) +
                     0.1 * pairs +
                     token_count(head) * (0.07 * clusters + 2) * static_cast<double>(groups.lanes);
  }
  return costs;
}

}  // namespace edgewise::kernels::cpu
