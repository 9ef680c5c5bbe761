// Which examples make up a batch: the shuffled endless order of training, and the plain order of evaluation.
#pragma once

#include <cstdint>
#include <vector>

#include <edgewise/data/dataset.h>

namespace edgewise::data {

// Which examples each batch of a sequence of batches holds.
class Order {
 public:
  virtual ~Order() = default;
  virtual std::vector<int64_t> indices(int64_t batch) = 0;  // batch counts from 0
  // Whether nothing stands before the rows of this batch: else they go on where those of the one before
  // ended.
  virtual bool is_beginning(int64_t /*batch*/) const { return true; }
};

// The indices of every training step. Each pass over the dataset is a new permutation; batches may straddle
// passes, so no example is dropped. A step's indices depend on (seed, step) only, so resuming needs no saved
// state. Steps taken in order cost O(batch) each (amortised); jumping to another pass costs one shuffle. Not
// thread-safe.
class BatchOrder : public Order {
 public:
  BatchOrder(int64_t dataset_size, int64_t batch_size, uint64_t seed);

  std::vector<int64_t> indices(int64_t step) override;

 private:
  void shuffle(int64_t pass);

  int64_t dataset_size_;
  int64_t batch_size_;
  uint64_t seed_;
  int64_t pass_ = -1;  // the pass that permutation_ holds
  std::vector<int64_t> permutation_;
};

// A text of `size` pieces in `rows` parts as long as one another, or one piece longer (the first ones): piece
// t of every part makes batch t, so that row r of a batch goes on where row r of the batch before ended.
class StreamRows {
 public:
  StreamRows(int64_t size, int64_t rows);  // no more rows than pieces

  int64_t rows() const { return rows_; }
  int64_t full_batches() const { return size_ / rows_; }  // those that have every row
  int64_t batches() const { return (size_ + rows_ - 1) / rows_; }
  std::vector<int64_t> indices(int64_t batch) const;  // of the rows that are that long, from row 0 on

 private:
  int64_t size_, rows_;
};

// The longest first: micro-batches, which are slices of a batch, then hold items of similar length and pad
// little. Which examples are in the batch stays as it is, so training sees no other distribution.
void sort_by_length(const Dataset& dataset, Split split, std::vector<int64_t>& indices);

// Evaluation goes through a split once, in order; the last batch may be smaller.
int64_t evaluation_batches(int64_t dataset_size, int64_t batch_size);
std::vector<int64_t> evaluation_indices(int64_t dataset_size, int64_t batch_size, int64_t batch);

}  // namespace edgewise::data
