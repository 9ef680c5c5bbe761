// Attention over squares, forward: a warp walks through the squares of a group of 16 queries.
//
//   s = scale q k,   o_i = sum_j exp(s_ij - l_i) v_j,   l_i = log sum_j exp(s_ij)
//
// What is taken out of the exponent follows the row's maximum only when that has left it far behind. A weight
// that has grown large tells it, so nobody looks for a maximum before; then the row's sums are scaled down
// and the square's weights formed anew.
#pragma once

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/squares/square_pipe.cuh"
#include "kernels/cuda/squares/square_rows.cuh"

namespace edgewise::kernels::cuda {
namespace {

// Weights of a lane's pairs of a row add up to no more than this.
constexpr float kMostWeight = 0x1p18f;

// Threads of a block, of which a multiprocessor has one, by registers and shared memory. Its warps have
// neighbouring rows.
template <typename Products, int D>
struct ForwardShape {
  static constexpr int kBytes = D * static_cast<int>(sizeof(typename Products::Stored));
  static constexpr bool kKept = kBytes <= 256;
  static constexpr int kThreads = kBytes <= 64 ? 640 : kBytes == 128 ? 512 : kBytes == 256 ? 256 : 128;
  static constexpr int kStages = kBytes <= 128 ? 3 : 2;
  using Own = OwnRows<Products, D, kKept>;
  using Pipe = SquarePipe<kBytes, 0, kStages>;
  static constexpr int kWarpBytes = Pipe::kPipeBytes + Own::kTileBytes;
};

template <typename Products, int D>
__global__ void __launch_bounds__(ForwardShape<Products, D>::kThreads, 1)
    square_forward(const __grid_constant__ SquareForwardParams<typename Products::Stored> p,
                   uint32_t drop_limit) {
  using Shape = ForwardShape<Products, D>;
  using Stored = typename Products::Stored;
  const int query_groups = static_cast<int>(square_groups(p.queries));
  const uint32_t memory = warp_memory(Shape::kWarpBytes);
  const TilePlaces<Shape::kBytes> places;
  RowQueue queue(p.taken, static_cast<int>(p.batch * p.heads * query_groups));
#pragma unroll 1
  for (int row = queue.next(); row >= 0; row = queue.next()) {
    const auto [item, head, head_index, key_head, group] = QueryPlace(p, row);
    const int queries = static_cast<int>(p.queries - static_cast<int64_t>(group) * kSquareSide);  // or more
    const int count = __ldg(p.squares.count + row);

    const ScoreScale scale(p.scale);
    const typename Shape::Own query({p.query, item, head}, group, first_bits(queries), scale.is_negative,
                                    memory + Shape::Pipe::kPipeBytes);
    const PairDropout dropout(p, drop_limit, head_index);
    SquareWalk walk(p.squares.groups + __ldg(p.squares.begin + row), count,
                    [&](int key_group) { return visit_by_query(p, item, group, key_group); });
    typename Shape::Pipe pipe(memory, {p.key, item, key_head}, {p.value, item, key_head});
    pipe.start(walk, count);

    float out[D / 8][4] = {}, sum[2] = {};
    float taken_out[2] = {-0x1.FFFFFEp127f, -0x1.FFFFFEp127f};  // of rows g and g + 8, times log2(e)
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
      const Visit visit = pipe.take(walk, count);
      const uint32_t kept = dropout.kept(group, visit.group);
      float s[2][4];
      form_scores(s, query, pipe.first(), places);
      if (!visit.whole()) {
#pragma unroll
        for (int block = 0; block < 2; ++block)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (!pair_by_query(visit, block, e)) s[block][e] = -INFINITY;
      }
      float weights[2][4], added[2];
      const auto form_weights = [&] {
        added[0] = added[1] = 0;
#pragma unroll
        for (int block = 0; block < 2; ++block)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            weights[block][e] = exp2_fast(fmaf(s[block][e], scale.factor, -taken_out[e / 2]));
            added[e / 2] += weights[block][e];
          }
      };
      form_weights();
      if (__any_sync(kEveryLane, added[0] > kMostWeight || added[1] > kMostWeight)) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // Row by row: a row's bits must not depend on the other queries of its group, which may be later
          // ones.
          const float most = row_max(added[half]),
                      top = row_max(fmaxf(fmaxf(s[0][2 * half], s[0][2 * half + 1]),
                                          fmaxf(s[1][2 * half], s[1][2 * half + 1]))) *
                            scale.factor;
          const float now = most > kMostWeight ? top : taken_out[half];
          const float factor = exp2_fast(taken_out[half] - now);
          taken_out[half] = now;
          sum[half] *= factor;
#pragma unroll
          for (int b = 0; b < D / 8; ++b) out[b][2 * half] *= factor, out[b][2 * half + 1] *= factor;
        }
        form_weights();
      }
      sum[0] += added[0], sum[1] += added[1];
      if (dropout.drops())
        dropout.by_query(kept, [&](int block, int e, float factor) { weights[block][e] *= factor; });
      add_rows<Products, D>(out, weights, pipe.second(), places);
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
  using Shape = ForwardShape<Products, D>;
  const unsigned threads = square_threads(rows, Shape::kThreads);
  if (const cudaError_t error =
          launch_with_shared(square_forward<Products, D>, square_blocks(rows, threads), threads,
                             threads / 32 * Shape::kWarpBytes, stream, p, dropout_limit(p.dropout_p)))
    return error;
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
