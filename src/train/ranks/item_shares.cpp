#include "train/ranks/item_shares.h"

#include <algorithm>

#include <torch/types.h>

namespace edgewise::train {

std::vector<ItemShares::Part> ItemShares::parts(int64_t rank) const {
  std::vector<Part> result;
  if (micro_batch == 0) {  // the first `items % ranks` have one more, so that rank 0 is never without
    const int64_t least = items / ranks, longer = items % ranks,
                  first = rank * least + std::min(rank, longer), count = least + (rank < longer);
    if (count > 0) result.push_back({first, count});
    return result;
  }
  for (int64_t first = rank * micro_batch; first < items; first += ranks * micro_batch)
    result.push_back({first, std::min(micro_batch, items - first)});
  return result;
}

std::vector<int64_t> ItemShares::of(int64_t rank) const {
  std::vector<int64_t> result;
  for (const Part& part : parts(rank))
    for (int64_t item = part.first; item < part.first + part.count; ++item) result.push_back(item);
  return result;
}

std::vector<int64_t> ItemShares::taken_from(const std::vector<int64_t>& whole, int64_t rank) const {
  std::vector<int64_t> result;
  for (const int64_t item : of(rank)) result.push_back(whole.at(static_cast<size_t>(item)));
  return result;
}

at::Tensor ItemShares::in_order(const at::Tensor& rank_by_rank) const {
  std::vector<int64_t> items_of;
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (const int64_t item : of(rank)) items_of.push_back(item);
  const at::Tensor places = at::tensor(items_of, at::kLong).to(rank_by_rank.device());
  return at::empty_like(rank_by_rank).index_copy_(0, places, rank_by_rank);
}

at::Tensor ItemShares::rows_of(int64_t rank, const at::Tensor& in_order) const {
  return in_order.index_select(0, at::tensor(of(rank), at::kLong).to(in_order.device()));
}

}  // namespace edgewise::train
