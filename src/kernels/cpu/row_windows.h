// Groups of rows that walk through their sorted index lists together, a window at a time: the gathered rows
// of a window are still in the L1 cache when the next row of the group wants them. Compiled once per level.
//
// A window is a number of list entries, not a range of keys: there is nothing to search for and no short
// piece before every boundary, and where the cuts fall depends on the row alone, so that its result does not
// depend on the rows it was grouped with.
#pragma once

#include <cstdint>

#include "kernels/cpu/level_rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/params.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

inline constexpr int kGroupRows = 64;
// Edges of a group, about, for kernels that keep that many numbers per edge: 128 KiB, which stay in the L2
// cache beside the head.
constexpr int64_t group_edges(int64_t numbers) {
  return 32768 / numbers;
}
// Entries of a list in one window, a multiple of 16. Shorter windows reuse more and cost more turns.
inline constexpr int64_t kWindowEntries = 64;
// Narrower rows (bytes) come fast enough from the L2 cache for what the dot products do with them.
inline constexpr int64_t kWideRow = 256;

struct GroupRow {
  int64_t row, begin, degree, buffer;  // `buffer`: where its per-edge numbers start
  int64_t windows;                     // the last one takes what is left, half a window more or less
};

// What a row does in one window.
struct Turn {
  int number;  // of the row in the group
  int64_t first, count;
  bool is_first, is_last;
};

// Rows of one head.
struct RowGroup {
  RowPlace place;  // of the first row
  int count = 0;
  GroupRow rows[kGroupRows];

  EDGEWISE_INLINE int64_t query(int n) const { return place.query + n; }

  // body(row, turn) for every row, window by window; the whole list at once when `in_windows` is false.
  template <typename Body>
  EDGEWISE_INLINE void for_turns(bool in_windows, const int32_t* indices, const Body& body) const {
    int64_t most = 0;
    for (int n = 0; n < count; ++n) most = rows[n].windows > most ? rows[n].windows : most;
    if (!in_windows || most == 1) {
      for (int n = 0; n < count; ++n) body(rows[n], Turn{n, 0, rows[n].degree, true, true});
      return;
    }
    for (int64_t window = 0; window < most; ++window)
      for (int n = 0; n < count; ++n) {
        const GroupRow& row = rows[n];
        if (window >= row.windows) continue;
        const bool last = window + 1 == row.windows;
        const int64_t first = window * kWindowEntries;
        // The lists of a group are more streams than the hardware follows: ask for the next turn's entries.
        const int32_t* next = indices + row.begin + first + kWindowEntries;
        for (int64_t e = 0; e < kWindowEntries; e += 16) __builtin_prefetch(next + e);
        body(row, Turn{n, first, last ? row.degree - first : kWindowEntries, window == 0, last});
      }
  }
};

// body(group) over the rows begin .. end; a group is full with kGroupRows rows or `most_edges` edges.
template <typename Body>
EDGEWISE_INLINE void for_groups(const CsrView& edges, int64_t begin, int64_t end, int64_t most_edges,
                                const Body& body) {
  RowGroup group;
  int64_t used = 0;
  for_rows(edges.heads, edges.queries, begin, end,
           [&](int64_t row, const RowPlace& place) EDGEWISE_INLINE_LAMBDA {
             const int64_t first = edges.row_offsets[row], degree = edges.row_offsets[row + 1] - first;
             const int64_t windows = (degree + kWindowEntries / 2) / kWindowEntries;
             if (group.count == 0) group.place = place;
             group.rows[group.count++] = {row, first, degree, used, windows > 1 ? windows : 1};
             used += (degree + 15) / 16 * 16;  // whole vectors
             if (group.count == kGroupRows || used >= most_edges || row + 1 == end ||
                 place.query + 1 == edges.queries) {
               body(group);
               group.count = 0;
               used = 0;
             }
           });
}

// Room for the per-edge numbers of a group.
inline int64_t group_buffer(const int64_t* offsets, int64_t begin, int64_t end, int64_t most_edges) {
  const int64_t all = offsets[end] - offsets[begin] + 16 * (end - begin);
  const int64_t most = most_edges + largest_degree(offsets, begin, end);
  return (all < most ? all : most) + 32;
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
