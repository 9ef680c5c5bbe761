// CSR to CSC, in one step and by blocks of keys, against a sort.
#include "kernels/cpu/transpose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

namespace edgewise::kernels::cpu {
namespace {

void check(int64_t heads, int64_t queries, int64_t keys, int64_t largest_degree) {
  SCOPED_TRACE(keys);
  std::mt19937 random(5);
  std::vector<int64_t> row_offsets = {0};
  std::vector<int32_t> columns;
  std::vector<std::tuple<int64_t, int32_t, int64_t>> wanted;  // global column, query, edge
  for (int64_t row = 0; row < heads * queries; ++row) {
    std::vector<int32_t> chosen;
    const int64_t degree = static_cast<int64_t>(random()) % (largest_degree + 1);
    for (int64_t e = 0; e < degree; ++e)
      chosen.push_back(static_cast<int32_t>(static_cast<int64_t>(random()) % keys));
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const int32_t key : chosen) {
      wanted.emplace_back(row / queries * keys + key, static_cast<int32_t>(row % queries),
                          static_cast<int64_t>(columns.size()));
      columns.push_back(key);
    }
    row_offsets.push_back(static_cast<int64_t>(columns.size()));
  }
  std::sort(wanted.begin(), wanted.end());
  std::vector<int64_t> column_offsets(static_cast<size_t>(heads * keys + 1), -1),
      edge_ids(columns.size(), -1);
  std::vector<int32_t> row_indices(columns.size(), -1);
  column_offsets[0] = 0;
  const TransposeParams params{{heads, queries, keys, row_offsets.data(), columns.data()},
                               column_offsets.data(),
                               row_indices.data(),
                               edge_ids.data()};
  for (int64_t head = 0; head < heads; ++head) transpose_heads(params, head, head + 1);

  size_t place = 0;
  for (int64_t column = 0; column < heads * keys; ++column) {
    ASSERT_EQ(column_offsets[static_cast<size_t>(column)], static_cast<int64_t>(place));
    for (; place < wanted.size() && std::get<0>(wanted[place]) == column; ++place) {
      ASSERT_EQ(row_indices[place], std::get<1>(wanted[place]));
      ASSERT_EQ(edge_ids[place], std::get<2>(wanted[place]));
    }
  }
  EXPECT_EQ(column_offsets.back(), static_cast<int64_t>(columns.size()));
}

TEST(Transpose, InOneStep) {
  check(3, 50, 40, 30);
}
TEST(Transpose, ByBlocksOfKeys) {
  check(2, 3000, 5000, 60);
}
TEST(Transpose, ByBlocksWhenKeysAreNoPowerOfTwo) {
  check(1, 900, 70001, 200);
}
TEST(Transpose, ManyKeysFewEdges) {
  check(2, 10, 9000, 3);
}

}  // namespace
}  // namespace edgewise::kernels::cpu
