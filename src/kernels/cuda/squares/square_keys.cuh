// Attention over squares, backward by keys: a warp walks through the squares of a group of 16 keys, head by
// head of those that read these keys. With a and dL/ds as in the pass by queries:
//
//   dk_j = scale sum_i dL/ds_ij q_i,   dv_j = sum_i a_ij g_i
//
// Products are transposed: rows are keys, columns queries.
#pragma once

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/squares/square_rows.cuh"
#include "kernels/cuda/squares/square_terms.cuh"

namespace edgewise::kernels::cuda {
namespace {

template <typename Products, int D>
struct KeyShape {
  static constexpr int kBytes = D * static_cast<int>(sizeof(typename Products::Stored));
  static constexpr bool kKept = kBytes <= 128, kAhead = kBytes <= 64;
  static constexpr int kThreads = kBytes == 128 && !Products::kInParts ? 384
                                  : kBytes > 64                        ? 256
                                  : kBytes == 64 && Products::kInParts ? 384
                                                                       : 512;
};

template <typename Products, int D>
__global__ void __launch_bounds__(KeyShape<Products, D>::kThreads, 1)
    square_backward_by_keys(const __grid_constant__ SquareBackwardParams<typename Products::Stored> p,
                            uint32_t drop_limit) {
  using Shape = KeyShape<Products, D>;
  using Stored = typename Products::Stored;
  const int key_groups = static_cast<int>(square_groups(p.keys));
  RowQueue queue(p.taken + 2 * kMostSquareBlocks, static_cast<int>(p.batch * p.key_heads * key_groups));
#pragma unroll 1
  for (int row = queue.next(); row >= 0; row = queue.next()) {
    const int key_head_index = row / key_groups, group = row % key_groups;
    const int item = key_head_index / static_cast<int>(p.key_heads),
              key_head = key_head_index % static_cast<int>(p.key_heads);
    const int count_of_keys =
        static_cast<int>(p.keys - static_cast<int64_t>(group) * kSquareSide);  // or more
    const int shared = static_cast<int>(p.heads / p.key_heads);
    const uint32_t valid = valid_keys(p, item, group);

    const ScoreScale scale(p.scale);
    const OwnRows<Products, D, Shape::kKept> key({p.key, p.keys, item, key_head}, group, valid,
                                                 scale.is_negative);
    const OwnRows<Products, D, Shape::kKept> value({p.value, p.keys, item, key_head}, group, valid, false);
    float key_sums[D / 8][4] = {}, value_sums[D / 8][4] = {};

#pragma unroll 1
    for (int head = key_head * shared; head < (key_head + 1) * shared; ++head) {
      const int head_index = item * static_cast<int>(p.heads) + head;
      const int64_t list = static_cast<int64_t>(head_index) * key_groups + group;
      const int count = __ldg(p.squares_by_keys.count + list);
      const HeadRows query_rows(p.query, p.queries, item, head),
          grad_rows(p.grad_output, p.queries, item, head);
      TokensByRow<Stored, D, Shape::kAhead> queries(query_rows), grads(grad_rows);
      TokensDown<Stored, D, false> queries_down(query_rows), grads_down(grad_rows);
      const char* const terms_at =
          reinterpret_cast<const char*>(terms_of_group(p, head_index, 0) + lane_id() % 4 * 8);
      const PairDropout dropout(p, drop_limit, head_index);
      SquareWalk walk(p.squares_by_keys.groups + __ldg(p.squares_by_keys.begin + list), count,
                      [&](int query_group) { return visit_by_key(p, valid, query_group, group); });
      Visit next{};
      if (Shape::kAhead && count > 0) {
        next = walk.take(0);
        queries.load(next.group);
        grads.load(next.group);
      }
#pragma unroll 1
      for (int n = 0; n < count; ++n) {
        const bool has_next = Shape::kAhead && n + 1 < count;
        const Visit visit = Shape::kAhead ? next : walk.take(n);
        if (has_next) next = walk.take(n + 1);
        uint32_t terms[8];  // of this lane's queries: l log2(e), then ubar
        const auto read_terms = [&] {
          const char* const from = terms_at + static_cast<uint64_t>(visit.group) * (kTermsOfGroup * 4);
          read_words<4>(terms, from);
          read_words<4>(terms + 4, from + 16);
        };
        if constexpr (Shape::kAhead) read_terms();
        const uint32_t kept = dropout.kept(visit.group, group);
        float s[2][4], u[2][4];
        if constexpr (!Shape::kAhead) queries.load(visit.group);
        form_scores(s, key, queries);
        if (has_next) queries.load(next.group);
        if constexpr (!Shape::kAhead) grads.load(visit.group);
        form_scores(u, value, grads);
        if constexpr (!Shape::kAhead) read_terms();
        // The same rows as before, from the first-level cache.
        grads_down.load(visit.group, visit.tokens());
        if (has_next) grads.load(next.group);
        if (!visit.whole()) {
#pragma unroll
          for (int block = 0; block < 2; ++block)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              if (!pair_by_key(visit, valid, block, e)) s[block][e] = -INFINITY, u[block][e] = 0;
        }
#pragma unroll
        for (int block = 0; block < 2; ++block)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            s[block][e] =
                exp2_fast(fmaf(s[block][e], scale.factor, -__uint_as_float(terms[2 * block + e % 2])));
        const auto ubar = [&](int block, int e) { return __uint_as_float(terms[4 + 2 * block + e % 2]); };
        if (dropout.drops()) {
          dropout.by_key(kept, [&](int block, int e, float factor) {
            u[block][e] = s[block][e] * (u[block][e] * factor - ubar(block, e));
            s[block][e] *= factor;
          });
        } else {
#pragma unroll
          for (int block = 0; block < 2; ++block)
#pragma unroll
            for (int e = 0; e < 4; ++e) u[block][e] = s[block][e] * (u[block][e] - ubar(block, e));
        }
        add_rows<Products, D>(value_sums, s, grads_down);
        queries_down.load(visit.group, visit.tokens());
        add_rows<Products, D>(key_sums, u, queries_down);
      }
    }
    const int64_t first = static_cast<int64_t>(key_head_index) * p.keys + group * kSquareSide;
    const float key_factor[2] = {p.scale, p.scale}, one[2] = {1, 1};
    store_rows<Stored, D>(p.grad_key + first * D, key_sums, key_factor, count_of_keys);
    store_rows<Stored, D>(p.grad_value + first * D, value_sums, one, count_of_keys);
  }
}

}  // namespace
}  // namespace edgewise::kernels::cuda
