// Walks over the rows of CSR or the columns of CSC without a division per row, and scratch memory for them.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "kernels/cpu/simd.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// Where a row r = (b*H + h)*L + i lies.
struct RowPlace {
  int64_t batch, head, head_index, query;  // head_index = b*H + h
};

// body(row, place) for the rows begin .. end of heads with `length` rows each.
template <typename Body>
EDGEWISE_INLINE void for_rows(int64_t heads, int64_t length, int64_t begin, int64_t end, const Body& body) {
  int64_t row = begin;
  while (row < end) {
    RowPlace place;
    place.head_index = row / length;
    place.batch = place.head_index / heads;
    place.head = place.head_index % heads;
    const int64_t first = place.head_index * length, stop = first + length < end ? first + length : end;
    for (; row < stop; ++row) {
      place.query = row - first;
      body(row, place);
    }
  }
}

inline int64_t largest_degree(const int64_t* offsets, int64_t begin, int64_t end) {
  int64_t result = 0;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t degree = offsets[row + 1] - offsets[row];
    result = degree > result ? degree : result;
  }
  return result;
}

// Buffers of one call, aligned for vectors; each has room for whole vectors.
template <typename Acc>
class Scratch {
 public:
  Scratch(int64_t buffers, int64_t size) : stride_((size + 31) / 16 * 16) {
    const size_t bytes = static_cast<size_t>(buffers * stride_) * sizeof(Acc);
    data_ = static_cast<Acc*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    if (!data_) std::abort();  // a few kilobytes could not be had
  }
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  EDGEWISE_INLINE Acc* buffer(int64_t n) const { return data_ + n * stride_; }

 private:
  int64_t stride_;
  Acc* data_;
};

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
