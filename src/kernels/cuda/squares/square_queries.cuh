// Attention over squares, backward by queries: a warp walks through the squares of a group of 16 queries.
// With a = exp(s - l), u = g v and ubar = g o:
//
//   dL/ds = a (u - ubar),   dq_i = scale sum_j dL/ds_ij k_j,   and a number for each square
//
// and then through the group's probes, for a number each.
#pragma once

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/squares/square_credit.cuh"
#include "kernels/cuda/squares/square_pipe.cuh"
#include "kernels/cuda/squares/square_rows.cuh"

namespace edgewise::kernels::cuda {
namespace {

template <typename Products, int D, bool kLeaveOneOut = false>
struct QueryShape {
  static constexpr int kBytes = D * static_cast<int>(sizeof(typename Products::Stored));
  static constexpr bool kKept = kBytes <= 256;
  static constexpr int kThreads = kBytes <= 64   ? 512
                                  : kBytes > 256 ? 128
                                  : kBytes > 128 ? 256
                                  : kLeaveOneOut ? 384
                                                 : 512;
  static constexpr int kStages = kBytes <= 128 ? 3 : 2;
  using Own = OwnRows<Products, D, kKept>;
  using Pipe = SquarePipe<kBytes, 0, kStages>;
  static constexpr int kWarpBytes = Pipe::kPipeBytes + 2 * Own::kTileBytes;
};

__device__ inline void clear_absent(const Visit& visit, float (&s)[2][4], float (&u)[2][4]) {
  if (visit.whole()) return;
#pragma unroll
  for (int block = 0; block < 2; ++block)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (!pair_by_query(visit, block, e)) s[block][e] = -INFINITY, u[block][e] = 0;
}

template <typename Products, int D, bool kLeaveOneOut>
__global__ void __launch_bounds__(QueryShape<Products, D, kLeaveOneOut>::kThreads, 1)
    square_backward_by_queries(const __grid_constant__ SquareBackwardParams<typename Products::Stored> p,
                               uint32_t drop_limit) {
  using Shape = QueryShape<Products, D, kLeaveOneOut>;
  using Stored = typename Products::Stored;
  const int query_groups = static_cast<int>(square_groups(p.queries));
  const uint32_t memory = warp_memory(Shape::kWarpBytes);
  const TilePlaces<Shape::kBytes> places;
  RowQueue queue(p.taken, static_cast<int>(p.batch * p.heads * query_groups));
#pragma unroll 1
  for (int row = queue.next(); row >= 0; row = queue.next()) {
    const auto [item, head, head_index, key_head, group] = QueryPlace(p, row);
    const int queries = static_cast<int>(p.queries - static_cast<int64_t>(group) * kSquareSide);  // or more
    const int count = __ldg(p.squares.count + row), begin = __ldg(p.squares.begin + row);

    const ScoreScale scale(p.scale);
    const HeadRows grad_rows(p.grad_output, item, head);
    const uint32_t own = memory + Shape::Pipe::kPipeBytes;
    const typename Shape::Own query({p.query, item, head}, group, first_bits(queries), scale.is_negative,
                                    own),
        grad(grad_rows, group, first_bits(queries), false, own + Shape::Own::kTileBytes);
    const PairDropout dropout(p, drop_limit, head_index);
    SquareWalk walk(p.squares.groups + begin, count,
                    [&](int key_group) { return visit_by_query(p, item, group, key_group); });
    typename Shape::Pipe pipe(memory, {p.key, item, key_head}, {p.value, item, key_head});
    pipe.start(walk, count);
    const RowTerms terms = form_terms<Products, D>(p, head_index, group, grad_rows);
    store_terms(terms_of_group(p, head_index, group), terms);

    float sums[D / 8][4] = {};
    LeaveOneOut left_out;
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
      const Visit visit = pipe.take(walk, count);
      const uint32_t kept = dropout.kept(group, visit.group);
      float s[2][4], u[2][4];
      form_scores(s, query, pipe.first(), places);
      form_scores(u, grad, pipe.second(), places);
      clear_absent(visit, s, u);
      if (dropout.drops())
        dropout.by_query(kept, [&](int block, int e, float factor) { u[block][e] *= factor; });
      float shares[2] = {}, effects[2] = {};
      const bool is_paper = !kLeaveOneOut && p.rule == CreditRule::kPaper;
#pragma unroll
      for (int block = 0; block < 2; ++block)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float weight = exp2_fast(fmaf(s[block][e], scale.factor, -terms.lse[e / 2]));
          u[block][e] = weight * (u[block][e] - terms.ubar[e / 2]);
          if constexpr (kLeaveOneOut) shares[e / 2] += weight;
          float effect = u[block][e];
          if (is_paper) effect = effect == 0 ? 0 : effect * s[block][e];
          effects[e / 2] += effect;
        }
      if constexpr (kLeaveOneOut) {
        const float credit = left_out.take(begin + n, shares, effects);
        if (lane_id() == 0) p.credit[begin + n] = credit;
      } else if (p.rule != CreditRule::kNone) {
        const float credit = warp_sum(effects[0] + effects[1]);
        if (lane_id() == 0) p.credit[begin + n] = is_paper ? credit * fabsf(p.scale) : credit;
      }
      add_rows<Products, D>(sums, u, pipe.first(), places);
    }
    if constexpr (kLeaveOneOut)
      left_out.template finish<Products, D>(p, drop_limit, {item, head, head_index, group}, terms);
    const float factor[2] = {p.scale, p.scale};
    const int64_t first = static_cast<int64_t>(head_index) * p.queries + group * kSquareSide;
    store_rows<Stored, D>(p.grad_query + first * D, sums, factor, queries);

    // The same walk over the probes, without dropout: they are absent.
    if (!p.probes.groups) continue;
    const int probes = __ldg(p.probes.count + row), first_probe = __ldg(p.probes.begin + row);
    SquareWalk probe_walk(p.probes.groups + first_probe, probes,
                          [&](int key_group) { return visit_by_query(p, item, group, key_group); });
    pipe.start(probe_walk, probes);
#pragma unroll 1
    for (int n = 0; n < probes; ++n) {
      const Visit visit = pipe.take(probe_walk, probes);
      float s[2][4], u[2][4];
      form_scores(s, query, pipe.first(), places);
      form_scores(u, grad, pipe.second(), places);
      clear_absent(visit, s, u);
      const float credit = probe_sum(s, u, scale.factor, terms, queries);
      if (lane_id() == 0) p.probe_credit[first_probe + n] = credit;
    }
  }
}

}  // namespace
}  // namespace edgewise::kernels::cuda
