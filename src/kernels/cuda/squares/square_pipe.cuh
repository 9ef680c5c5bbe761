// The squares of a list, one after the other: while a warp computes one, copies of the next ones run. What a
// square needs of the other group lies in a stage of the warp's own in shared memory: two tiles of 16 tokens,
// perhaps some words more, and which square it is.
#pragma once

#include "kernels/cuda/squares/square_visits.cuh"

namespace edgewise::kernels::cuda {
namespace {

// kBytes of a token, kMore bytes beside both tiles.
template <int kBytes, int kMore, int kStages>
class SquarePipe {
 public:
  static constexpr int kTile = GroupTile<kBytes>::kTileBytes, kAligned = kBytes < 128 ? 128 : kBytes;
  static constexpr int kStageBytes = (2 * kTile + kMore + kAligned - 1) / kAligned * kAligned;
  static constexpr int kPipeBytes = kStages * kStageBytes;

  // memory: the warp's own, kPipeBytes of it. more: kMore bytes for each group.
  __device__ SquarePipe(uint32_t memory, const HeadRows& first, const HeadRows& second,
                        const char* more = nullptr)
      : memory_(memory),
        place_(LaneUnits<kBytes>::first_place()),
        first_(first),
        second_(second),
        more_(more + 16 * lane_id()) {
    made_once(memory_);
    made_once(place_);
    if (kMore > 0) made_once(more_);
  }

  // Begins with a list of `count` squares.
  template <typename WordOf>
  __device__ void start(SquareWalk<WordOf>& walk, int count) {
    __syncwarp();  // all are done with the stages
    asked_ = 0, next_ = memory_;
#pragma unroll
    for (int n = 0; n < kStages - 1; ++n) pending_[n] = ask(walk, count);
  }
  // The next square, whose tiles are then at first() and second() until it is asked for another.
  template <typename WordOf>
  __device__ Visit take(SquareWalk<WordOf>& walk, int count) {
    await_copies<kStages - 2>();
    __syncwarp();  // of the other lanes too; and they have done with the stage that is filled now
    const Visit result = pending_[0];
#pragma unroll
    for (int n = 1; n < kStages - 1; ++n) pending_[n - 1] = pending_[n];
    pending_[kStages - 2] = ask(walk, count);
    return result;
  }
  // All stages but one are ahead: the one that is filled next is the one that was just taken.
  __device__ uint32_t first() const {
    return next_;
  }
  __device__ uint32_t second() const {
    return next_ + kTile;
  }
  __device__ uint32_t more() const {
    return next_ + 2 * kTile;
  }

 private:
  template <typename WordOf>
  __device__ Visit ask(SquareWalk<WordOf>& walk, int count) {
    Visit visit{};
    if (asked_ < count) {
      visit = walk.take(asked_++);
      if (visit.tokens() == kAllTokens) {
        copy_tile(next_ + place_, first_, visit.group);
        copy_tile(next_ + place_ + kTile, second_, visit.group);
      } else {
        copy_some(next_ + place_, first_, visit.group, visit.tokens());
        copy_some(next_ + place_ + kTile, second_, visit.group, visit.tokens());
      }
      if (kMore > 0 && lane_id() < kMore / 16)
        copy_ahead(next_ + 2 * kTile + 16 * lane_id(),
                   more_ + static_cast<uint64_t>(static_cast<uint32_t>(visit.group)) * kMore);
    }
    next_ = next_ == memory_ + kPipeBytes - kStageBytes ? memory_ : next_ + kStageBytes;
    end_copies();
    return visit;
  }

  uint32_t memory_, place_;
  LaneUnits<kBytes> first_, second_;
  const char* more_;
  Visit pending_[kStages - 1];
  int asked_ = 0;
  uint32_t next_ = 0;  // the stage that is filled next
};

// This warp's part of the block's shared memory, of which each warp has `bytes`.
__device__ inline uint32_t warp_memory(int bytes) {
  const int warp = __shfl_sync(kEveryLane, static_cast<int>(threadIdx.x / 32), 0);
  return word_address(dynamic_shared()) + static_cast<uint32_t>(warp * bytes);
}

}  // namespace
}  // namespace edgewise::kernels::cuda
