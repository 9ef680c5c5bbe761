// SBM edges of rows whose edges are rare, at a cost that follows their number: exact thinning of a Poisson
// process (docs/math.md, "Laws").
//
// Row i has the bound U_i = sum_c q_ic max_j t_jc + exploration of its probabilities p_ij. Points fall on the
// keys at the rate kappa U_i each: gaps are exponential, so they come in the order of the keys. A point takes
// cluster c with probability q_ic max_j t_jc / U_i, stays with probability t_jc / max_j t_jc, and one of the
// exploration always stays: what stays hits pair (i, j) at the rate kappa p_ij, so a pair is hit with
// probability 1 - exp(-kappa p_ij), pairs independently. Under the Poisson law kappa = 1 and that is all.
// Bernoulli(p) has kappa = -log(1 - U) / U, so that a hit is at least as likely as p, and keeps a hit pair
// with probability p / (1 - exp(-kappa p)), which lies between 1 / kappa and 1: the sum p over all clusters
// is formed only for the few pairs whose number falls in between.
//
// A block owns 128 rows and decides by itself: where its bounds are too large for this to pay it leaves the
// rows to tile_sample.cu, which runs afterwards.
#include "kernels/bit_tiles.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/sample/key_tops.cuh"
#include "kernels/cuda/sample/thin_rows.cuh"

namespace edgewise::kernels::cuda {
namespace {

template <typename T, int C, bool kPoisson>
__global__ void __launch_bounds__(kThinThreads, 2)
    thin_sample(const __grid_constant__ TileSampleParams p, const __grid_constant__ Sides<T> sides) {
  __shared__ float tops[C], sums[kThinWarps][C], bounds[kThinRows];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head_index = blockIdx.y, item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  const int first = blockIdx.x * kThinRows, rows = min(kThinRows, static_cast<int>(p.shape.queries) - first);
  const int keys = p.shape.keys;
  const T* const query_rows = sides.query.head(item, head);
  for (int c = threadIdx.x; c < C; c += kThinThreads)
    tops[c] = p.thin.key_tops[static_cast<int64_t>(head_index) * C + c];
  __syncthreads();

  const bool thin = block_thins<T, C>(p, sides, head_index, first, tops, bounds);
  if (threadIdx.x == 0) {
    p.thin.blocks[static_cast<int64_t>(head_index) * gridDim.x + blockIdx.x] = thin;
    if (!thin) atomicAdd(p.thin.direct_blocks + head_index, 1u);
  }
  if (!thin) return;

  const int column_tiles = p.shape.column_tiles(), row_tiles = p.shape.row_tiles();
  uint32_t* const strips =
      p.tiles + (static_cast<int64_t>(head_index) * row_tiles + blockIdx.x * (kThinRows / 64)) *
                    column_tiles * kTileWords;
  const int words = min(kThinRows / 64, row_tiles - static_cast<int>(blockIdx.x) * (kThinRows / 64)) *
                    column_tiles * kTileWords;
  for (int n = threadIdx.x; n < words / 4; n += kThinThreads) reinterpret_cast<uint4*>(strips)[n] = uint4{};
  __syncthreads();

  __shared__ ThinRow thins[kThinRows];
  const int fraction = place_fraction(keys);
  if (threadIdx.x < kThinRows) thins[threadIdx.x] = ThinRow::of<kPoisson>(bounds[threadIdx.x], fraction);
  __syncthreads();

  unsigned count = 0;
  for (int r = warp; r < rows; r += kThinWarps) {
    if (!(bounds[r] > 0)) continue;
    const int row = first + r;
    float q[C / 32];
    load_membership<T, C>(query_rows + row * sides.query.row_stride, lane, q);
    uint32_t* const strip = strips + static_cast<int64_t>(r / 64) * column_tiles * kTileWords +
                            r % 64 / 16 * 32 + r % 8 * 4;  // of the row
    const int shift = 7 + r % 16 / 8 * 16;
    draw_thin_row<T, C, kPoisson>(p, sides, head_index, row, lane, q, tops, sums[warp], thins[r], fraction,
                                  [&](bool edge, int column) {
                                    if (edge)  // tile_word and tile_bit of (r, column)
                                      atomicOr(strip + column / 64 * kTileWords + column % 8 / 2,
                                               1u << (shift + column % 2 * 8 - column % 64 / 8));
                                    count += __popc(__ballot_sync(~0u, edge));
                                  });
  }
  if (lane == 0 && count)
    atomicAdd(reinterpret_cast<unsigned long long*>(p.edge_counts + head_index),
              static_cast<unsigned long long>(count));
}

template <int C, typename T>
cudaError_t launch_for(const TileSampleParams& p, const Sides<T>& sides, cudaStream_t stream) {
  launch_key_tops<T, C>(p, sides, stream);
  const dim3 grid(static_cast<unsigned>((p.shape.queries + kThinRows - 1) / kThinRows),
                  static_cast<unsigned>(p.shape.batch * p.shape.heads));
  launch(p.poisson ? thin_sample<T, C, true> : thin_sample<T, C, false>, grid, kThinThreads, stream, p,
         sides);
  return cudaGetLastError();
}

}  // namespace

bool thin_sample_takes(int64_t clusters) {
  return clusters == 32 || clusters == 64 || clusters == 128 || clusters == 256;
}

int launch_thin_sample(const TileSampleParams& p, Stream stream) {
  if (p.shape.words() == 0) return cudaSuccess;
  return with_memberships(p, [&](auto clusters, const auto& sides) {
    return launch_for<decltype(clusters)::kCount>(p, sides, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace edgewise::kernels::cuda
