// What the backward pass needs of a query beside q and g: l log2(e), +infinity where the row has no pair or
// no query, so that weights become 0, and ubar = g . o. The pass by queries forms them and leaves them to the
// pass by keys: 32 floats a group. Lane t = lane % 4 of the pass by keys has the eight from 8 t on: l and
// then ubar of the queries 2 t, 2 t + 1, 2 t + 8, 2 t + 9.
#pragma once

#include "kernels/cuda/squares/square_visits.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kTermsOfGroup = 32;
__device__ inline int term_place(int query) {
  return 8 * (query % 8 / 2) + 2 * (query / 8) + query % 2;
}

// Of rows g and g + 8 of a group.
struct RowTerms {
  float lse[2], ubar[2];

  __device__ bool has_pairs(int half) const { return lse[half] != INFINITY; }
};

template <typename Products, int D>
__device__ inline RowTerms form_terms(const SquareBackwardParams<typename Products::Stored>& p,
                                      int head_index, int group, const HeadRows& grads) {
  using Of = Deal<typename Products::Stored, D>;
  const int g = lane_id() / 4, t = lane_id() % 4;
  const int64_t first = static_cast<int64_t>(head_index) * p.queries + group * kSquareSide;
  const int queries = static_cast<int>(p.queries - group * kSquareSide);
  RowTerms terms;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = g + 8 * half;
    float sum = 0, lse = -INFINITY;
    if (r < queries) {
      const char* const grad =
          grads.row(static_cast<uint32_t>(group * kSquareSide + r)) + t * (4 * Of::kChunk);
      const char* const output =
          reinterpret_cast<const char*>(p.output + (first + r) * D) + t * (4 * Of::kChunk);
#pragma unroll
      for (int c = 0; c < Of::kChunks; ++c) {
        uint32_t a[Of::kChunk], b[Of::kChunk];
        read_words<Of::kChunk>(a, grad + c * 64);
        read_words<Of::kChunk>(b, output + c * 64);
#pragma unroll
        for (int n = 0; n < Of::kChunk; ++n) sum += Products::dot(a[n], b[n]);
      }
      lse = __ldg(p.lse + first + r);
    }
    sum = row_sum(sum);
    const bool has_pairs = lse != -INFINITY;
    terms.lse[half] = has_pairs ? lse * 1.44269504088896f : INFINITY;
    terms.ubar[half] = has_pairs ? sum : 0.0f;
  }
  return terms;
}

template <typename T>
__device__ inline float* terms_of_group(const SquareBackwardParams<T>& p, int head_index, int group) {
  return p.row_terms + (head_index * square_groups(p.queries) + group) * kTermsOfGroup;
}
__device__ inline void store_terms(float* to, const RowTerms& terms) {
  if (lane_id() % 4) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int place = term_place(lane_id() / 4 + 8 * half);
    to[place] = terms.lse[half], to[place + 4] = terms.ubar[half];
  }
}

}  // namespace
}  // namespace edgewise::kernels::cuda
