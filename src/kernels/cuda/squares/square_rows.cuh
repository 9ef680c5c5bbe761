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
      : taken_(taken), rows_(rows), stretch_(static_cast<int>(blockIdx.x)) {
    ask();
  }
  // The next row, or -1 when all are taken. The one after it is asked for at once: the answer has until then.
  __device__ int next() {
    int place = __shfl_sync(~0u, asked_, 0);
    while (place >= begin(stretch_ + 1) - begin(stretch_)) {
      if (!move_on()) return -1;
      ask();
      place = __shfl_sync(~0u, asked_, 0);
    }
    const int row = begin(stretch_) + place;
    ask();
    return row;
  }

 private:
  __device__ int begin(int stretch) const {
    return static_cast<int>(static_cast<int64_t>(rows_) * stretch / static_cast<int>(gridDim.x));
  }
  __device__ void ask() {
    if (lane_id() == 0) asked_ = atomicAdd(taken_ + stretch_, 1);
  }
  // To the next stretch that has rows left.
  __device__ bool move_on() {
    const int blocks = static_cast<int>(gridDim.x);
#pragma unroll 1
    for (int ahead = 1; ahead < blocks; ahead += 32) {
      const int other = (stretch_ + ahead + lane_id()) % blocks;
      const bool is_left =
          ahead + lane_id() < blocks &&
          *const_cast<const volatile int32_t*>(taken_ + other) < begin(other + 1) - begin(other);
      const unsigned left = __ballot_sync(~0u, is_left);
      if (!left) continue;
      stretch_ = (stretch_ + ahead + __ffs(static_cast<int>(left)) - 1) % blocks;
      return true;
    }
    return false;
  }

  int32_t* taken_;
  int rows_, stretch_, asked_ = 0;
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
