// Attention over bit tiles, forward:  s = scale q k^T,  o_i = sum_j a_ij v_j / sum_j a_ij  with  a_ij = M_ij
// exp(s_ij).
//
// Every 64 x 64 tile is computed on tensor cores and masked by its bits; at densities above a few per cent
// that beats visiting the edges one by one. A block owns 128 queries, a warpgroup 64 of them; keys and values
// pass through a ring of tiles in shared memory. The product with the values of one tile runs while the
// exponentials of the next are taken.
//
// No running maximum: the exponentials are summed as they are. That is exact unless a row's sum leaves fp32's
// range, or a key without edge holds NaN (0 * NaN); both show in the result, and such rows are computed
// again, one by one.
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/lists/attend_row.cuh"
#include "kernels/cuda/tiles/bit_tiles.cuh"
#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/cuda/tiles/used_tiles.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896f;
constexpr int kRows = 128, kThreads = 256, kStages = 3;

// A stage is as many tiles as leave room for a second block. The two warpgroups meet once a stage; in between
// one may run ahead, so that one takes exponentials while the other multiplies.
template <int D, bool kDropout>
struct SharedTiles {
  static constexpr int kTiles = D <= 32 ? 2 : 1;  // of a stage
  static constexpr int kQueryBytes = kRows * D * 2, kTileBytes = 64 * D * 2, kWordBytes = kThreads * 4;
  // The place of a tile: keys, values, the words of its edges and, with dropout, of its dropped edges.
  static constexpr int kValues = kTileBytes, kWords = 2 * kTileBytes, kDropped = kWords + kWordBytes;
  static constexpr int kPlaceBytes = kWords + (kDropout ? 2 : 1) * kWordBytes;
  static constexpr int kPlaces = kStages * kTiles;
  static constexpr int kBytes =
      kQueryBytes + kPlaces * kPlaceBytes + 256 + 1024;  // 256: ones, 1024: alignment
};

template <int D, bool kDropout, bool kListed>
__global__ void __launch_bounds__(kThreads, D <= 64 ? 2 : 1)
    tile_forward(const __grid_constant__ TileForwardParams<Bf16> p) {
  extern __shared__ uint8_t raw[];
  using Shared = SharedTiles<D, kDropout>;
  constexpr int kTiles = Shared::kTiles;
  const uint32_t query_tile = (shared_address(raw) + 1023) & ~1023u;
  const uint32_t places = query_tile + Shared::kQueryBytes,
                 places_end = places + Shared::kPlaces * Shared::kPlaceBytes, ones = places_end;
  const auto after = [&](uint32_t place) {
    return place + Shared::kPlaceBytes == places_end ? places : place + Shared::kPlaceBytes;
  };
  if (threadIdx.x < 64)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(ones + threadIdx.x * 4), "r"(0x3F803F80u) : "memory");

  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int head_index = blockIdx.y, item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  if (p.left_out.has(head_index)) return;
  const int queries = p.shape.queries, keys = p.shape.keys;
  const int first_row = blockIdx.x * kRows;
  const int column_tiles = p.shape.column_tiles(), used_tiles = (keys + 63) / 64;
  const int row_tile = blockIdx.x * 2 + group;

  const auto* query = reinterpret_cast<const __nv_bfloat16*>(p.query.head(item, head));
  const auto* key = reinterpret_cast<const __nv_bfloat16*>(p.key.head(item, head));
  const auto* value = reinterpret_cast<const __nv_bfloat16*>(p.value.head(item, head));
  const bool has_rows = row_tile < p.shape.row_tiles();
  const int64_t strip =
      (head_index * p.shape.row_tiles() + (has_rows ? row_tile : 0)) * column_tiles * kTileWords;
  const uint32_t* const tiles = p.tiles + strip;
  const uint32_t* const dropped = kDropout ? p.dropped + strip : nullptr;
  TileStream<D, kThreads> keys_on(key, p.key.row_stride), values_on(value, p.value.row_stride);
  const int word = warp * 32 + lane * 4;  // of the 8 lanes that copy for their warp
  const uint32_t *words_on = tiles + word, *dropped_on = kDropout ? dropped + word : nullptr;
  int tiles_on = 0;
  uint32_t to = places;
  // kListed: only the tiles of a list.
  __shared__ uint16_t listed[kListed ? kMostListedTiles : 1];
  const int visits = kListed ? list_used_tiles(p.used, head_index, blockIdx.x * 2, 2,
                                               static_cast<int>(p.shape.row_tiles()), used_tiles, listed)
                             : used_tiles;
  const auto load_stage = [&] {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int tile = !kListed ? tiles_on : tiles_on < visits ? listed[tiles_on] : used_tiles;
      if constexpr (kListed) {
        keys_on.load_at(to, tile, keys - tile * 64);
        values_on.load_at(to + Shared::kValues, tile, keys - tile * 64);
        words_on = tiles + word + (tile < used_tiles ? tile * kTileWords : 0);
      } else {
        keys_on.load(to, keys - tile * 64);
        values_on.load(to + Shared::kValues, keys - tile * 64);
      }
      if (lane < 8) {
        const uint32_t at = (threadIdx.x / 32 * 32 + lane * 4) * 4;
        const bool valid = has_rows && tile < used_tiles;
        copy_chunk(to + Shared::kWords + at, words_on, valid);
        if constexpr (kDropout) copy_chunk(to + Shared::kDropped + at, dropped_on, valid);
      }
      ++tiles_on;
      words_on += kTileWords;
      if constexpr (kDropout) dropped_on += kTileWords;
      to = after(to);
    }
    copies_commit();
  };
  copy_tile<D, kRows, kThreads>(query_tile, query, p.query.row_stride, first_row, queries);
  load_stage();
  load_stage();

  const float to_log2 = p.scale * kLog2E;
  float scores[32] = {}, out[D / 2], sums[4] = {};
  uint32_t weights[16], kept[kDropout ? 16 : 1], seen = 0;
#pragma unroll
  for (float& x : out) x = 0;

  const uint32_t own_queries = query_tile + group * 64 * TileLayout<D>::kRowBytes;
  const auto multiply_keys = [&](uint32_t place) {
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
      score_product(scores, along_row<D, kRows>(own_queries, step), along_row<D, 64>(place, step), step > 0);
    products_commit();
  };
  const auto exponentials = [&] {
#pragma unroll
    for (float& s : scores) s = exp2_fast(s * to_log2);
  };
  // After the output product has read the last weights.
  const auto mask_weights = [&](uint32_t place) {
    const uint32_t word = own_word(place + Shared::kWords),
                   dropped_word = kDropout ? own_word(place + Shared::kDropped) : 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      uint32_t upper, lower;
      pair_masks(word, j, upper, lower);
      weights[2 * j] = pack_bf16(scores[4 * j], scores[4 * j + 1]) & upper;
      weights[2 * j + 1] = pack_bf16(scores[4 * j + 2], scores[4 * j + 3]) & lower;
      if constexpr (kDropout) {
        pair_masks(dropped_word, j, upper, lower);
        kept[2 * j] = weights[2 * j] & ~upper;
        kept[2 * j + 1] = weights[2 * j + 1] & ~lower;
      }
    }
    seen |= word;
  };

  copies_wait<1>();
  publish_copies();
  __syncthreads();
  settle(scores);
  products_begin();
  multiply_keys(places);
  products_wait<0>();
  settle(scores);
  exponentials();
  mask_weights(places);
  uint32_t here = places;
  for (int t = 0; t < visits; ++t) {
    const uint32_t next = after(here);
    if ((t + 1) % kTiles == 0) {
      // The stage of tile t + 1 has arrived for everyone; and everyone is done with the stage before tile
      // t's, whose place the next one takes.
      copies_wait<0>();
      publish_copies();
      __syncthreads();
      load_stage();
    }
    settle(scores);
    settle(out);
    settle(sums);
    products_begin();
    multiply_keys(next);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      output_product(out, (kDropout ? kept : weights) + 4 * step,
                     down_rows<D, 64>(here + Shared::kValues, step));
      row_sums(sums, weights + 4 * step, uniform_operand(ones));
    }
    products_commit();
    products_wait<1>();
    settle(scores);
    exponentials();
    products_wait<0>();
    settle(out);
    settle(sums);
    mask_weights(next);
    here = next;
  }
  copies_wait<0>();

  // A lane holds two rows, four lanes share them. Rows whose sum left the range, or met 0 * NaN, go the plain
  // way.
  auto* const head_out = reinterpret_cast<__nv_bfloat16*>(p.output.head(item, head));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int in_tile = warp * 16 + lane / 4 + 8 * half, row = row_tile * 64 + in_tile;
    const bool exists = has_rows && row < queries;
    const unsigned four = 0xFu << (lane / 4 * 4);
    const bool empty = (__ballot_sync(~0u, (seen & (half ? kLowerRowBits : kUpperRowBits)) != 0) & four) == 0;
    const float sum = sums[2 * half], inverse = p.keep_scale / sum;
    bool good = sum > 0x1.0p-100f && sum < 0x1.0p100f;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const float x = out[4 * n + 2 * half] * inverse, y = out[4 * n + 2 * half + 1] * inverse;
      good = good && isfinite(x) && isfinite(y);
      if (exists)
        *reinterpret_cast<uint32_t*>(head_out + row * p.output.row_stride + 8 * n + 2 * (lane % 4)) =
            empty ? 0 : pack_bf16(x, y);
    }
    const unsigned bad = __ballot_sync(~0u, exists && !empty && !good);
    if (exists && lane % 4 == 0)
      p.lse[static_cast<int64_t>(head_index) * queries + row] = empty ? -INFINITY : logf(sum);
    if (bad == 0) continue;
    __syncwarp();
    for (int n = 0; n < 8; ++n) {
      if ((bad >> (4 * n) & 0xF) == 0) continue;
      const int again = warp * 16 + n + 8 * half, again_row = row_tile * 64 + again;
      const RowInputs<__nv_bfloat16> row_inputs{query + again_row * p.query.row_stride,
                                                key,
                                                value,
                                                p.key.row_stride,
                                                p.value.row_stride,
                                                p.scale,
                                                p.keep_scale,
                                                tiles,
                                                again,
                                                used_tiles};
      const auto is_dropped = [&](int tile, int column) {
        return kDropout && row_inputs.bit(dropped, tile, column);
      };
      attend_row<D>(row_inputs, is_dropped, head_out + again_row * p.output.row_stride,
                    p.lse + static_cast<int64_t>(head_index) * queries + again_row);
    }
  }
}

template <int D, bool kDropout, bool kListed>
int launch(const TileForwardParams<Bf16>& p, Stream stream) {
  constexpr int kBytes = SharedTiles<D, kDropout>::kBytes;
  auto* const kernel = tile_forward<D, kDropout, kListed>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (ready != cudaSuccess) return ready;
  const dim3 grid((p.shape.queries + kRows - 1) / kRows, p.shape.batch * p.shape.heads);
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  kernel<<<grid, kThreads, kBytes, static_cast<cudaStream_t>(stream)>>>(p);
  return cudaGetLastError();
}

template <int D>
int launch(const TileForwardParams<Bf16>& p, Stream stream) {
  if (p.dropped) return launch<D, true, false>(p, stream);
  return p.used.flags && p.shape.column_tiles() <= kMostListedTiles ? launch<D, false, true>(p, stream)
                                                                    : launch<D, false, false>(p, stream);
}

}  // namespace

int launch_tile_forward(const TileForwardParams<Bf16>& p, Stream stream) {
  switch (p.head_dim) {
    case 16:
      return launch<16>(p, stream);
    case 32:
      return launch<32>(p, stream);
    case 64:
      return launch<64>(p, stream);
    case 128:
      return launch<128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace edgewise::kernels::cuda
