// Attention over bit tiles in fp32, forward: the equations of tile_forward.cu, with products of tf32 operands
// (tf32_products.cuh). A warp owns 16 or 32 queries, a block of four warps 64 or 128; keys and values pass
// through a ring of half tiles in shared memory. Exponentials are summed as they are, as there, and rows that
// leave the range are computed again, one by one.
#include "kernels/cuda/device/tf32_products.cuh"
#include "kernels/cuda/lists/attend_row.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896f;
constexpr int kThreads = 128, kStages = 3;

template <int D>
struct Shape {
  // Groups of 16 queries to a warp. Two share what is read and split of the keys; registers hold them so far.
  static constexpr int kM = D <= 64 ? 2 : 1;
  static constexpr int kRows = kThreads / 32 * 16 * kM;
  static constexpr int kSide = kHalfTile * padded_row(D), kPlace = 2 * kSide;  // floats: keys, then values
  static constexpr int kBytes = kStages * kPlace * 4;
};

template <Tf32 kProducts, int D>
__global__ void __launch_bounds__(kThreads, 2)
    float_tile_forward(const __grid_constant__ TileForwardParams<float> p) {
  using Own = Shape<D>;
  constexpr int kM = Own::kM, kRows = Own::kRows;
  extern __shared__ float4 raw[];
  float* const places = reinterpret_cast<float*>(raw);
  __shared__ uint16_t list[kMostListedTiles];

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head_index = blockIdx.y, item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  if (p.left_out.has(head_index)) return;
  const int queries = p.shape.queries, keys = p.shape.keys;
  const int row_tiles = p.shape.row_tiles(), column_tiles = p.shape.column_tiles();
  const int first_row = blockIdx.x * kRows + warp * 16 * kM;
  const float* const query = p.query.head(item, head);
  const float* const key = p.key.head(item, head);
  const float* const value = p.value.head(item, head);

  // The tiles of 16 queries m, and this lane's words of them in the tile of `visit`.
  const auto strip = [&](int m) {
    return (static_cast<int64_t>(head_index) * row_tiles + (first_row / 16 + m) / 4) * column_tiles *
           kTileWords;
  };
  const HalfTiles walk(p.used, head_index, blockIdx.x * (kRows / 64), kRows / 64, row_tiles, keys, list);
  const auto load_words = [&](const uint32_t* plane, int visit, uint32_t(&words)[kM]) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const bool there = plane && visit < walk.visits && first_row + 16 * m < queries;
      words[m] = there ? __ldg(plane + strip(m) + static_cast<int64_t>(walk.tile(visit)) * kTileWords +
                               (first_row / 16 + m) % 4 * 32 + lane)
                       : 0;
    }
  };
  const auto load_half = [&](int half) {
    if (half < walk.halves) {
      float* const to = places + half % kStages * Own::kPlace;
      const int first = walk.first_token(half);
      copy_half_tile<D, kThreads>(to, key, p.key.row_stride, first, keys);
      copy_half_tile<D, kThreads>(to + Own::kSide, value, p.value.row_stride, first, keys);
    }
    copies_commit();
  };
#pragma unroll
  for (int half = 0; half < kStages - 1; ++half) load_half(half);
  uint32_t words[kM], dropped[kM], next_words[kM], next_dropped[kM], seen[kM] = {};
  load_words(p.tiles, 0, next_words);
  load_words(p.dropped, 0, next_dropped);

  OuterRows<kProducts, D, kM, true> rows(query, p.query.row_stride, first_row, queries);
  const float to_log2 = p.scale * kLog2E;
  OutputSums<D, kM> out;
  out.clear();
  float sums[kM][2] = {};
  for (int half = 0; half < walk.halves; ++half) {
    if (half % 2 == 0) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        words[m] = next_words[m], dropped[m] = next_dropped[m];
        seen[m] |= words[m];
      }
      load_words(p.tiles, half / 2 + 1, next_words);
      load_words(p.dropped, half / 2 + 1, next_dropped);
    }
    copies_wait<kStages - 2>();
    __syncthreads();  // this half has arrived for everyone, and everyone is done with the one before
    load_half(half + kStages - 1);
    const float* const place = places + half % kStages * Own::kPlace;
    float scores[kM][4][4];
    rows.forget_splits();
    form_scores<kProducts>(scores, rows, place);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const uint32_t word = words[m] << half % 2 * 4, without = dropped[m] << half % 2 * 4;
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float a = pair_bit(word, j, e) ? exp2_fast(scores[m][j][e] * to_log2) : 0;
          sums[m][e / 2] += a;
          scores[m][j][e] = pair_bit(without, j, e) ? 0 : a;
        }
    }
    add_outputs<kProducts>(out, scores, place + Own::kSide);
  }
  copies_wait<0>();

  float* const head_out = p.output.head(item, head);
  float* const lse = p.lse + static_cast<int64_t>(head_index) * queries;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 16 * m + lane / 4 + 8 * half;
      const bool exists = row < queries;
      const unsigned four = 0xFu << (lane / 4 * 4);
      const bool empty =
          (__ballot_sync(~0u, (seen[m] & (half ? kLowerRowBits : kUpperRowBits)) != 0) & four) == 0;
      float sum = sums[m][half];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const float inverse = p.keep_scale / sum;
      bool good = sum > 0x1.0p-100f && sum < 0x1.0p100f;
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        good = good && isfinite(out.sums[m][n][2 * half] * inverse) &&
               isfinite(out.sums[m][n][2 * half + 1] * inverse);
      const unsigned bad = __ballot_sync(~0u, exists && !empty && !good);
      if (empty) {  // no edge, so nothing but zeros or 0 * NaN was added
#pragma unroll
        for (int n = 0; n < D / 8; ++n) out.sums[m][n][2 * half] = out.sums[m][n][2 * half + 1] = 0;
      }
      if (exists) store_row(out, m, half, empty ? 0 : inverse, head_out + row * p.output.row_stride);
      if (exists && lane % 4 == 0) lse[row] = empty ? -INFINITY : logf(sum);
      if (bad == 0) continue;
      __syncwarp();
      for (int n = 0; n < 8; ++n) {
        if ((bad >> (4 * n) & 0xF) == 0) continue;
        const int again = first_row + 16 * m + n + 8 * half;
        const RowInputs<float> inputs{query + again * p.query.row_stride,
                                      key,
                                      value,
                                      p.key.row_stride,
                                      p.value.row_stride,
                                      p.scale,
                                      p.keep_scale,
                                      p.tiles + strip(m),
                                      again % 64,
                                      (keys + 63) / 64};
        const auto is_dropped = [&](int tile, int column) {
          return p.dropped && inputs.bit(p.dropped + strip(m), tile, column);
        };
        attend_row<D>(inputs, is_dropped, head_out + again * p.output.row_stride, lse + again);
      }
    }
}

template <Tf32 kProducts, int D>
int launch(const TileForwardParams<float>& p, Stream stream) {
  using Own = Shape<D>;
  auto* const kernel = float_tile_forward<kProducts, D>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Own::kBytes);
  if (ready != cudaSuccess) return ready;
  const dim3 grid((p.shape.queries + Own::kRows - 1) / Own::kRows, p.shape.batch * p.shape.heads);
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  kernel<<<grid, kThreads, Own::kBytes, static_cast<cudaStream_t>(stream)>>>(p);
  return cudaGetLastError();
}

template <int D>
int launch(const TileForwardParams<float>& p, Tf32 products, Stream stream) {
  return products == Tf32::kOnce ? launch<Tf32::kOnce, D>(p, stream) : launch<Tf32::kThrice, D>(p, stream);
}

}  // namespace

int launch_float_tile_forward(const TileForwardParams<float>& p, Tf32 products, Stream stream) {
  switch (p.head_dim) {
    case 16:
      return launch<16>(p, products, stream);
    case 32:
      return launch<32>(p, products, stream);
    case 64:
      return launch<64>(p, products, stream);
    case 128:
      return launch<128>(p, products, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace edgewise::kernels::cuda
