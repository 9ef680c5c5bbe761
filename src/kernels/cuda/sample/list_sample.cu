// SBM edges as lists, by thinning (thin_sample.cu has the law), at a cost and in memory that follow their
// number. Blocks of rows for which thinning does not pay are drawn pair by pair, as the direct sampler does.
// Decisions and random numbers are those of thin_sample.cu and tile_sample.cu: the edges are the same,
// however they are kept.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/lists/list_params.h"
#include "kernels/cuda/sample/exact_pairs.cuh"
#include "kernels/cuda/sample/key_tops.cuh"
#include "kernels/cuda/sample/thin_rows.cuh"

namespace edgewise::kernels::cuda {
namespace {

// A block owns 128 rows, a warp one at a time.
template <typename T, int C, bool kPoisson>
__global__ void __launch_bounds__(kThinThreads, 2)
    list_sample(const __grid_constant__ ListSampleParams params, const __grid_constant__ Sides<T> sides) {
  const TileSampleParams& p = params.draw;
  __shared__ float tops[C], sums[kThinWarps][C], bounds[kThinRows];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head_index = blockIdx.y, item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  const int first = blockIdx.x * kThinRows, keys = p.shape.keys, fraction = place_fraction(keys);
  const int end_row = min(first + kThinRows, static_cast<int>(p.shape.queries));
  const T* const query_rows = sides.query.head(item, head);
  for (int c = threadIdx.x; c < C; c += kThinThreads)
    tops[c] = p.thin.key_tops[static_cast<int64_t>(head_index) * C + c];
  __syncthreads();

  const bool thin = block_thins<T, C>(p, sides, head_index, first, tops, bounds);

  for (int row = first + warp; row < end_row; row += kThinWarps) {
    const int64_t index = static_cast<int64_t>(head_index) * p.shape.queries + row;
    int32_t* const out =
        params.edges.columns ? params.edges.columns + params.edges.row_offsets[index] : nullptr;
    int count = 0;
    const auto emit = [&](bool edge, int column) {
      const unsigned edges = __ballot_sync(~0u, edge);
      if (out && edge) out[count + __popc(edges & ((1u << lane) - 1))] = column;
      count += __popc(edges);
    };
    const float bound = bounds[row - first];
    if (thin && bound > 0) {
      float q[C / 32];
      load_membership<T, C>(query_rows + row * sides.query.row_stride, lane, q);
      draw_thin_row<T, C, kPoisson>(p, sides, head_index, row, lane, q, tops, sums[warp],
                                    ThinRow::of<kPoisson>(bound, fraction), fraction, emit);
    } else if (!thin && !(bound < 0)) {
      const int end = p.is_causal ? min(row + 1, keys) : keys;
      for (int column = lane; column - lane < end; column += 32)
        emit(column < end && !(p.key_mask && !p.key_mask[static_cast<int64_t>(item) * keys + column]) &&
                 exact_edge(p, head_index, row, column),
             column);
    }
    if (!out && lane == 0) params.edges.degrees[index] = count;
  }
}

template <int C, typename T>
cudaError_t launch_for(const ListSampleParams& p, const Sides<T>& sides, cudaStream_t stream) {
  const TileShape& shape = p.draw.shape;
  // The tops stay from the first run.
  if (!p.edges.columns) launch_key_tops<T, C>(p.draw, sides, stream);
  const dim3 grid(static_cast<unsigned>((shape.queries + kThinRows - 1) / kThinRows),
                  static_cast<unsigned>(shape.batch * shape.heads));
  launch(p.draw.poisson ? list_sample<T, C, true> : list_sample<T, C, false>, grid, kThinThreads, stream, p,
         sides);
  return cudaGetLastError();
}

}  // namespace

int launch_list_sample(const ListSampleParams& p, Stream stream) {
  if (p.draw.shape.words() == 0) return cudaSuccess;
  if (p.draw.shape.keys > kMostListKeys) return cudaErrorInvalidValue;
  return with_memberships(p.draw, [&](auto clusters, const auto& sides) {
    return launch_for<decltype(clusters)::kCount>(p, sides, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace edgewise::kernels::cuda
