// What a visit to a square needs, forward and backward: where its group lies, its rows, and the room that one
// call works in. Compiled once per level (simd.h).
#pragma once

#include <cstring>

#include "kernels/cpu/attention/level_rows.h"
#include "kernels/cpu/squares/square_pairs.h"
#include "kernels/cpu/squares/square_products.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

EDGEWISE_INLINE int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// Row r = (b * heads + h) * groups + group of a list.
struct GroupPlace {
  int64_t batch, head, head_index, group;
  int64_t first, count;  // tokens of the group

  GroupPlace(int64_t row, int64_t heads, int64_t tokens) {
    const int64_t groups = square_groups(tokens);
    head_index = row / groups, group = row % groups;
    batch = head_index / heads, head = head_index % heads;
    first = group * kSquareSide;
    count = smaller(tokens - first, kSquareSide);
  }
  uint32_t bits() const { return first_bits(count); }
};

// Rows `first` .. `first + 16` of a head. Those whose bit is off are not read: the group is copied to `room`,
// with zeros there.
template <typename T>
EDGEWISE_INLINE GroupRows<T> rows_of_group(const T* head, int64_t stride, int64_t first, uint32_t bits,
                                           int64_t dim, T* room) {
  const T* const rows = head + first * stride;
  if (bits == kAllBits) return {rows, stride};
  const size_t bytes = static_cast<size_t>(dim) * sizeof(T);
  for (int64_t i = 0; i < kSquareSide; ++i) {
    if (bits >> i & 1)
      std::memcpy(room + i * dim, rows + i * stride, bytes);
    else
      std::memset(room + i * dim, 0, bytes);
  }
  return {room, dim};
}

// Rows wait in the second cache; the next ones are asked for while this square is worked on.
template <typename T>
EDGEWISE_INLINE void ask_for_rows(const T* head, int64_t stride, int64_t first, int64_t count, int64_t dim) {
  for (int64_t i = 0; i < count; ++i) {
    const char* const row = reinterpret_cast<const char*>(head + (first + i) * stride);
    for (int64_t b = 0; b < dim * static_cast<int64_t>(sizeof(T)); b += 64) __builtin_prefetch(row + b);
  }
}

// Bytes of one call, handed out piece by piece, aligned for vectors.
class SquareRoom {
 public:
  explicit SquareRoom(int64_t bytes) : bytes_(1, bytes / static_cast<int64_t>(sizeof(float)) + 4096) {}
  template <typename N>
  N* take(int64_t count) {
    N* const result = reinterpret_cast<N*>(bytes_.buffer(0) + used_);
    used_ += (count * static_cast<int64_t>(sizeof(N)) + 63) / 64 * 16;
    return result;
  }

 private:
  Scratch<float> bytes_;
  int64_t used_ = 0;
};

// Room that all passes share.
template <typename T>
struct VisitRoom {
  using Acc = Accumulator<T>;
  Acc *tile, *other_tile;           // [16][16]
  Packed<T>* weights;               // of a tile, for add_rows
  T *key_rows, *value_rows;         // [16][D], [16][Dv] copies of groups that are not whole
  Packed<T>*key_sums, *value_sums;  // the same, interleaved

  template <typename P>
  VisitRoom(SquareRoom& room, const P& params)
      : tile(room.take<Acc>(256)),
        other_tile(room.take<Acc>(256)),
        weights(room.take<Packed<T>>(256)),
        key_rows(room.take<T>(16 * params.head_dim)),
        value_rows(room.take<T>(16 * params.value_dim)),
        key_sums(room.take<Packed<T>>(16 * params.head_dim)),
        value_sums(room.take<Packed<T>>(16 * params.value_dim)) {}
};
template <typename P>
int64_t room_bytes(const P& params) {
  return 8 * 16 * (16 * 4 + 12 * (params.head_dim + params.value_dim) + 64);
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
