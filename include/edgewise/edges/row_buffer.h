// RowBuffer: rows that are kept while a sequence grows, such as the keys and values of a decoder that
// generates. Adding rows costs the new rows only (amortised); the oldest may be forgotten. Not for training:
// what is kept has no gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace edgewise {

class RowBuffer {
 public:
  // rows [B, H, n, W] -> all rows kept, [B, H, size, W]: a view that the next append may overwrite.
  at::Tensor append(const at::Tensor& rows);
  at::Tensor rows() const;  // undefined before the first append
  int64_t size() const { return end_ - begin_; }
  void keep_last(int64_t count);
  // The items [n] of the batch, int64, in this order and as often as they are named.
  void select_items(const at::Tensor& items);

 private:
  at::Tensor data_;  // [B, H, capacity, W]
  int64_t begin_ = 0, end_ = 0;
};

}  // namespace edgewise
