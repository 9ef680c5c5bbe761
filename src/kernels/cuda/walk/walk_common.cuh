// What the walks on CUDA share: the candidates of a row, random numbers, scores of 32 nodes at a time, a
// draw, the LSTM's gates. A warp works on one row; P = 32.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/walk/cuda_walk_params.h"
#include "kernels/pair_numbers.h"
#include "kernels/walk_lanes.h"

namespace edgewise::kernels::cuda {

constexpr int P = kWalkWidth;
constexpr unsigned kAll = ~0u;
// As low as a score can be and finite, so that 0 times it is 0.
constexpr float kForbidden = -1e30f;

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x & 31);
}

// ---- candidates ----

struct Candidates {
  int lo, hi;
  int gap_lo, gap_hi;          // a part of [lo, hi), or empty: these keys are none
  const int32_t* open_before;  // of the item

  __device__ __forceinline__ Candidates(const WalkSpan& span, int item, int query, int keys) {
    const int position = query + span.offset;
    lo = span.window >= 0 ? max(0, position - span.window) : 0;
    hi = span.causal ? min(position + 1, keys) : keys;
    if (span.window >= 0) hi = min(hi, position + span.window + 1);
    gap_lo = span.gap >= 0 ? min(max(position - span.gap, lo), hi) : hi;
    gap_hi = span.gap >= 0 ? max(min(position + span.gap + 1, hi), gap_lo) : hi;
    open_before = span.open_before ? span.open_before + static_cast<int64_t>(item) * (keys + 1) : nullptr;
  }
  __device__ __forceinline__ bool open(int j) const {
    return !open_before || open_before[j + 1] != open_before[j];
  }
  __device__ __forceinline__ bool contains(int j) const {
    return j >= lo && j < hi && (j < gap_lo || j >= gap_hi) && open(j);
  }
  __device__ __forceinline__ int count() const {
    if (lo >= hi) return 0;
    return open_before ? open_before[hi] - open_before[lo] - (open_before[gap_hi] - open_before[gap_lo])
                       : hi - lo - (gap_hi - gap_lo);
  }
};

// ---- a row ----

// What it may choose and what it has chosen.
struct WalkRow {
  int query, limit, made;  // made: edges so far
  bool exists, choosing;
};

// Its limit, and whether there is anything to choose. Returns the number of its candidates.
__device__ __forceinline__ int begin_row(const RootedParams& p, int item, const Candidates& candidates,
                                         WalkRow& row) {
  if (!row.exists) return 0;
  row.limit = p.limits ? static_cast<int>(min(p.limits[static_cast<int64_t>(item) * p.queries + row.query],
                                              static_cast<int64_t>(p.steps)))
                       : p.limit;
  const int count = row.limit > 0 ? candidates.count() : 0;
  row.choosing = count > (p.duplicates ? 1 : row.limit);
  return count;
}

// Everything that is written when a walk is over. list: keys in the order of the walk.
__device__ __forceinline__ void write_row(const RootedParams& p, int unit, const WalkRow& row,
                                          const int* list) {
  if (!row.exists) return;
  const int lane = lane_id();
  const int64_t at = (static_cast<int64_t>(unit) * p.queries + row.query) * p.steps;
  for (int e = lane; e < p.steps; e += 32) {
    const bool made = e < row.made;
    const int key = made ? list[e] : 0;
    int rank = e;
    if (made) {
      rank = 0;
      for (int other = 0; other < row.made; ++other)
        rank += list[other] < key || (list[other] == key && other < e);
    }
    p.sorted[at + rank] = made ? key : p.keys;
    if (!p.destination) continue;
    p.order[at + rank] = e;
    p.destination[at + e] = key;
    p.taken[at + e] = made;
    p.chosen[at + e] = made && row.choosing;
    if (p.log_prob && !(made && row.choosing)) p.log_prob[at + e] = p.entropy[at + e] = 0;
  }
  if (p.states)
    for (int e = row.choosing ? row.made : 0; e < p.steps; ++e) p.states[(at + e) * P + lane] = 0;
}

// ---- random numbers, as philox.h ----

__device__ __forceinline__ uint64_t stream_key_of(const WalkStream& s, int64_t item, int group) {
  const PairWords outer = philox<10>(static_cast<uint32_t>(s.step), static_cast<uint32_t>(s.step >> 32),
                                     s.layer, s.purpose, s.seed);
  const uint64_t key = outer.word[0] | static_cast<uint64_t>(outer.word[1]) << 32;
  const uint64_t global = static_cast<uint64_t>(s.first_item + item);
  const PairWords inner = philox<10>(static_cast<uint32_t>(global), static_cast<uint32_t>(global >> 32),
                                     static_cast<uint32_t>(group), outer.word[2], key);
  return inner.word[0] | static_cast<uint64_t>(inner.word[1]) << 32;
}
__device__ __forceinline__ double uniform_of(uint32_t high, uint32_t low) {
  const uint64_t bits = static_cast<uint64_t>(high) << 20 | low >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-52;
}

// ---- sums over a warp ----

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, step));
  return x;
}
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
}
__device__ __forceinline__ float running_sum(float x) {  // over the lanes up to this one
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float before = __shfl_up_sync(kAll, x, step);
    if (lane_id() >= step) x += before;
  }
  return x;
}
// The place of the largest value; ties go to the smaller place. Every lane gets it.
__device__ __forceinline__ int warp_argmax(float value, int place) {
#pragma unroll
  for (int step = 16; step; step /= 2) {
    const float other = __shfl_xor_sync(kAll, value, step);
    const int other_place = __shfl_xor_sync(kAll, place, step);
    if (other > value || (other == value && other_place < place)) value = other, place = other_place;
  }
  return __shfl_sync(kAll, place, 0);
}

// ---- 32 nodes at a time ----
// Lane 8 g + s holds numbers 4 s .. 4 s + 3 of nodes 8 g .. 8 g + 7: loads are whole rows, and after an
// exchange lane n has the score of node n.

struct NodeRows {
  float4 row[8];

  // Beyond `count`, of at least 1, the last row again: loads without branches.
  __device__ __forceinline__ void load(const float* nodes, int count) {
    const int lane = lane_id(), g = lane / 8, s = lane % 8;
#pragma unroll
    for (int v = 0; v < 8; ++v)
      row[v] = *reinterpret_cast<const float4*>(nodes + min(8 * g + v, count - 1) * P + 4 * s);
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < 8; ++v) row[v] = make_float4(0, 0, 0, 0);
  }
  // h: numbers 4 s .. of the state.
  __device__ __forceinline__ float scores(const float4& h) const {
    float part[8];
#pragma unroll
    for (int v = 0; v < 8; ++v)
      part[v] = fmaf(row[v].x, h.x, fmaf(row[v].y, h.y, fmaf(row[v].z, h.z, row[v].w * h.w)));
    const int s = lane_id() % 8;
#pragma unroll
    for (int half = 4; half; half /= 2) {
      const bool upper = s & half;
#pragma unroll
      for (int v = 0; v < half; ++v) {
        const float give = upper ? part[v] : part[v + half], keep = upper ? part[v + half] : part[v];
        part[v] = keep + __shfl_xor_sync(kAll, give, half);
      }
    }
    return part[0];
  }
  // sum += sum over nodes of ds_n row_n, ds_n of lane n; of the eight nodes of this lane's group only.
  __device__ __forceinline__ void add_weighted(float ds, float4& sum) const {
    const int first = lane_id() & 24;
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      const float d = __shfl_sync(kAll, ds, first + v);
      sum.x = fmaf(d, row[v].x, sum.x), sum.y = fmaf(d, row[v].y, sum.y);
      sum.z = fmaf(d, row[v].z, sum.z), sum.w = fmaf(d, row[v].w, sum.w);
    }
  }
  // row_n += ds_n h.
  __device__ __forceinline__ void add_outer(float ds, const float4& h) {
    const int first = lane_id() & 24;
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      const float d = __shfl_sync(kAll, ds, first + v);
      row[v].x = fmaf(d, h.x, row[v].x), row[v].y = fmaf(d, h.y, row[v].y);
      row[v].z = fmaf(d, h.z, row[v].z), row[v].w = fmaf(d, h.w, row[v].w);
    }
  }
};
// Over the four groups: every lane gets numbers 4 s .. of the sum.
__device__ __forceinline__ float4 sum_over_groups(float4 x) {
#pragma unroll
  for (int step = 8; step < 32; step *= 2) {
    x.x += __shfl_xor_sync(kAll, x.x, step), x.y += __shfl_xor_sync(kAll, x.y, step);
    x.z += __shfl_xor_sync(kAll, x.z, step), x.w += __shfl_xor_sync(kAll, x.w, step);
  }
  return x;
}

// Bits of the keys [begin, begin + 32) that are among the first `count` of `list`.
__device__ __forceinline__ uint32_t listed_bits(const int* list, int count, int begin) {
  uint32_t bits = 0;
  for (int from = 0; from < count; from += 32) {
    const int at = from + lane_id(), place = at < count ? list[at] - begin : -1;
    bits |= __reduce_or_sync(kAll, place >= 0 && place < 32 ? 1u << place : 0u);
  }
  return bits;
}

// ---- one decision among 32 * kChunks scores, chunk by chunk, one a lane ----

template <int kChunks>
struct Decision {
  float score[kChunks];

  __device__ __forceinline__ int likeliest() const {
    float best = score[0];
    int place = lane_id();
#pragma unroll
    for (int n = 1; n < kChunks; ++n)
      if (score[n] > best) best = score[n], place = 32 * n + lane_id();
    return warp_argmax(best, place);
  }
  // The first place where the running sum of e^(s - level) passes target; -1 when rounding leaves none.
  __device__ __forceinline__ int draw(float level, float target) const {
    float before = 0;
    int place = -1, last = -1;
#pragma unroll
    for (int n = 0; n < kChunks; ++n) {
      const float x = __expf(score[n] - level), running = before + running_sum(x);
      const unsigned passed = __ballot_sync(kAll, running > target && x > 0),
                     some = __ballot_sync(kAll, x > 0);
      if (place < 0 && passed) place = 32 * n + __ffs(static_cast<int>(passed)) - 1;
      if (some) last = 32 * n + 31 - __clz(static_cast<int>(some));
      before = __shfl_sync(kAll, running, 31);
    }
    return place >= 0 ? place : last;
  }
  __device__ __forceinline__ float at(int place) const {
    float result = 0;
#pragma unroll
    for (int n = 0; n < kChunks; ++n) {
      const float x = __shfl_sync(kAll, score[n], place & 31);
      if (place >> 5 == n) result = x;
    }
    return result;
  }
};

// ds of a prediction from its score.
struct PredictionGrad {
  float dlogp, dentropy, normaliser, entropy;
  __device__ __forceinline__ float operator()(float score, bool is_chosen) const {
    const float log_p = score - normaliser;
    return (is_chosen ? dlogp : 0.f) - __expf(log_p) * fmaf(dentropy, log_p + entropy, dlogp);
  }
};

__device__ __forceinline__ void add_orderless(const OrderlessSum& sum, int64_t at, float x) {
  if (x != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(sum.data) + at,
              static_cast<unsigned long long>(
                  __double2ll_rn(static_cast<double>(x) * static_cast<double>(*sum.scale))));
}

// ---- LSTM ----

__device__ __forceinline__ float sigmoid_of(float x) {
  return __fdividef(1.f, 1.f + __expf(-x));
}
__device__ __forceinline__ float tanh_of(float x) {  // of arguments below 40 in size: beyond, it is 1
  return 1.f - __fdividef(2.f, 1.f + __expf(2.f * (x > 40.f ? 40.f : x)));
}

}  // namespace edgewise::kernels::cuda
