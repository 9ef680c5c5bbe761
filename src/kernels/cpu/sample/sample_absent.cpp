// Probe edges: every allowed pair that is not an edge yet, with one probability for all. Geometric skips run
// over the pairs of row after row; what a skip has left at the end of a row it keeps for the next. Or in
// units (probe_units.h): whole squares with that probability.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/sample/sample_points.h"
#include "kernels/cpu/sample/sampler.h"
#include "kernels/probe_units.h"

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

namespace {

// Places in valid_keys of the keys of the units chosen for 16 rows.
struct KeyRange {
  int64_t begin, end;
};
void choose_units(const SampleHead& head, double rate, int64_t row_unit, std::vector<KeyRange>& chosen) {
  chosen.clear();
  const double limit = unit_limit(rate);
  const int64_t units = (head.keys + kProbeUnit - 1) / kProbeUnit;
  const auto place = [&](int64_t key) {
    return std::lower_bound(head.valid_keys, head.valid_keys + head.valid_key_count, key) - head.valid_keys;
  };
  for (int64_t call = 0; 4 * call < units; ++call) {
    const PairWords numbers =
        unit_numbers(head.stream_key, static_cast<uint32_t>(row_unit), static_cast<uint32_t>(call));
    for (int64_t n = 0; n < 4 && 4 * call + n < units; ++n) {
      if (numbers.word[n] >= limit) continue;
      const int64_t key = (4 * call + n) * kProbeUnit;
      chosen.push_back({place(key), place(key + kProbeUnit)});
    }
  }
}

}  // namespace

void sample_absent_units(const SampleHead& head, const ExistingEdges& existing, double rate,
                         int64_t row_begin, int64_t row_end, SampledRows& out) {
  std::vector<KeyRange> chosen;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t whole_row = head.first_row + row;
    if (row == row_begin || whole_row % kProbeUnit == 0)
      choose_units(head, rate, whole_row / kProbeUnit, chosen);
    const size_t before = out.columns.size();
    const int64_t allowed = allowed_keys(head, row);
    const int32_t* there = existing.col_indices + existing.row_offsets[row];
    const int32_t* const there_end = existing.col_indices + existing.row_offsets[row + 1];
    for (const KeyRange& range : chosen) {
      if (range.begin >= allowed) break;
      there = std::lower_bound(there, there_end, head.valid_keys[range.begin]);
      for (int64_t n = range.begin; n < std::min(range.end, allowed); ++n) {
        const int32_t key = head.valid_keys[n];
        while (there != there_end && *there < key) ++there;  // both run upwards
        if (there == there_end || *there != key) out.columns.push_back(key);
      }
    }
    out.degrees.push_back(static_cast<int32_t>(out.columns.size() - before));
  }
}

}  // namespace edgewise::kernels::cpu
