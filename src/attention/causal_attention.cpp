#include <edgewise/attention/causal_attention.h>

#include <numeric>

namespace edgewise {

std::vector<int64_t> CausalAttention::new_rows(int64_t first, int64_t count) const {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

}  // namespace edgewise
