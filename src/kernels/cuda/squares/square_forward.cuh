// Attention over squares, forward: a warp walks through the squares of a group of 16 queries.
//
//   s = scale q k,   o_i = sum_j exp(s_ij - l_i) v_j,   l_i = log sum_j exp(s_ij)
//
// What is taken out of the exponent follows the row's maximum only when that has left it far behind, so sums
// are rarely formed anew and lanes rarely meet. Keys of the next square are asked for as soon as those of
// this one have been multiplied, and so are values: between them lies the other half of a visit.
#pragma once

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/squares/square_rows.cuh"
#include "kernels/cuda/squares/square_visits.cuh"

namespace edgewise::kernels::cuda {
namespace {

// By how much (a power of 2) a score may lie above what is taken out of the exponent.
constexpr float kHeadroom = 16;

// Threads of a block, of which a multiprocessor has one, by registers. Its warps walk through neighbouring
// rows at about the same pace, so that much of what they read is in the first-level cache already.
template <typename Products, int D>
struct ForwardShape {
  static constexpr int kBytes = D * static_cast<int>(sizeof(typename Products::Stored));
  static constexpr bool kKept = kBytes <= 256, kAhead = kBytes <= 128;
  static constexpr int kThreads = kBytes <= 64 ? 640 : kBytes == 128 ? 512 : 256;
};

template <typename Products, int D>
__global__ void __launch_bounds__(ForwardShape<Products, D>::kThreads, 1)
    square_forward(const __grid_constant__ SquareForwardParams<typename Products::Stored> p,
                   uint32_t drop_limit) {
  using Shape = ForwardShape<Products, D>;
  using Stored = typename Products::Stored;
  const int query_groups = static_cast<int>(square_groups(p.queries));
  RowQueue queue(p.taken, static_cast<int>(p.batch * p.heads * query_groups));
#pragma unroll 1
  for (int row = queue.next(); row >= 0; row = queue.next()) {
    const int head_index = row / query_groups, group = row % query_groups;
    const int item = head_index / static_cast<int>(p.heads), head = head_index % static_cast<int>(p.heads);
    const int key_head = head / static_cast<int>(p.heads / p.key_heads);
    const int queries = static_cast<int>(p.queries - static_cast<int64_t>(group) * kSquareSide);  // or more
    const int count = __ldg(p.squares.count + row);

    const ScoreScale scale(p.scale);
    const OwnRows<Products, D, Shape::kKept> query({p.query, p.queries, item, head}, group,
                                                   first_bits(queries), scale.is_negative);
    const PairDropout dropout(p, drop_limit, head_index);
    SquareWalk walk(p.squares.groups + __ldg(p.squares.begin + row), count,
                    [&](int key_group) { return visit_by_query(p, item, group, key_group); });

    float out[D / 8][4] = {}, sum[2] = {};
    float taken_out[2] = {-0x1.FFFFFEp127f, -0x1.FFFFFEp127f};  // of rows g and g + 8, times log2(e)
    TokensByRow<Stored, D, Shape::kAhead> keys({p.key, p.keys, item, key_head});
    TokensDown<Stored, D, Shape::kAhead> values({p.value, p.keys, item, key_head});
    Visit next{};
    if (Shape::kAhead && count > 0) {
      next = walk.take(0);
      keys.load(next.group);
      values.load(next.group, next.tokens());
    }
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
      const bool has_next = Shape::kAhead && n + 1 < count;
      const Visit visit = Shape::kAhead ? next : walk.take(n);
      if constexpr (!Shape::kAhead) keys.load(visit.group);
      const uint32_t kept = dropout.kept(group, visit.group);
      float s[2][4];
      form_scores(s, query, keys);
      if (has_next) {
        next = walk.take(n + 1);
        keys.load(next.group);
      }
      if (!visit.whole()) {
#pragma unroll
        for (int block = 0; block < 2; ++block)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (!pair_by_query(visit, block, e)) s[block][e] = -INFINITY;
      }
      float top[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        top[half] =
            fmaf(scale.factor,
                 fmaxf(fmaxf(s[0][2 * half], s[0][2 * half + 1]), fmaxf(s[1][2 * half], s[1][2 * half + 1])),
                 -kHeadroom);
      if (__any_sync(kEveryLane, top[0] > taken_out[0] || top[1] > taken_out[1])) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // Row by row: a row's bits must not depend on the other queries of its group, which may be later
          // ones.
          const float high = row_max(top[half]);
          const float now = high > taken_out[half] ? high + kHeadroom : taken_out[half];
          const float factor = exp2_fast(taken_out[half] - now);
          taken_out[half] = now;
          sum[half] *= factor;
#pragma unroll
          for (int b = 0; b < D / 8; ++b) out[b][2 * half] *= factor, out[b][2 * half + 1] *= factor;
        }
      }
#pragma unroll
      for (int block = 0; block < 2; ++block)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[block][e] = exp2_fast(fmaf(s[block][e], scale.factor, -taken_out[e / 2]));
          sum[e / 2] += s[block][e];
        }
      if (dropout.drops())
        dropout.by_query(kept, [&](int block, int e, float factor) { s[block][e] *= factor; });
      if constexpr (!Shape::kAhead) values.load(visit.group, visit.tokens());
      add_rows<Products, D>(out, s, values);
      if (has_next) values.load(next.group, next.tokens());
    }

    float share[2];
    const int64_t first = static_cast<int64_t>(head_index) * p.queries + group * kSquareSide;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = row_sum(sum[half]);
      const int r = lane_id() / 4 + 8 * half;
      const bool is_empty = total == 0;
      share[half] = is_empty ? 0.0f : 1 / total;
      if (lane_id() % 4 == 0 && r < queries)
        p.lse[first + r] = is_empty ? -INFINITY : fmaf(taken_out[half], 0x1.62e430p-1f, logf(total));
    }
    store_rows<Stored, D>(p.output + first * D, out, share, queries);
  }
}

template <typename Products, int D>
cudaError_t start_forward(const SquareForwardParams<typename Products::Stored>& p, cudaStream_t stream) {
  const int64_t rows = p.batch * p.heads * square_groups(p.queries);
  if (rows == 0) return cudaSuccess;
  const unsigned threads = square_threads(rows, ForwardShape<Products, D>::kThreads);
  launch(square_forward<Products, D>, square_blocks(rows, threads), threads, stream, p,
         dropout_limit(p.dropout_p));
  return cudaGetLastError();
}

template <typename Products>
cudaError_t forward_of_dim(const SquareForwardParams<typename Products::Stored>& p, cudaStream_t stream) {
  switch (p.head_dim) {
    case 16:
      return start_forward<Products, 16>(p, stream);
    case 32:
      return start_forward<Products, 32>(p, stream);
    case 64:
      return start_forward<Products, 64>(p, stream);
    case 128:
      return start_forward<Products, 128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace
}  // namespace edgewise::kernels::cuda
