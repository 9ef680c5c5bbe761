// What a pass over groups of rows leaves behind for the next pass: a number per edge, copied from the slots
// of edge_bundles.h to the edges' own order. Compiled once per level (simd.h).
#pragma once

#include "kernels/cpu/attention/edge_bundles.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// Pieces are copied as they are formed and not row by row afterwards: lines of the list come from memory
// while more numbers are formed. Not inlined: who keeps nothing has the registers for himself.
template <typename Acc>
struct KeptNumbers {
  using V = Vec<Acc>;
  Acc* list = nullptr;  // [E]; null: nothing is kept
  int64_t next = 0;     // edge behind the group's last: its line is asked for as this group's is written
  int64_t stop = 0;     // edges of the list that may be asked for

  // The runs first .. first + count.
  [[gnu::noinline]] void take_runs(const GroupEdges& edges, int64_t first, int64_t count,
                                   const Acc* numbers) const {
    for (int64_t r = first; r < first + count; ++r)
      take(numbers, r * edges.run_edges(), edges.first_edge() + edges.run(r)->first, edges.run_edges());
  }
  // The tails and rests of all rows.
  [[gnu::noinline]] void take_ends(const RowGroup& group, const GroupEdges& edges, const Acc* numbers) const {
    for (int n = 0; n < group.count; ++n) {
      const GroupRow& row = group.rows[n];
      take(numbers, edges.tail_place(n), row.begin + edges.tail(n), row.bundled() - edges.tail(n));
      take(numbers, edges.rest_place(n), row.begin + row.bundled(), row.rest());
    }
  }

 private:
  // `count` numbers that lie in sequence both in the slots and in the list.
  EDGEWISE_INLINE void take(const Acc* numbers, int64_t place, int64_t edge, int64_t count) const {
    for (int64_t e = 0; e < count; e += kBundle)
      if (next + place + e < stop) __builtin_prefetch(list + next + place + e, 1, 2);
    int64_t e = 0;
    for (; e + V::kWidth <= count; e += V::kWidth) V::load(numbers + place + e).store(list + edge + e);
    if (e < count)
      V::load(numbers + place + e).store_first(list + edge + e, static_cast<int>((count - e) % V::kWidth));
  }
};

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
