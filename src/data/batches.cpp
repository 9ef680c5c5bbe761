#include <edgewise/data/batches.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <c10/util/Exception.h>

#include "data/generators/uniform_below.h"
#include "kernels/philox.h"

namespace edgewise::data {

BatchOrder::BatchOrder(int64_t dataset_size, int64_t batch_size, uint64_t seed)
    : dataset_size_(dataset_size), batch_size_(batch_size), seed_(seed) {
  TORCH_CHECK_VALUE(dataset_size >= 1, "BatchOrder: expected a dataset of at least 1 example; got ",
                    dataset_size);
  TORCH_CHECK_VALUE(batch_size >= 1, "BatchOrder: expected a batch of at least 1 example; got ", batch_size);
}

std::vector<int64_t> BatchOrder::indices(int64_t step) {
  TORCH_CHECK_VALUE(step >= 0, "BatchOrder: expected a step of at least 0; got ", step);
  std::vector<int64_t> indices;
  indices.reserve(static_cast<size_t>(batch_size_));
  int64_t position = step * batch_size_;
  const int64_t end = position + batch_size_;
  while (position < end) {
    if (position / dataset_size_ != pass_) shuffle(position / dataset_size_);
    const int64_t first = position % dataset_size_;
    const int64_t count = std::min(end - position, dataset_size_ - first);
    indices.insert(indices.end(), permutation_.begin() + first, permutation_.begin() + first + count);
    position += count;
  }
  return indices;
}

void BatchOrder::shuffle(int64_t pass) {
  permutation_.resize(static_cast<size_t>(dataset_size_));
  std::iota(permutation_.begin(), permutation_.end(), int64_t{0});
  const uint64_t key =
      kernels::stream_key(seed_, static_cast<uint64_t>(pass), 0, 0, 0, kernels::Purpose::kShuffle);
  kernels::RowStream stream(key, 0);
  for (size_t i = permutation_.size(); i > 1; --i) {
    std::swap(permutation_[i - 1], permutation_[uniform_below(stream, i)]);
  }
  pass_ = pass;
}

StreamRows::StreamRows(int64_t size, int64_t rows) : size_(size), rows_(rows) {
  TORCH_CHECK_VALUE(rows >= 1 && size >= rows,
                    "StreamRows: expected at least as many pieces of text as rows, ", rows, "; got ", size,
                    ". Use a longer text, a smaller batch or a shorter context.");
}

std::vector<int64_t> StreamRows::indices(int64_t batch) const {
  TORCH_CHECK_INDEX(batch >= 0 && batch < batches(), "StreamRows: expected a batch in 0..", batches() - 1,
                    "; got ", batch);
  const int64_t length = size_ / rows_, longer = size_ % rows_;
  std::vector<int64_t> result;
  for (int64_t row = 0; row < (batch < length ? rows_ : longer); ++row)
    result.push_back(row * length + std::min(row, longer) + batch);
  return result;
}

void sort_by_length(const Dataset& dataset, Split split, std::vector<int64_t>& indices) {
  std::ranges::stable_sort(indices, std::greater<>(),
                           [&](int64_t index) { return dataset.length(split, index); });
}

int64_t evaluation_batches(int64_t dataset_size, int64_t batch_size) {
  TORCH_CHECK_VALUE(dataset_size >= 0 && batch_size >= 1,
                    "evaluation_batches: expected dataset_size >= 0 and batch_size >= 1; got ", dataset_size,
                    " and ", batch_size);
  return (dataset_size + batch_size - 1) / batch_size;
}

std::vector<int64_t> evaluation_indices(int64_t dataset_size, int64_t batch_size, int64_t batch) {
  const int64_t batches = evaluation_batches(dataset_size, batch_size);
  TORCH_CHECK_INDEX(batch >= 0 && batch < batches, "evaluation_indices: expected a batch in 0..", batches - 1,
                    "; got ", batch);
  const int64_t first = batch * batch_size;
  std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size, dataset_size - first)));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

}  // namespace edgewise::data
