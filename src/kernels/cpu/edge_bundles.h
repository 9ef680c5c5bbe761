// Bundles: kBundle neighbouring edges of one row, and the order in which a group of rows goes through theirs.
// Compiled once per level (simd.h).
//
// A row's list is sorted, so a bundle touches the rows of a short range of keys. Where the rows of a group
// meet in the same keys, their bundles are put in the order of where their keys lie: all that touch one range
// come together and find it in the L1 cache. A bundle is always whole: there is nothing to search for and no
// branch that depends on the data, and where a row is cut depends on the row alone. A row's bundles stay in
// their order, so that its sum does not depend on the rows it was grouped with. What is left of the rows,
// less than a bundle each, is put together to bundles of several rows.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/level_rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/params.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

inline constexpr int kBundle = 16;
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

// Rows of a group: with wide rows, more of them have to meet before a range of keys has paid for its way to
// L1.
constexpr int group_rows(int64_t row_bytes) {
  return row_bytes <= 128 ? kGroupRows / 2 : kGroupRows;
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

// Whether the rows of a head meet often enough in a range of keys for an order to pay. Of the head, not of a
// group: with and without, sums round differently. Rows of bf16 are half as long and have to be widened: L2
// is fast enough for that.
template <typename T>
EDGEWISE_INLINE bool worth_ordering(const CsrView& edges, int64_t head_index) {
  if (sizeof(T) < sizeof(float)) return false;
  constexpr int64_t kLeastDegree = 64, kLeastMeetings = 2;
  const int64_t* offsets = edges.row_offsets + head_index * edges.queries;
  const int64_t count = offsets[edges.queries] - offsets[0];
  return count >= kLeastDegree * edges.queries &&
         count * kGroupRows >= kLeastMeetings * edges.queries * edges.keys;
}

struct Bundle {
  int32_t number;  // of the row in the group
  int32_t first;   // edge, counted from the group's first
};

// The edges of a group in slots of kBundle: first the whole bundles in their order, then a slot for the rest
// of each row. Buffers of per-edge numbers are in the order of the slots, so that a phase over all of them
// reads and writes in sequence; a row finds its own by for_row.
class GroupEdges {
 public:
  explicit GroupEdges(int64_t most_edges)
      : bundles_(1, 2 * (most_edges / kBundle + 1)),
        slots_(1, most_edges / kBundle + 1),
        indices_(1, most_edges + kBundle) {}

  // Bundles in the order of their keys, or row by row.
  void take(const RowGroup& group, const int32_t* indices, int64_t keys, bool ordered) {
    group_ = &group;
    ordered_ = ordered;
    list_ = indices + group.rows[0].begin;
    count_ = 0;
    for (int n = 0; n < group.count; ++n) {
      first_bundle_[n] = count_;
      count_ += group.rows[n].degree / kBundle;
    }
    first_bundle_[group.count] = count_;
    int32_t* const slots = slots_.buffer(0);
    int32_t starts[kRanges + 1] = {};
    if (ordered) {  // a counting sort by the range of keys that a bundle's middle entry lies in
      int shift = 0;
      while ((keys - 1) >> shift >= kRanges) ++shift;
      int32_t* range = slots;
      for (int n = 0; n < group.count; ++n) {
        const int32_t* middle = indices + group.rows[n].begin + kBundle / 2;
        for (int64_t b = first_bundle_[n]; b < first_bundle_[n + 1]; ++b, middle += kBundle) {
          *range = *middle >> shift;
          ++starts[*range++ + 1];
        }
      }
      for (int r = 1; r < kRanges; ++r) starts[r] += starts[r - 1];
    } else {
      for (int64_t b = 0; b < count_; ++b) slots[b] = static_cast<int32_t>(b);
    }
    for (int n = 0; n < group.count; ++n) {
      int32_t first = static_cast<int32_t>(group.rows[n].begin - group.rows[0].begin);
      for (int64_t b = first_bundle_[n]; b < first_bundle_[n + 1]; ++b, first += kBundle) {
        if (!ordered) {
          data()[b] = {n, first};
          continue;
        }
        const int32_t slot = slots[b] = starts[slots[b]]++;
        data()[slot] = {n, first};
        std::memcpy(indices_.buffer(0) + slot * kBundle, list_ + first, kBundle * sizeof(int32_t));
      }
    }
  }

  EDGEWISE_INLINE int64_t bundles() const { return count_; }
  EDGEWISE_INLINE const Bundle& operator[](int64_t slot) const { return data()[slot]; }
  EDGEWISE_INLINE const int32_t* indices(int64_t slot) const {
    return ordered_ ? indices_.buffer(0) + slot * kBundle : list_ + data()[slot].first;
  }
  // Slots of row n: its bundles and its rest.
  EDGEWISE_INLINE int64_t slot(int n, int64_t bundle) const {
    return slots_.buffer(0)[first_bundle_[n] + bundle];
  }
  EDGEWISE_INLINE int64_t rest_slot(int n) const { return count_ + n; }

  // body(place in the buffers, entry of the row, lanes that count) for the edges of row n.
  template <int W, typename Body>
  EDGEWISE_INLINE void for_row(int n, const Body& body) const {
    const GroupRow& row = group_->rows[n];
    const int32_t* slot = slots_.buffer(0) + first_bundle_[n];
    for (int64_t e = 0; e < row.bundled(); e += kBundle, ++slot)
#pragma GCC unroll 4
      for (int v = 0; v < kBundle; v += W) body(int64_t{*slot} * kBundle + v, e + v, W);
    const int rest = static_cast<int>(row.rest());
    for (int v = 0; v < rest; v += W)
      body(rest_slot(n) * kBundle + v, row.bundled() + v, rest - v < W ? rest - v : W);
  }

  // Writes what lies at `place` in the buffers to its edges in a list of all edges.
  template <typename V, typename Acc>
  EDGEWISE_INLINE void store(V numbers, int64_t place, Acc* list) const {
    const int64_t slot = place / kBundle, e = place % kBundle;
    if (slot < count_) {
      numbers.store(list + group_->rows[0].begin + data()[slot].first + e);
    } else {
      const GroupRow& row = group_->rows[slot - count_];
      const int64_t left = row.rest() - e;
      numbers.store_first(list + row.begin + row.bundled() + e,
                          static_cast<int>(left < V::kWidth ? left : V::kWidth));
    }
  }

 private:
  static constexpr int kRanges = 64;
  EDGEWISE_INLINE Bundle* data() const {
    return reinterpret_cast<Bundle*>(bundles_.buffer(0));
  }
  const RowGroup* group_ = nullptr;
  const int32_t* list_ = nullptr;
  bool ordered_ = false;
  Scratch<int32_t> bundles_, slots_, indices_;
  int64_t count_ = 0, first_bundle_[kGroupRows + 1];
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
