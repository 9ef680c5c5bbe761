// What the samplers share: masks, the law, and rows of bits as columns.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/sample/sample_kernels.h"
#include "kernels/cpu/sample/sampler.h"

namespace edgewise::kernels::cpu {

double edge_probability(Law law, double p) {
  const double capped = std::min(p, 1.0);
  return law == Law::kBernoulli ? capped : -std::expm1(-capped);
}

bool is_run(const SampleHead& head) {
  // Keys ascend, so that the last one tells whether any is left out.
  return head.valid_key_count == 0 ||
         head.valid_keys[head.valid_key_count - 1] - head.valid_keys[0] == head.valid_key_count - 1;
}

ExactParams exact_params(const SampleHead& head) {
  ExactParams params;
  params.query_membership = head.query_membership;
  params.key_side = head.key_side;
  params.valid_keys = head.valid_keys;
  params.clusters = head.clusters;
  params.exploration = head.exploration;
  params.poisson = head.law == Law::kPoisson;
  params.words_per_row = (head.valid_key_count + 63) / 64;
  return params;
}

int64_t allowed_keys(const SampleHead& head, int64_t row) {
  if (head.query_mask && !head.query_mask[row]) return 0;
  if (!head.is_causal) return head.valid_key_count;
  return std::upper_bound(head.valid_keys, head.valid_keys + head.valid_key_count,
                          static_cast<int32_t>(head.first_row + row)) -
         head.valid_keys;
}

int64_t SampledRows::edge_count() const {
  return std::accumulate(degrees.begin(), degrees.end(), int64_t{0});
}

void SampledRows::write_columns(const SampleHead& head, int32_t* out) const {
  if (words.empty()) {
    const bool as_they_are = !are_positions || columns.empty() || (is_run(head) && head.valid_keys[0] == 0);
    if (as_they_are)
      std::copy(columns.begin(), columns.end(), out);
    else
      std::transform(columns.begin(), columns.end(), out, [&](int32_t n) { return head.valid_keys[n]; });
    return;
  }
  const int64_t words_per_row = (head.valid_key_count + 63) / 64;
  int64_t room = edge_count();
  for (size_t row = 0; row < degrees.size(); ++row) {
    if (degrees[row] == 0) continue;
    const int64_t written =
        sample_kernels().expand(words.data() + static_cast<int64_t>(row) * words_per_row, words_per_row,
                                head.valid_keys, head.valid_key_count, degrees[row], out, room);
    out += written;
    room -= written;
  }
}

}  // namespace edgewise::kernels::cpu
