// Attention over squares, backward by keys: a warp walks through the squares of a group of 16 keys, head by
// head of those that read these keys. With a and dL/ds as in the pass by queries:
//
//   dk_j = scale sum_i dL/ds_ij q_i,   dv_j = sum_i a_ij g_i
//
// Products are transposed: rows are keys, columns queries.
#pragma once

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/squares/square_pipe.cuh"
#include "kernels/cuda/squares/square_rows.cuh"
#include "kernels/cuda/squares/square_terms.cuh"

namespace edgewise::kernels::cuda {
namespace {

template <typename Products, int D>
struct KeyShape {
  static constexpr int kBytes = D * static_cast<int>(sizeof(typename Products::Stored));
  static constexpr bool kKept = kBytes <= 128;
  static constexpr int kThreads = kBytes <= 64 ? 512 : kBytes == 128 ? 384 : kBytes == 256 ? 256 : 128;
  static constexpr int kStages = kBytes <= 128 ? 3 : 2;
  using Own = OwnRows<Products, D, kKept>;
  using Pipe = SquarePipe<kBytes, kTermsOfGroup * 4, kStages>;
  static constexpr int kWarpBytes = Pipe::kPipeBytes + 2 * Own::kTileBytes;
};

template <typename Products, int D>
__global__ void __launch_bounds__(KeyShape<Products, D>::kThreads, 1)
    square_backward_by_keys(const __grid_constant__ SquareBackwardParams<typename Products::Stored> p,
                            uint32_t drop_limit) {
  using Shape = KeyShape<Products, D>;
  using Stored = typename Products::Stored;
  const int key_groups = static_cast<int>(square_groups(p.keys));
  const uint32_t memory = warp_memory(Shape::kWarpBytes);
  const TilePlaces<Shape::kBytes> places;
  RowQueue queue(p.taken + kMostSquareBlocks, static_cast<int>(p.batch * p.key_heads * key_groups));
#pragma unroll 1
  for (int row = queue.next(); row >= 0; row = queue.next()) {
    const int key_head_index = p.key_groups.quotient(row),
              group = p.key_groups.remainder(row, key_head_index);
    const int item = p.by_key_heads.quotient(key_head_index),
              key_head = p.by_key_heads.remainder(key_head_index, item);
    const int count_of_keys =
        static_cast<int>(p.keys - static_cast<int64_t>(group) * kSquareSide);  // or more
    const int shared = p.by_key_heads.quotient(static_cast<int>(p.heads));
    const uint32_t valid = valid_keys(p, item, group);

    const ScoreScale scale(p.scale);
    const uint32_t own = memory + Shape::Pipe::kPipeBytes;
    const typename Shape::Own key({p.key, item, key_head}, group, valid, scale.is_negative, own),
        value({p.value, item, key_head}, group, valid, false, own + Shape::Own::kTileBytes);
    float key_sums[D / 8][4] = {}, value_sums[D / 8][4] = {};

#pragma unroll 1
    for (int head = key_head * shared; head < (key_head + 1) * shared; ++head) {
      const int head_index = item * static_cast<int>(p.heads) + head;
      const int64_t list = static_cast<int64_t>(head_index) * key_groups + group;
      const int count = __ldg(p.squares_by_keys.count + list);
      const PairDropout dropout(p, drop_limit, head_index);
      SquareWalk walk(p.squares_by_keys.groups + __ldg(p.squares_by_keys.begin + list), count,
                      [&](int query_group) { return visit_by_key(p, valid, query_group, group); });
      typename Shape::Pipe pipe(memory, {p.query, item, head}, {p.grad_output, item, head},
                                reinterpret_cast<const char*>(terms_of_group(p, head_index, 0)));
      pipe.start(walk, count);
#pragma unroll 1
      for (int n = 0; n < count; ++n) {
        const Visit visit = pipe.take(walk, count);
        const uint32_t kept = dropout.kept(visit.group, group);
        float s[2][4], u[2][4];
        form_scores(s, key, pipe.first(), places);
        form_scores(u, value, pipe.second(), places);
        const uint32_t terms_at = pipe.more() + 32 * (lane_id() % 4);
        const uint4 lse = load_four_words(terms_at), products = load_four_words(terms_at + 16);
        const uint32_t terms[8] = {lse.x,      lse.y,      lse.z,      lse.w,
                                   products.x, products.y, products.z, products.w};
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
        add_rows<Products, D>(value_sums, s, pipe.second(), places);
        add_rows<Products, D>(key_sums, u, pipe.first(), places);
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
