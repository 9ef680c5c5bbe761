// A decision of a walk by eight neighbouring lanes: the choice among scores that they hold together.
#pragma once

#include "kernels/cuda/walk/walk_common.cuh"

namespace edgewise::kernels::cuda {
namespace {

__device__ __forceinline__ int sub_lane() {
  return static_cast<int>(threadIdx.x & 7);
}
__device__ __forceinline__ float eight_max(float x) {
#pragma unroll
  for (int step = 4; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, step));
  return x;
}
__device__ __forceinline__ float eight_sum(float x) {
#pragma unroll
  for (int step = 4; step; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
}
__device__ __forceinline__ float eight_running(float x) {
#pragma unroll
  for (int step = 1; step < 8; step *= 2) {
    const float before = __shfl_up_sync(kAll, x, step, 8);
    if (sub_lane() >= step) x += before;
  }
  return x;
}
__device__ __forceinline__ unsigned eight_ballot(bool x) {
  return __ballot_sync(kAll, x) >> (threadIdx.x & 24) & 0xFF;
}
// The place of the largest value, the same in all eight lanes; ties go to the smaller place.
__device__ __forceinline__ int eight_argmax(float value, int place) {
#pragma unroll
  for (int step = 4; step; step /= 2) {
    const float other = __shfl_xor_sync(kAll, value, step);
    const int other_place = __shfl_xor_sync(kAll, place, step);
    if (other > value || (other == value && other_place < place)) value = other, place = other_place;
  }
  return __shfl_sync(kAll, place, 0, 8);
}

// One decision of eight lanes: lane s has places first .. first + kCount - 1, in order, forbidden ones at
// kForbidden.
struct Decision {
  int place;
  float top, total, weighted, score;
  __device__ __forceinline__ float normaliser() const { return top + __logf(total); }
  __device__ __forceinline__ float entropy() const { return normaliser() - __fdividef(weighted, total); }
};
// with_sums: whether score and weighted are wanted.
template <int kCount>
__device__ __forceinline__ Decision decide(const float (&score)[kCount], int first, WalkChoice choice,
                                           float uniform, bool with_sums) {
  Decision result{};
  float most = kForbidden;  // which a number that is none does not pass
  int best = 0;
#pragma unroll
  for (int n = 0; n < kCount; ++n)
    if (score[n] > most) most = score[n], best = n;
  result.top = eight_max(most);
  float share[kCount], sum = 0;
#pragma unroll
  for (int n = 0; n < kCount; ++n) sum += share[n] = __expf(score[n] - result.top);
  const float running = eight_running(sum);
  result.total = __shfl_sync(kAll, running, 7, 8);
  result.place = -1;
  if (choice == WalkChoice::kSample) {
    const float target = uniform * result.total;
    const unsigned passed = eight_ballot(running > target && sum > 0);
    float next = __shfl_up_sync(kAll, running, 1, 8);
    if (sub_lane() == 0) next = 0;
    int drawn = 0;  // the first whose running sum passes the target, else the last with a share
    bool over = false;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      next += share[n];
      if (!over && share[n] > 0) drawn = n, over = next > target;
    }
    drawn = __shfl_sync(kAll, first + drawn, passed ? __ffs(static_cast<int>(passed)) - 1 : 0, 8);
    if (passed) result.place = drawn;
  }
  if (__any_sync(kAll, result.place < 0)) {
    const int likeliest = eight_argmax(most, first + best);
    if (result.place < 0) result.place = likeliest;
  }
  if (with_sums) {
    float weighted = 0, own = 0;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      weighted = fmaf(share[n], score[n], weighted);
      if (first + n == result.place) own = score[n];
    }
    result.weighted = eight_sum(weighted);
    result.score = eight_sum(own);
  }
  return result;
}

// The same for more places than registers hold: scores in shared memory, `count` of this lane.
__device__ __forceinline__ Decision decide_many(const float* scores, int first, int count, WalkChoice choice,
                                                float uniform) {
  float most = kForbidden;
  int best = first;
  for (int n = 0; n < count; ++n)
    if (scores[first + n] > most) most = scores[first + n], best = first + n;
  Decision result{};
  result.top = eight_max(most);
  float sum = 0, weighted = 0;
  for (int n = 0; n < count; ++n) {
    const float s = scores[first + n], x = __expf(s - result.top);
    sum += x;
    weighted = fmaf(x, s, weighted);
  }
  const float running = eight_running(sum);
  result.total = __shfl_sync(kAll, running, 7, 8);
  result.weighted = eight_sum(weighted);
  const float target = uniform * result.total;
  const unsigned passed = choice == WalkChoice::kSample ? eight_ballot(running > target && sum > 0) : 0;
  float next = __shfl_up_sync(kAll, running, 1, 8);
  if (sub_lane() == 0) next = 0;
  const int winner = passed ? __ffs(static_cast<int>(passed)) - 1 : 0;
  int drawn = best;
  for (int n = 0; n < count && sub_lane() == winner; ++n) {
    const float x = __expf(scores[first + n] - result.top);
    if (x <= 0) continue;
    drawn = first + n;
    next += x;
    if (next > target) break;
  }
  __syncwarp();
  drawn = __shfl_sync(kAll, drawn, winner, 8);
  const int likeliest = eight_argmax(most, best);
  result.place = passed ? drawn : likeliest;
  result.score = scores[result.place];
  return result;
}

}  // namespace
}  // namespace edgewise::kernels::cuda
