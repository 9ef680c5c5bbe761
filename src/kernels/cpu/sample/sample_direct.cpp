// The direct sampler: computes every probability and compares it with the pair's own random number.
#include <algorithm>

#include "kernels/cpu/sample/sampler.h"
#include "kernels/pair_numbers.h"
#include "kernels/philox.h"

namespace edgewise::kernels::cpu {

std::vector<float> transpose_valid_keys(const SampleHead& head) {
  std::vector<float> transposed(static_cast<size_t>(head.clusters * head.valid_key_count));
  for (int64_t n = 0; n < head.valid_key_count; ++n)
    for (int64_t c = 0; c < head.clusters; ++c)
      transposed[static_cast<size_t>(c * head.valid_key_count + n)] =
          head.key_side[head.valid_keys[n] * head.clusters + c];
  return transposed;
}

void sample_direct(const SampleHead& head, const std::vector<float>& transposed, int64_t row_begin,
                   int64_t row_end, SampledRows& out) {
  std::vector<float> p(static_cast<size_t>(head.valid_key_count));
  for (int64_t row = row_begin; row < row_end; ++row) {
    const size_t before = out.columns.size();
    const int64_t count = allowed_keys(head, row);
    std::fill_n(p.begin(), count, static_cast<float>(head.exploration));
    for (int64_t c = 0; c < head.clusters; ++c) {
      const float membership = head.query_membership[row * head.clusters + c];
      const float* side = transposed.data() + c * head.valid_key_count;
#pragma omp simd
      for (int64_t n = 0; n < count; ++n) p[static_cast<size_t>(n)] += membership * side[n];
    }
    PairDecisions decisions(head.stream_key, head.first_row + row);
    for (int64_t n = 0; n < count; ++n) {
      const int32_t key = head.valid_keys[n];
      const double probability = edge_probability(head.law, p[static_cast<size_t>(n)]);
      if (decisions.below(key, probability * 4294967296.0)) out.columns.push_back(key);
    }
    out.degrees.push_back(static_cast<int32_t>(out.columns.size() - before));
  }
}

}  // namespace edgewise::kernels::cpu
