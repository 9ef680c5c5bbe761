// Probe edges: every allowed pair that is not an edge yet, with one probability for all. Geometric skips run
// over the pairs of row after row; what a skip has left at the end of a row it keeps for the next.
#include <cmath>

#include "kernels/cpu/sample.h"
#include "kernels/cpu/sample_points.h"

namespace edgewise::kernels::cpu {

void sample_absent(const SampleHead& head, const ExistingEdges& existing, double rate, int64_t row_begin,
                   int64_t row_end, SampledRows& out) {
  Points points(sample_kernels(), head.stream_key, row_begin);
  // An exponential gap, in units of -log(1 - rate), rounded down: P(skip >= k) = (1 - rate)^k.
  const double keys_per_gap = rate < 1 ? -1 / std::log1p(-rate) : 0;
  const auto skip = [&] { return rate < 1 ? static_cast<int64_t>(points.gap() * keys_per_gap) : 0; };
  int64_t next = rate > 0 ? skip() : 0;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const size_t before = out.columns.size();
    const int64_t allowed = rate > 0 ? allowed_keys(head, row) : 0;
    const int32_t* there = existing.col_indices + existing.row_offsets[row];
    const int32_t* const there_end = existing.col_indices + existing.row_offsets[row + 1];
    for (; next < allowed; next += 1 + skip()) {
      const int32_t key = head.valid_keys[next];
      while (there != there_end && *there < key) ++there;  // both run upwards
      if (there == there_end || *there != key) out.columns.push_back(key);
    }
    next -= allowed;
    out.degrees.push_back(static_cast<int32_t>(out.columns.size() - before));
  }
}

}  // namespace edgewise::kernels::cpu
