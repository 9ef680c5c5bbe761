// A number for whoever chose the squares: of each square that is there, and of each probe. Equations:
// src/ops/squares/square_attention.h.
#pragma once

#include "kernels/cuda/squares/square_terms.cuh"

namespace edgewise::kernels::cuda {
namespace {

// Where a query group stands.
struct GroupPlace {
  int item, head, head_index, group;
};

// ---- leave one out ----

template <typename Products, int D>
__device__ inline float row_dot(const char* a, const char* b) {
  float sum = 0;
#pragma unroll 1
  for (int n = 0; n < Deal<typename Products::Stored, D>::kBytes; n += 16) {
    uint32_t x[4], y[4];
    read_words<4>(x, a + n);
    read_words<4>(y, b + n);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += Products::dot(x[k], y[k]);
  }
  return sum;
}

// Mean of u - ubar over the pairs of query `r` in all squares but the one at place `without`, by their
// softmax; without such pairs the output would become 0, and u - ubar with it -ubar. By a whole warp: 16
// lanes a square.
template <typename Products, int D>
[[gnu::noinline]] __device__ float mean_of_others(const SquareBackwardParams<typename Products::Stored>& p,
                                                  uint32_t drop_limit, GroupPlace at, int r, int without,
                                                  float ubar) {
  const int64_t row = at.head_index * square_groups(p.queries) + at.group, token = at.group * kSquareSide + r;
  const int key_head = at.head / static_cast<int>(p.heads / p.key_heads);
  const HeadRows queries(p.query, at.item, at.head), grads(p.grad_output, at.item, at.head),
      keys(p.key, at.item, key_head), values(p.value, at.item, key_head);
  const char *const query = queries.row(static_cast<uint32_t>(token)), *const grad = grads.row(
                                                                           static_cast<uint32_t>(token));
  const int begin = p.squares.begin[row], count = p.squares.count[row], j = lane_id() % 16;
  float top = -INFINITY, total = 0, effect = 0;
  for (int n = lane_id() / 16; n < count; n += 2) {
    if (begin + n == without) continue;
    const int group = p.squares.groups[begin + n];
    const Visit visit{group, visit_by_query(p, at.item, at.group, group)};
    if (!(visit.word >> j & 1) || j > r + visit.shift()) continue;
    const uint32_t key = static_cast<uint32_t>(group) * 16 + j;
    const float score = row_dot<Products, D>(query, keys.row(key)) * p.scale;
    float u = row_dot<Products, D>(grad, values.row(key));
    if (p.stream_keys)
      u = pair_dropped(p.stream_keys[at.head_index], static_cast<uint32_t>(token), key, drop_limit)
              ? 0
              : u * p.keep_scale;
    if (score > top) {
      const float factor = expf(top - score);
      total *= factor, effect *= factor, top = score;
    }
    const float weight = expf(score - top);
    total += weight, effect += weight * (u - ubar);
  }
  float most = top;
#pragma unroll
  for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(kEveryLane, most, step));
  const float factor = most == -INFINITY ? 0 : expf(top - most);
  total = warp_sum(total * factor), effect = warp_sum(effect * factor);
  return total > 0 ? effect / total : -ubar;
}

// With A = sum a and E = sum a (u - ubar) of a row in a square, E / (1 - A), which cancels where A is near 1.
// A row has at most one square with A > 1/2, or two that rounding put there; the first waits for the sums
// over the others, A' and E', whose mean it is compared with: E - A E' / A'.
struct LeaveOneOut {
  float others_share[2] = {}, others_effect[2] = {};
  float share[2] = {}, effect[2] = {};  // of the largest square of rows g and g + 8
  int place[2] = {-1, -1};

  // The square's credit without what waits, in every lane.
  __device__ float take(int at, const float (&shares)[2], const float (&effects)[2]) {
    float result = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float a = row_sum(shares[half]), e = row_sum(effects[half]);
      if (a > 0.5f && place[half] < 0) {
        share[half] = a, effect[half] = e, place[half] = at;
      } else {
        others_share[half] += a, others_effect[half] += e;
        result += e / (1 - a);
      }
    }
#pragma unroll
    for (int step = 4; step < 32; step *= 2) result += __shfl_xor_sync(kEveryLane, result, step);
    return result;
  }

  template <typename Products, int D>
  __device__ void finish(const SquareBackwardParams<typename Products::Stored>& p, uint32_t drop_limit,
                         const GroupPlace& at, const RowTerms& terms) const {
    constexpr float kLeast = 1e-30f;  // smaller sums have lost digits
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned rows = __ballot_sync(kEveryLane, place[half] >= 0 && lane_id() % 4 == 0);
      for (; rows; rows &= rows - 1) {
        const int lane = __ffs(static_cast<int>(rows)) - 1;
        const auto of_row = [&](auto x) { return __shfl_sync(kEveryLane, x, lane); };
        const float row_share = of_row(others_share[half]), row_effect = of_row(others_effect[half]);
        const int row_place = of_row(place[half]);
        const float ubar = of_row(terms.ubar[half]);
        const float mean = row_share >= kLeast ? row_effect / row_share
                                               : mean_of_others<Products, D>(
                                                     p, drop_limit, at, lane / 4 + 8 * half, row_place, ubar);
        const float credit = of_row(effect[half]) - of_row(share[half]) * mean;
        if (lane_id() == 0) p.credit[row_place] += credit;  // which this lane wrote before
      }
    }
  }
};

// ---- probes ----

// With b = exp(s - l): sum over rows of [sum b (u - ubar)] / (1 + sum b), both divided by the largest of 1
// and the b. An empty row would have the probe's pairs alone: there l drops out, and so does the 1. Scores
// are -infinity for pairs that take no part. The sum over the warp's rows, of which `queries` exist.
__device__ inline float probe_sum(const float (&s)[2][4], const float (&u)[2][4], float factor,
                                  const RowTerms& terms, int queries) {
  float result = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool has_pairs = terms.has_pairs(half);
    const float lse = has_pairs ? terms.lse[half] : 0;
    float x[4], most = has_pairs ? 0 : -INFINITY;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      x[m] = fmaf(s[m / 2][2 * half + m % 2], factor, -lse);
      most = fmaxf(most, x[m]);
    }
    most = row_max(most);
    if (most == -INFINITY) most = 0;
    float total = 0, effect = 0;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const float b = exp2_fast(x[m] - most);
      total += b;
      effect = fmaf(b, u[m / 2][2 * half + m % 2] - terms.ubar[half], effect);
    }
    total = row_sum(total) + (has_pairs ? exp2_fast(-most) : 0.0f), effect = row_sum(effect);
    if (total > 0 && lane_id() / 4 + 8 * half < queries) result += effect / total;
  }
#pragma unroll
  for (int step = 4; step < 32; step *= 2) result += __shfl_xor_sync(kEveryLane, result, step);
  return result;
}

}  // namespace
}  // namespace edgewise::kernels::cuda
