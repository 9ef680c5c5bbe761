// Bundles: kBundle neighbouring edges of one row, and the order in which a group of rows goes through theirs.
// Compiled once per level (simd.h).
//
// A row's list is sorted. Where the rows of a group meet in the same keys, the lists are cut into runs of a
// few bundles, and the runs are taken in the order of where their keys lie: all that touch one range of keys
// come together and find it in the L1 cache. All runs of a head are of the same length: there is nothing to
// search for, and no loop whose length cannot be predicted. Where a row is cut depends on the row and its
// head alone and its runs stay in their order, so that its sum does not depend on the rows it was grouped
// with. What is left of a row, up to its last whole bundle, is its tail; what is left of all rows, less than
// a bundle each, is put together to bundles of several rows.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention/level_rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/params.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

inline constexpr int kBundle = 16;
inline constexpr int64_t kLeastDegree = 64;  // edges of a row, in the mean, that are worth an order
inline constexpr int kGroupRows = 64;
// Edges of a group, about, for kernels that keep that many numbers per edge: 128 KiB, which stay in the L2
// cache beside the head.
constexpr int64_t group_edges(int64_t numbers) {
  return 32768 / numbers;
}

struct GroupRow {
  int64_t row, begin, degree;

  EDGEWISE_INLINE int64_t bundled() const { return degree / kBundle * kBundle; }
  EDGEWISE_INLINE int64_t rest() const { return degree % kBundle; }
};

// Rows of one head.
struct RowGroup {
  RowPlace place;  // of the first row
  int count = 0;
  GroupRow rows[kGroupRows];

  EDGEWISE_INLINE int64_t query(int n) const { return place.query + n; }
};

// Rows of a group: as many as meet in a range of keys; with few edges a row nothing is gained by more than
// what hides latencies, and narrow rows are then through with their lists sooner.
inline int group_rows(const int64_t* offsets, int64_t begin, int64_t end, int64_t row_bytes) {
  const bool narrow = row_bytes <= 128 && offsets[end] - offsets[begin] < kLeastDegree * (end - begin);
  return narrow ? kGroupRows / 2 : kGroupRows;
}

// body(group) over the rows begin .. end; a group is full with `most_rows` rows or `most_edges` edges.
template <typename Body>
EDGEWISE_INLINE void for_groups(const CsrView& edges, int64_t begin, int64_t end, int most_rows,
                                int64_t most_edges, const Body& body) {
  RowGroup group;
  int64_t used = 0;
  for_rows(edges.heads, edges.queries, begin, end,
           [&](int64_t row, const RowPlace& place) EDGEWISE_INLINE_LAMBDA {
             const int64_t first = edges.row_offsets[row], degree = edges.row_offsets[row + 1] - first;
             if (group.count == 0) group.place = place;
             group.rows[group.count++] = {row, first, degree};
             used += degree / kBundle * kBundle + kBundle;
             if (group.count == most_rows || used >= most_edges || row + 1 == end ||
                 place.query + 1 == edges.queries) {
               body(group);
               group.count = 0;
               used = 0;
             }
           });
}

// Room for the per-edge numbers of a group.
inline int64_t group_buffer(const int64_t* offsets, int64_t begin, int64_t end, int64_t most_edges) {
  const int64_t all = offsets[end] - offsets[begin] + kBundle * (end - begin);
  const int64_t most = most_edges + largest_degree(offsets, begin, end);
  return (all < most ? all : most) + 2 * kBundle;
}

// Whether the rows of a head meet often in the same keys.
EDGEWISE_INLINE bool rows_meet(const CsrView& edges, int64_t head_index) {
  constexpr int64_t kLeastMeetings = 2;
  const int64_t* offsets = edges.row_offsets + head_index * edges.queries;
  const int64_t count = offsets[edges.queries] - offsets[0];
  return count >= kLeastDegree * edges.queries &&
         count * kGroupRows >= kLeastMeetings * edges.queries * edges.keys;
}

// Bundles of a run: as many as name keys that stay in L1, of rows of that many bytes. 0: no runs, since rows
// do not meet. Of the head, not of a group: sums of other runs round differently.
EDGEWISE_INLINE int run_bundles(const CsrView& edges, int64_t head_index, int64_t row_bytes) {
  constexpr int64_t kRangeBytes = 44 * 1024, kMost = 8;
  if (!rows_meet(edges, head_index)) return 0;
  const int64_t* offsets = edges.row_offsets + head_index * edges.queries;
  const int64_t count = offsets[edges.queries] - offsets[0], pairs = edges.queries * edges.keys;
  int64_t bundles = kMost;  // which name bundles * kBundle * pairs / count keys
  while (bundles > 1 && bundles * kBundle * pairs * row_bytes > kRangeBytes * count) bundles /= 2;
  return static_cast<int>(bundles);
}

// Bundles of one row that follow each other.
struct Run {
  int32_t number;  // of the row in the group
  int32_t first;   // edge, counted from the group's first
};

// The edges of a group in slots of kBundle: first the runs in their order, then the tails of all rows, then a
// slot for the rest of each row. Buffers of per-edge numbers are in the order of the slots, so that a phase
// over all of them reads and writes in sequence; a row finds its own by for_row.
class GroupEdges {
 public:
  static constexpr int64_t kMore = 4;  // runs behind the last one, copies of it, for who asks ahead
  explicit GroupEdges(int64_t most_edges)
      : runs_(1, 2 * (most_edges / kBundle + kMore)),
        tails_(1, 2 * (most_edges / kBundle + kMore)),
        order_(1, most_edges / kBundle + 1) {}

  // In runs of so many bundles; 0: all in tails.
  void take(const RowGroup& group, const int32_t* indices, int64_t keys, int run_bundles) {
    group_ = &group;
    run_edges_ = run_bundles * kBundle;
    runs_taken_ = 0;
    for (int n = 0; n < group.count; ++n) {
      count_[n] = run_bundles > 0 ? static_cast<int32_t>(group.rows[n].degree) / run_edges_ : 0;
      first_run_[n] = static_cast<int32_t>(runs_taken_);
      runs_taken_ += count_[n];
    }
    if (runs_taken_ > 0) sort_runs(indices, keys);
    Run* tail_bundle = of(tails_);
    for (int n = 0; n < group.count; ++n) {
      const int64_t begin = group.rows[n].begin - group.rows[0].begin;
      tail_place_[n] = static_cast<int32_t>(runs_taken_ * run_edges_ + (tail_bundle - of(tails_)) * kBundle);
      for (int64_t e = tail(n); e < group.rows[n].bundled(); e += kBundle)
        *tail_bundle++ = {n, static_cast<int32_t>(begin + e)};
    }
    tail_bundles_ = tail_bundle - of(tails_);
    end_with_more(of(tails_), tail_bundles_);
    first_rest_ = runs_taken_ * run_edges_ + tail_bundles_ * kBundle;
  }

  EDGEWISE_INLINE int64_t runs() const { return runs_taken_; }
  EDGEWISE_INLINE int64_t run_edges() const { return run_edges_; }
  EDGEWISE_INLINE const Run* run(int64_t r) const { return of(runs_) + r; }  // and kMore
  // The bundles of all tails, as runs of one bundle, in the order of the rows.
  EDGEWISE_INLINE int64_t tail_bundles() const { return tail_bundles_; }
  EDGEWISE_INLINE const Run* tail_bundle(int64_t b) const { return of(tails_) + b; }  // the same
  EDGEWISE_INLINE int64_t first_edge() const { return group_->rows[0].begin; }
  // The tail of row n: its first entry in the row, and its place in the buffers; and that of the rest.
  EDGEWISE_INLINE int64_t tail(int n) const { return int64_t{count_[n]} * run_edges_; }
  EDGEWISE_INLINE int64_t tail_place(int n) const { return tail_place_[n]; }
  EDGEWISE_INLINE int64_t rest_place(int n) const { return first_rest_ + n * kBundle; }

  // body(place in the buffers, entry of the row, lanes that count) for the edges of row n.
  template <int W, typename Body>
  EDGEWISE_INLINE void for_row(int n, const Body& body) const {
    const GroupRow& row = group_->rows[n];
    for (int64_t run = 0; run < count_[n]; ++run) {
      const int64_t place = int64_t{order_.buffer(0)[first_run_[n] + run]} * run_edges_;
      for (int64_t e = 0; e < run_edges_; e += W) body(place + e, run * run_edges_ + e, W);
    }
    for (int64_t e = tail(n), place = tail_place(n); e < row.bundled(); e += W, place += W) body(place, e, W);
    const int rest = static_cast<int>(row.rest());
    for (int v = 0; v < rest; v += W) body(rest_place(n) + v, row.bundled() + v, rest - v < W ? rest - v : W);
  }

 private:
  static constexpr int kRanges = 64;

  // A counting sort by the range of keys that a run's middle entry lies in.
  void sort_runs(const int32_t* indices, int64_t keys) {
    int shift = 0;
    while ((keys - 1) >> shift >= kRanges) ++shift;
    int32_t starts[kRanges + 1] = {};
    int32_t* order = order_.buffer(0);
    for (int n = 0; n < group_->count; ++n) {
      const int32_t* middle = indices + group_->rows[n].begin + run_edges_ / 2;
      for (int32_t run = 0; run < count_[n]; ++run, middle += run_edges_) {
        *order = *middle >> shift;
        ++starts[*order++ + 1];
      }
    }
    for (int r = 1; r < kRanges; ++r) starts[r] += starts[r - 1];
    order = order_.buffer(0);
    Run* const runs = of(runs_);
    for (int n = 0; n < group_->count; ++n) {
      int32_t first = static_cast<int32_t>(group_->rows[n].begin - group_->rows[0].begin);
      for (int32_t run = 0; run < count_[n]; ++run, first += run_edges_) {
        const int32_t slot = starts[*order]++;
        *order++ = slot;
        runs[slot] = {n, first};
      }
    }
    end_with_more(runs, runs_taken_);
  }

  static void end_with_more(Run* runs, int64_t count) {
    for (int64_t r = count; r < count + kMore; ++r) runs[r] = count > 0 ? runs[count - 1] : Run{0, 0};
  }

  EDGEWISE_INLINE static Run* of(const Scratch<int32_t>& runs) {
    return reinterpret_cast<Run*>(runs.buffer(0));
  }
  const RowGroup* group_ = nullptr;
  Scratch<int32_t> runs_, tails_, order_;  // order_: the numbers of each row's runs
  int32_t run_edges_ = 0;
  int64_t runs_taken_ = 0, tail_bundles_ = 0, first_rest_ = 0;
  int32_t count_[kGroupRows], first_run_[kGroupRows], tail_place_[kGroupRows];
};

// What is left of a group's rows beside their bundles, row after row.
class Rests {
 public:
  // `stop`: entries of `indices` that may be read.
  void take(const RowGroup& group, const int32_t* indices, int64_t stop) {
    count_ = 0;
    for (int n = 0; n < group.count; ++n) {
      const int64_t first = group.rows[n].begin + group.rows[n].bundled(), rest = group.rows[n].rest();
      // A whole bundle is copied, of which the next row overwrites what is too much: no length to mispredict.
      if (first + kBundle <= stop)
        std::memcpy(indices_ + count_, indices + first, kBundle * sizeof(int32_t));
      else
        for (int64_t i = 0; i < rest; ++i) indices_[count_ + i] = indices[first + i];
      for (int i = 0; i < kBundle; ++i) numbers_[count_ + i] = n;
      count_ += rest;
    }
    for (int i = 0; count_ > 0 && i < kBundle; ++i) {
      indices_[count_ + i] = indices_[count_ - 1];
      numbers_[count_ + i] = numbers_[count_ - 1];
    }
  }

  EDGEWISE_INLINE int64_t count() const { return count_; }
  EDGEWISE_INLINE const int32_t* indices() const { return indices_; }  // [count rounded up to whole bundles]
  EDGEWISE_INLINE const int32_t* numbers() const { return numbers_; }  // the rows, the same

 private:
  int64_t count_ = 0;
  int32_t indices_[(kGroupRows + 1) * kBundle], numbers_[(kGroupRows + 1) * kBundle];
};

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
