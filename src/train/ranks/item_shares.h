// Which items of a batch are whose. Micro-batches go round the ranks: m is that of rank m % ranks. So any
// number of ranks computes the passes that one process computes, each with the same items and random numbers,
// and batches that are sorted by length give every rank long and short ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace edgewise::train {

struct ItemShares {
  int64_t items = 0;        // of the whole batch
  int64_t micro_batch = 0;  // 0: one part for each rank, as long as one another or an item longer
  int64_t ranks = 1;

  struct Part {
    int64_t first, count;
  };
  std::vector<Part> parts(int64_t rank) const;
  // The same, item by item.
  std::vector<int64_t> of(int64_t rank) const;
  // The entries of `whole`, one an item, that are of a rank.
  std::vector<int64_t> taken_from(const std::vector<int64_t>& whole, int64_t rank) const;
  // Rows, one an item: those of all ranks one after the other, in the order of the batch; and back.
  at::Tensor in_order(const at::Tensor& rank_by_rank) const;
  at::Tensor rows_of(int64_t rank, const at::Tensor& in_order) const;
};

}  // namespace edgewise::train
