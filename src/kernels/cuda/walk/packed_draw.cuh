// What a row of the packed walk (packed_walk.cu) does beside its products: a draw among scores that eight
// lanes hold, and the LSTM's unit from its gates.
#pragma once

#include "kernels/cuda/walk/walk_common.cuh"

namespace edgewise::kernels::cuda {
namespace {

// Lane 4 g + t belongs to row t of its warp, and has places 8 g .. 8 g + 7 of it.

__device__ __forceinline__ float row_max(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, step));
  return x;
}
__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
}
__device__ __forceinline__ uint32_t row_ballot(bool x) {  // bit 4 g
  return __ballot_sync(kAll, x) >> lane_id() % 4 & 0x11111111u;
}

constexpr float kLog2E = 1.4426950408889634f;
__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

struct Draw {
  int place;
  float top, total, weighted, score;  // the last two: where sums are wanted
  __device__ __forceinline__ float normaliser() const { return top + __logf(total); }
  __device__ __forceinline__ float entropy() const { return normaliser() - __fdividef(weighted, total); }
};
// Forbidden places have scores of kForbidden or so. Nobody looks at the draw of a row that is not live.
template <bool kSums>
__device__ __forceinline__ Draw draw(const float (&score)[8], WalkChoice choice, float uniform, bool live) {
  const int lane = lane_id(), first = lane / 4 * 8;
  Draw result{};
  float running[8], up_to = 0, weighted = 0;
#pragma unroll 1
  for (bool again = false;;) {
    const float shift = result.top * -kLog2E;
    weighted = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      running[n] = power_of_two(fmaf(score[n], kLog2E, shift));
      if constexpr (kSums) weighted = fmaf(running[n], score[n], weighted);
    }
#pragma unroll
    for (int step = 1; step < 8; step *= 2)
#pragma unroll
      for (int n = 7; n >= step; --n) running[n] += running[n - step];
    up_to = running[7];  // over the lanes of the row up to this one
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      const float before = __shfl_up_sync(kAll, up_to, step);
      if (lane >= step) up_to += before;
    }
    result.total = __shfl_sync(kAll, up_to, 28 + lane % 4);
    // Scores so large that their exponentials need the largest taken off are rare.
    if (again || !__any_sync(kAll, live && !(result.total > 1e-20f && result.total < 1e35f))) break;
    again = true;
    result.top = score[0];
#pragma unroll
    for (int n = 1; n < 8; ++n) result.top = fmaxf(result.top, score[n]);
    result.top = row_max(result.top);
  }
  uint32_t passed = 0;
  if (choice == WalkChoice::kSample) {
    float before = __shfl_up_sync(kAll, up_to, 4);
    if (lane < 4) before = 0;
    // Not below 0, so that no place without a share passes.
    const float rest = fmaxf(fmaf(uniform, result.total, -before), 0.f);
    passed = row_ballot(running[7] > rest);
    int place = first;  // the first whose running sum passes the target
#pragma unroll
    for (int n = 0; n < 7; ++n) place += running[n] <= rest;
    result.place = __shfl_sync(kAll, place, passed ? __ffs(static_cast<int>(passed)) - 1 + lane % 4 : lane);
  }
  if (__any_sync(kAll, live && passed == 0)) {  // the likeliest; ties go to the smaller place
    float best = kForbidden;                    // which a number that is none does not pass
    int place = first;
#pragma unroll
    for (int n = 0; n < 8; ++n)
      if (score[n] > best) best = score[n], place = first + n;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      const float other = __shfl_xor_sync(kAll, best, step);
      const int other_place = __shfl_xor_sync(kAll, place, step);
      if (other > best || (other == best && other_place < place)) best = other, place = other_place;
    }
    place = __shfl_sync(kAll, place, lane % 4);
    if (passed == 0) result.place = place;
  }
  if constexpr (kSums) {
    float own = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n)
      if (first + n == result.place) own = score[n];
    result.weighted = row_sum(weighted);
    result.score = row_sum(own);
  }
  return result;
}

// 2^(scale x), of at most 2^40, so that three of them can be multiplied.
__device__ __forceinline__ float falling(float x, float scale) {
  return power_of_two(fminf(x * scale, 40.f));
}
__device__ __forceinline__ float inverse(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// The cell and h of one unit from its gates: sigmoid(x) = 1 / (1 + e^-x), tanh(x) = (1 - e^-2x) / (1 +
// e^-2x), with one division for each of the two results.
__device__ __forceinline__ float lstm_unit(float i, float f, float g, float o, float& cell) {
  constexpr float kOne = -kLog2E, kTwo = 2 * kOne;
  const float ei = 1.f + falling(i, kOne), ef = 1.f + falling(f, kOne), eg = falling(g, kTwo),
              eo = 1.f + falling(o, kOne);
  const float both = ei * (1.f + eg);
  cell = fmaf(cell, both, (1.f - eg) * ef) * inverse(both * ef);
  const float ec = falling(cell, kTwo);
  return (1.f - ec) * inverse(eo * (1.f + ec));
}

}  // namespace
}  // namespace edgewise::kernels::cuda
