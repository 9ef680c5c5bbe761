// The squares of a list, one after the other: while a warp computes one, copies of the next ones run. What a
// square needs of the other group lies in a stage of the warp's own in shared memory: two tiles of 16 tokens,
// perhaps some words more, and which square it is.
#pragma once

#include "kernels/cuda/squares/square_visits.cuh"

namespace edgewise::kernels::cuda {
namespace {

// kBytes of a token, kMore bytes beside both tiles.
template <int kBytes, int kMore>
struct StageShape {
  static constexpr int kTile = TileShape<kBytes>::kTileBytes, kWord = 2 * kTile + kMore;
  static constexpr int kAligned = kBytes < 128 ? 128 : kBytes;
  static constexpr int kStageBytes = (kWord + 16 + kAligned - 1) / kAligned * kAligned;
};

template <int kBytes, int kMore, int kStages>
class SquarePipe {
 public:
  using Shape = StageShape<kBytes, kMore>;
  static constexpr int kPipeBytes = kStages * Shape::kStageBytes;

  // memory: the warp's own, kPipeBytes of it. more: kMore bytes for each group.
  __device__ SquarePipe(uint32_t memory, const HeadRows& first, const HeadRows& second,
                        const char* more = nullptr)
      : memory_(memory), first_(first), second_(second), more_(more) {}

  // Begins with a list of `count` squares.
  template <typename WordOf>
  __device__ void start(SquareWalk<WordOf>& walk, int count) {
    __syncwarp();  // all are done with the stages
    asked_ = 0, next_ = now_ = 0;
#pragma unroll
    for (int n = 0; n < kStages - 1; ++n) ask(walk, count);
  }
  // The next square, whose tiles are then at first() and second() until it is asked for another.
  template <typename WordOf>
  __device__ Visit take(SquareWalk<WordOf>& walk, int count) {
    await_copies<kStages - 2>();
    __syncwarp();  // of the other lanes too; and they have done with the stage that is filled now
    ask(walk, count);
    stage_ = memory_ + now_;
    now_ = now_ + Shape::kStageBytes == kPipeBytes ? 0 : now_ + Shape::kStageBytes;
    return {static_cast<int>(load_word(stage_ + Shape::kWord)), load_word(stage_ + Shape::kWord + 4)};
  }
  __device__ uint32_t first() const {
    return stage_;
  }
  __device__ uint32_t second() const {
    return stage_ + Shape::kTile;
  }
  __device__ uint32_t more() const {
    return stage_ + 2 * Shape::kTile;
  }

 private:
  template <typename WordOf>
  __device__ void ask(SquareWalk<WordOf>& walk, int count) {
    if (asked_ < count) {
      const Visit visit = walk.take(asked_++);
      const uint32_t stage = memory_ + next_;
      next_ = next_ + Shape::kStageBytes == kPipeBytes ? 0 : next_ + Shape::kStageBytes;
      copy_tile<kBytes>(stage, first_, visit.group, visit.tokens());
      copy_tile<kBytes>(stage + Shape::kTile, second_, visit.group, visit.tokens());
      if (kMore > 0 && lane_id() < kMore / 16)
        copy_ahead(stage + 2 * Shape::kTile + 16 * lane_id(),
                   more_ + static_cast<uint64_t>(visit.group) * kMore + 16 * lane_id(), true);
      if (lane_id() == 0) {
        store_word(stage + Shape::kWord, static_cast<uint32_t>(visit.group));
        store_word(stage + Shape::kWord + 4, visit.word);
      }
    }
    end_copies();
  }

  uint32_t memory_;
  HeadRows first_, second_;
  const char* more_;
  int asked_ = 0;
  uint32_t next_ = 0, now_ = 0, stage_ = 0;  // where the next square goes, where the next to be taken is
};

// This warp's part of the block's shared memory, of which each warp has `bytes`.
__device__ inline uint32_t warp_memory(int bytes) {
  const int warp = __shfl_sync(kEveryLane, static_cast<int>(threadIdx.x / 32), 0);
  return word_address(dynamic_shared()) + static_cast<uint32_t>(warp * bytes);
}

}  // namespace
}  // namespace edgewise::kernels::cuda
