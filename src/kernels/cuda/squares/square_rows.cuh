// Which rows of squares a warp computes, one after the other. Lists differ in length, so rows are not dealt
// out: every block begins with a stretch of neighbouring rows, whose warps read the same keys at about the
// same time, and goes on with what other blocks have left.
#pragma once

#include "kernels/cuda/squares/square_operands.cuh"

namespace edgewise::kernels::cuda {
namespace {

class RowQueue {
 public:
  // taken: [blocks] how many rows of each block's stretch are taken, zeros to begin with. By a whole warp.
  __device__ RowQueue(int32_t* taken, int rows)
      : taken_(taken),
        rows_(rows),
        size_((rows + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x)),
        stretch_(static_cast<int>(blockIdx.x)) {
    ask();
  }
  // The next row, or -1 when all are taken. The one after it is asked for at once: the answer has until then.
  __device__ int next() {
    int place = __shfl_sync(~0u, asked_, 0);
    while (place >= rows_of(stretch_)) {
      if (!move_on()) return -1;
      ask();
      place = __shfl_sync(~0u, asked_, 0);
    }
    const int row = size_ * stretch_ + place;
    ask();
    return row;
  }

 private:
  __device__ int rows_of(int stretch) const { return min(size_, rows_ - size_ * stretch); }
  __device__ void ask() {
    if (lane_id() == 0) asked_ = atomicAdd(taken_ + stretch_, 1);
  }
  // To the next stretch that has rows left. Rare, and kept out of the way.
  [[gnu::noinline]] __device__ bool move_on() {
    const int blocks = static_cast<int>(gridDim.x);
#pragma unroll 1
    for (int ahead = 1; ahead < blocks; ahead += 32) {
      int other = stretch_ + ahead + lane_id();
      if (other >= blocks) other -= blocks;
      const bool is_left =
          ahead + lane_id() < blocks && *const_cast<const volatile int32_t*>(taken_ + other) < rows_of(other);
      const unsigned left = __ballot_sync(~0u, is_left);
      if (!left) continue;
      stretch_ += ahead + __ffs(static_cast<int>(left)) - 1;
      if (stretch_ >= blocks) stretch_ -= blocks;
      return true;
    }
    return false;
  }

  int32_t* taken_;
  int rows_, size_, stretch_, asked_ = 0;
};

// Where a row of query groups stands.
struct QueryPlace {
  int item, head, head_index, key_head, group;

  template <typename T>
  __device__ QueryPlace(const SquareParams<T>& p, int row) {
    head_index = p.query_groups.quotient(row), group = p.query_groups.remainder(row, head_index);
    item = p.by_heads.quotient(head_index), head = p.by_heads.remainder(head_index, item);
    key_head = p.heads_of_key_head.quotient(head);
  }
};

}  // namespace

// Threads a block: as many as share the cache well, but no fewer blocks than fill the chip.
inline unsigned square_threads(int64_t rows, unsigned most) {
  const int64_t warps = rows / kMostSquareBlocks;
  return static_cast<unsigned>(warps < 1 ? 32 : warps * 32 > most ? most : warps * 32);
}
// Blocks: no more than run at once, where each has `most` threads.
inline unsigned square_blocks(int64_t rows, unsigned threads) {
  const int64_t warps = threads / 32, blocks = (rows + warps - 1) / warps;
  return static_cast<unsigned>(blocks < kMostSquareBlocks ? blocks : kMostSquareBlocks);
}

}  // namespace edgewise::kernels::cuda
