#include "kernels/cpu/transpose.h"

#include <cstddef>
#include <vector>

namespace edgewise::kernels::cpu {

using std::size_t;

void transpose_heads(const TransposeParams& params, int64_t head_begin, int64_t head_end) {
  const CsrView& edges = params.edges;
  std::vector<int64_t> next(static_cast<size_t>(edges.keys));
  for (int64_t head = head_begin; head < head_end; ++head) {
    const int64_t first_row = head * edges.queries;
    const int64_t begin = edges.row_offsets[first_row], end = edges.row_offsets[first_row + edges.queries];
    next.assign(next.size(), 0);
    for (int64_t e = begin; e < end; ++e) ++next[static_cast<size_t>(edges.col_indices[e])];
    int64_t offset = begin;
    for (int64_t key = 0; key < edges.keys; ++key) {
      const int64_t count = next[static_cast<size_t>(key)];
      next[static_cast<size_t>(key)] = offset;
      offset += count;
      params.column_offsets[head * edges.keys + key + 1] = offset;
    }
    for (int64_t query = 0; query < edges.queries; ++query) {
      for (int64_t e = edges.row_offsets[first_row + query]; e < edges.row_offsets[first_row + query + 1];
           ++e) {
        const int64_t place = next[static_cast<size_t>(edges.col_indices[e])]++;
        params.row_indices[place] = static_cast<int32_t>(query);
        params.edge_ids[place] = e;
      }
    }
  }
}

}  // namespace edgewise::kernels::cpu
