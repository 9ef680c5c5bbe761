// SBM edges as bit tiles. Tensor cores give every p_ij nearly; the pair's random number (pair_numbers.h)
// decides where it is clearly on one side. The few pairs in between, whose number is closer to p than the
// products' error, go to a list and are decided by the exact sum that the CPU's direct sampler forms, in its
// order: the edges are the same, bit for bit.
#include <cuda_fp16.h>

#include "kernels/cuda/bit_tiles.cuh"
#include "kernels/cuda/tile_params.h"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kRows = 128, kThreads = 256, kStages = 3;
// Open pairs of a block wait in shared memory, so that no warp waits for a counter in global memory; from
// kFlushAt on they are moved.
constexpr int kOpenPlaces = 2048, kFlushAt = 1024;

// A stage is as many key tiles as fit beside two other blocks: one barrier and one set of addresses for all.
template <int C>
struct Shared {
  static constexpr int kTiles = C <= 32 ? 4 : C == 64 ? 2 : 1;  // of a stage
  static constexpr int kQueryBytes = kRows * C * 2, kTileBytes = 64 * C * 2;
  static constexpr int kStageBytes =
      kTiles * kTileBytes + 1024;  // 1024: the valid columns of the tiles, padded to the alignment
  static constexpr int kBytes = kQueryBytes + kStages * kStageBytes + (kOpenPlaces + 4) * 4 + 1024;
};

// Relative error of a product's p: rounding both memberships to bf16 (if they were), and the accumulation.
__host__ __device__ constexpr float relative_error(int clusters, bool rounded) {
  return (rounded ? 0x1.04p-8f : 0) + static_cast<float>(clusters) * 0x1.0p-22f;
}

__device__ float exact_p(const TileSampleParams& p, int item, int head, int row, int column) {
  float sum = p.exploration;
  // As the direct sampler on CPU: clusters in order, no fused multiply-add.
  if (p.exact_query_membership.data) {
    const float* q = p.exact_query_membership.head(item, head) + row * p.exact_query_membership.row_stride;
    const float* t = p.exact_key_side.head(item, head) + column * p.exact_key_side.row_stride;
    for (int c = 0; c < p.clusters; ++c) sum = __fadd_rn(sum, __fmul_rn(q[c], t[c]));
  } else {
    const auto* q = reinterpret_cast<const __nv_bfloat16*>(p.query_membership.head(item, head) +
                                                           row * p.query_membership.row_stride);
    const auto* t =
        reinterpret_cast<const __nv_bfloat16*>(p.key_side.head(item, head) + column * p.key_side.row_stride);
    for (int c = 0; c < p.clusters; ++c)
      sum = __fadd_rn(sum, __fmul_rn(__bfloat162float(q[c]), __bfloat162float(t[c])));
  }
  return sum;
}

__device__ bool exact_edge(const TileSampleParams& p, int head_index, int row, int column) {
  const double sum = exact_p(p, head_index / p.shape.heads, head_index % p.shape.heads, row, column);
  const double capped = fmin(sum, 1.0), probability = p.poisson ? -expm1(-capped) : capped;
  return pair_number(p.edge_keys[head_index], row, column) < probability * 4294967296.0;
}

// Sets the bit of an open pair if it is an edge; integer atomics, so the order does not matter.
__device__ void decide(const TileSampleParams& p, int head_index, int row, int column) {
  if (!exact_edge(p, head_index, row, column)) return;
  const int64_t word =
      ((head_index * p.shape.row_tiles() + row / 64) * p.shape.column_tiles() + column / 64) * kTileWords +
      tile_word(row % 64, column % 64);
  atomicOr(p.tiles + word, 1u << tile_bit(row % 64, column % 64));
  atomicAdd(reinterpret_cast<unsigned long long*>(p.edge_counts + head_index), 1ull);
}

// Bits of the valid columns of a tile, in the order of a lane's word; the same for every row. [B,
// column_tiles, 4].
__global__ void mark_columns(TileShape shape, const uint8_t* key_mask, uint32_t* column_words) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t tiles = shape.column_tiles();
  if (index >= shape.batch * tiles * 4) return;
  const int t = index % 4, tile = index / 4 % tiles, item = index / 4 / tiles;
  uint32_t word = 0;
  for (int j = 0; j < 8; ++j)
    for (int e = 0; e < 2; ++e) {
      const int column = tile * 64 + 8 * j + 2 * t + e;
      if (column < shape.keys && (!key_mask || key_mask[item * shape.keys + column]))
        word |= 1u << (7 + 8 * e - j) | 1u << (7 + 8 * (e + 2) - j);
    }
  column_words[index] = word;
}
void launch_mark_columns(const TileShape& shape, const uint8_t* key_mask, uint32_t* column_words,
                         cudaStream_t stream) {
  const int64_t marks = shape.batch * shape.column_tiles() * 4;
  mark_columns<<<static_cast<unsigned>((marks + 127) / 128), 128, 0, stream>>>(shape, key_mask, column_words);
}

// The bits of a lane's two rows, `row` and row + 8, that are valid queries.
__device__ uint32_t valid_rows(const TileShape& shape, const uint8_t* query_mask, int item, int row) {
  uint32_t word = 0;
  for (int half = 0; half < 2; ++half)
    if (row + 8 * half < shape.queries && (!query_mask || query_mask[item * shape.queries + row + 8 * half]))
      word |= half ? kLowerRowBits : kUpperRowBits;
  return word;
}

// The bits of tile column `tile` with key <= query.
__device__ uint32_t causal_bits(int row, int tile, int lane) {
  uint32_t word = 0;
  for (int j = 0; j < 8; ++j)
    for (int e = 0; e < 4; ++e)
      if (tile * 64 + 8 * j + 2 * (lane % 4) + (e & 1) <= row + 8 * (e >> 1)) word |= 1u << (7 + 8 * e - j);
  return word;
}

template <int C, bool kPoisson>
__global__ void __launch_bounds__(kThreads, C <= 64    ? 3
                                            : C <= 128 ? 2
                                                       : 1)
    tile_sample(const __grid_constant__ TileSampleParams p) {
  extern __shared__ uint8_t raw[];
  using Space = Shared<C>;
  const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
  constexpr int kTiles = Space::kTiles;
  const uint32_t stages = base + Space::kQueryBytes;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int head_index = blockIdx.y, item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  const int queries = p.shape.queries, keys = p.shape.keys, column_tiles = p.shape.column_tiles();
  const int row_tile = blockIdx.x * 2 + group;
  const int row = row_tile * 64 + warp * 16 + lane / 4;  // and row + 8
  const bool has_rows = row_tile < p.shape.row_tiles();
  const uint32_t row_word = valid_rows(p.shape, p.query_mask, item, row);

  // [0]: how many are open, [1]: where they go in the list; then row within the block and column of each.
  uint32_t* const open_here = reinterpret_cast<uint32_t*>(raw + (base - shared_address(raw)) +
                                                          Space::kQueryBytes + kStages * Space::kStageBytes);
  if (threadIdx.x == 0) open_here[0] = 0;
  const auto flush = [&] {
    __syncthreads();
    const unsigned waiting = min(open_here[0], static_cast<unsigned>(kOpenPlaces));
    if (threadIdx.x == 0) open_here[1] = atomicAdd(p.open_count, static_cast<unsigned long long>(waiting));
    __syncthreads();
    for (unsigned n = threadIdx.x; n < waiting; n += kThreads) {
      const uint32_t pair = open_here[4 + n];
      const int row_here = blockIdx.x * kRows + (pair >> 25), column = pair & 0x1FFFFFF;
      const int64_t place = static_cast<int64_t>(open_here[1]) + n;
      if (place < p.open_capacity)
        p.open_pairs[place] = (static_cast<uint64_t>(head_index) * queries + row_here) * keys + column;
    }
    __syncthreads();
    if (threadIdx.x == 0) open_here[0] = 0;
    __syncthreads();  // before anyone counts again
  };

  const auto* key_side = reinterpret_cast<const __nv_bfloat16*>(p.key_side.head(item, head));
  // Tiles first .. first + kTiles - 1, to the stage at `to`.
  const auto load_stage = [&](uint32_t to, int first) {
    copy_tile<C, 64 * kTiles, kThreads>(to, key_side, p.key_side.row_stride, first * 64, keys);
    if (threadIdx.x < kTiles) {
      const int t = first + threadIdx.x;
      const bool valid = t < column_tiles;
      copy_chunk(to + kTiles * Space::kTileBytes + threadIdx.x * 16,
                 p.column_words + (static_cast<int64_t>(item) * column_tiles + (valid ? t : 0)) * 4, valid);
    }
    copies_commit();
  };
  copy_tile<C, kRows, kThreads>(base,
                                reinterpret_cast<const __nv_bfloat16*>(p.query_membership.head(item, head)),
                                p.query_membership.row_stride, blockIdx.x * kRows, queries);
  load_stage(stages, 0);
  load_stage(stages + Space::kStageBytes, kTiles);

  const uint64_t key = p.edge_keys[head_index];
  const float margin = 65536 * relative_error(C, p.exact_query_membership.data != nullptr);
  const int64_t strip = (static_cast<int64_t>(head_index) * p.shape.row_tiles() + (has_rows ? row_tile : 0)) *
                            column_tiles * kTileWords +
                        warp * 32 + lane;
  // The margin of a pair is 3 + margin p units; no pair with p <= 1 has more than `widest`, and a pair with a
  // larger p and a number within its margin has p (1 - relative error) < 1.
  const float widest = 3 + margin * 1.02f;
  unsigned count = 0;
  float probability[32] = {};
  PairWords numbers[2][2] = {};
  const float offset = 0x1.0p23f + (kPoisson ? 0 : 65536 * p.exploration);
  const auto distance = [&](int j, int e) {
    float x = probability[4 * j + e];
    if constexpr (kPoisson) x = 1 - exp2_fast(fminf(x + p.exploration, 1) * -1.44269504f);
    const uint32_t source = numbers[e >> 1][j / 4].word[j % 4];
    uint32_t biased;
    if (e & 1)
      asm("prmt.b32 %0, %1, 0x4B000000, 0x7632;" : "=r"(biased) : "r"(source));
    else
      asm("prmt.b32 %0, %1, 0x4B000000, 0x7610;" : "=r"(biased) : "r"(source));
    return __uint_as_float(biased) - fmaf(x, 65536.0f, offset);
  };
  uint32_t* words = p.tiles + strip;
  uint32_t here = stages, free_stage = stages + 2 * Space::kStageBytes;
  const auto after = [&](uint32_t stage) {
    return stage == stages + 2 * Space::kStageBytes ? stages : stage + Space::kStageBytes;
  };
  uint32_t call = lane % 4;
  for (int first = 0; first < column_tiles; first += kTiles) {
    copies_wait<1>();
    publish_copies();
    if (__syncthreads_or(open_here[0] > kFlushAt)) flush();
    load_stage(free_stage, first + 2 * kTiles);
    free_stage = after(free_stage);
    const int stop = min(first + kTiles, column_tiles);
    uint32_t key_tile = here, column_word = here + kTiles * Space::kTileBytes + lane % 4 * 4;
    here = after(here);
#pragma unroll 1
    for (int t = first; t < stop; ++t) {
      settle(probability);
      products_begin();
#pragma unroll
      for (int step = 0; step < C / 16; ++step)
        score_product(probability, along_row<C, kRows>(base + group * 64 * TileLayout<C>::kRowBytes, step),
                      along_row<C, 64>(key_tile, step), step > 0);
      products_commit();
      // The random numbers meanwhile: for each of the lane's two rows, two calls of eight pairs.
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < 2; ++n)
          numbers[half][n] = philox7(row + 8 * half, call + 4 * n, 0, kPairHighLane, key);
      call += 8;
      uint32_t allowed;
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(allowed) : "r"(column_word) : "memory");
      key_tile += Space::kTileBytes;
      column_word += 16;
      allowed &= row_word;
      if (p.is_causal && t >= row_tile) allowed &= causal_bits(row, t, lane);
      products_wait<0>();
      settle(probability);

      // In units of 2^-16, biased by 2^23 so that floats hold integers: number - p < 0 is an edge; within the
      // margin it is open.
      uint32_t word = 0;
      float nearest = 65536;
#pragma unroll
      for (int e = 3; e >= 0; --e)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float difference = distance(j, e);
          nearest = fminf(nearest, fabsf(difference));
          word = __funnelshift_l(__float_as_uint(difference), word, 1);
        }
      uint32_t open = 0;
      if (nearest <= widest) {  // rare with bf16 memberships
#pragma unroll
        for (int e = 3; e >= 0; --e)
#pragma unroll
          for (int j = 0; j < 8; ++j)
            open = open << 1 | (fabsf(distance(j, e)) <= fmaf(fabsf(probability[4 * j + e]), margin, 3.0f));
      }
      open &= allowed;
      word &= allowed & ~open;
      while (open) {  // rare
        const int place = 31 - __clz(open);
        open &= ~(1u << place);
        const int e = place / 8, j = 7 - place % 8;
        const int at_row = row + 8 * (e >> 1), column = t * 64 + 8 * j + 2 * (lane % 4) + (e & 1);
        const unsigned place_here = atomicAdd(open_here, 1u);
        if (place_here < kOpenPlaces)
          open_here[4 + place_here] =
              static_cast<uint32_t>(at_row - blockIdx.x * kRows) << 25 | static_cast<uint32_t>(column);
        else
          *p.open_count = ~0ull / 2;  // beyond any capacity: decide_open takes every pair
      }
      count += __popc(word);
      if (has_rows) *words = word;
      words += kTileWords;
    }
  }
  copies_wait<0>();
  flush();
  for (int step = 16; step; step /= 2) count += __shfl_xor_sync(~0u, count, step);
  if (lane == 0 && count)
    atomicAdd(reinterpret_cast<unsigned long long*>(p.edge_counts + head_index),
              static_cast<unsigned long long>(count));
}

// The word of one lane's places, every pair decided exactly.
__device__ uint32_t exact_word(const TileSampleParams& p, int head_index, int row, int tile, int lane) {
  const int item = head_index / static_cast<int>(p.shape.heads);
  uint32_t allowed = valid_rows(p.shape, p.query_mask, item, row) &
                     p.column_words[(item * p.shape.column_tiles() + tile) * 4 + lane % 4];
  if (p.is_causal && tile >= row / 64) allowed &= causal_bits(row, tile, lane);
  uint32_t word = 0;
  for (; allowed; allowed &= allowed - 1) {
    const int place = __ffs(static_cast<int>(allowed)) - 1, e = place / 8, j = 7 - place % 8;
    if (exact_edge(p, head_index, row + 8 * (e >> 1), tile * 64 + 8 * j + 2 * (lane % 4) + (e & 1)))
      word |= 1u << place;
  }
  return word;
}

// Decides the open pairs; every pair when there were more than the list holds, which takes long and is
// rare: memberships would have to be such that a large part of all numbers lies within the products' error.
__global__ void decide_open(const __grid_constant__ TileSampleParams p) {
  const unsigned long long open = *p.open_count,
                           step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  unsigned long long n = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (open <= static_cast<unsigned long long>(p.open_capacity)) {
    for (; n < open; n += step) {
      const uint64_t pair = p.open_pairs[n];
      decide(p, static_cast<int>(pair / p.shape.keys / p.shape.queries),
             static_cast<int>(pair / p.shape.keys % p.shape.queries), static_cast<int>(pair % p.shape.keys));
    }
    return;
  }
  const unsigned long long words = p.shape.words(), column_tiles = p.shape.column_tiles(),
                           row_tiles = p.shape.row_tiles();
  for (; n < words; n += step) {
    const unsigned long long tile = n / kTileWords, place = n % kTileWords;
    const int head_index = static_cast<int>(tile / column_tiles / row_tiles),
              lane = static_cast<int>(place % 32);
    const int row = static_cast<int>(tile / column_tiles % row_tiles * 64 + place / 32 * 16 + lane / 4);
    const uint32_t word = exact_word(p, head_index, row, static_cast<int>(tile % column_tiles), lane);
    const long long more = __popc(word) - __popc(p.tiles[n]);
    p.tiles[n] = word;
    if (more)
      atomicAdd(reinterpret_cast<unsigned long long*>(p.edge_counts + head_index),
                static_cast<unsigned long long>(more));
  }
}

// Where a warp is that owns the 16 x 64 pairs of one quarter of a tile.
struct QuarterTile {
  int lane, head, item, tile, row;  // row: the first of this lane's two
  int64_t index;                    // of the quarter, over all heads
  bool exists;

  __device__ explicit QuarterTile(const TileShape& shape) {
    const int columns = static_cast<int>(shape.column_tiles()), part = threadIdx.x / 32 % 4;
    lane = threadIdx.x % 32, head = blockIdx.z, item = head / static_cast<int>(shape.heads);
    tile = blockIdx.x * 2 + threadIdx.x / 128;
    exists = tile < columns;
    row = blockIdx.y * 64 + part * 16 + lane / 4;
    index = ((static_cast<int64_t>(head) * shape.row_tiles() + blockIdx.y) * columns + tile) * 4 + part;
  }
  static dim3 grid(const TileShape& shape) {
    return dim3((shape.column_tiles() + 1) / 2, shape.row_tiles(), shape.batch * shape.heads);
  }
};

// Of the four lanes that share two rows, lane t has 32 bits of row t % 2, columns 32 (t / 2) .. + 31. Gives
// every lane the word of its own places.
__device__ uint32_t share_bits(uint32_t mine, int lane) {
  uint32_t word = 0;
#pragma unroll
  for (int from = 0; from < 4; ++from) {
    // Bits 8 j' + 2 t + h (j' = 0..3) -> places 7 + 8 (2 row_half + h) - (4 column_half + j'): the product
    // brings bits 0, 8, 16, 24 to 27, 26, 25, 24.
    const uint32_t bits = __shfl_sync(~0u, mine, lane / 4 * 4 + from) >> (2 * (lane % 4));
    const uint32_t even = ((bits & 0x01010101u) * 0x08040201u) >> 24 & 0xF,
                   odd = ((bits >> 1 & 0x01010101u) * 0x08040201u) >> 24 & 0xF;
    word |= (even | odd << 8) << (16 * (from & 1) + (from >> 1 ? 0 : 4));
  }
  return word;
}

__global__ void tile_probes(const __grid_constant__ TileProbeParams p) {
  const QuarterTile at(p.shape);
  if (!at.exists) return;
  uint32_t allowed = valid_rows(p.shape, p.query_mask, at.item, at.row) &
                     p.column_words[(at.item * p.shape.column_tiles() + at.tile) * 4 + at.lane % 4];
  if (p.is_causal && at.tile >= at.row / 64) allowed &= causal_bits(at.row, at.tile, at.lane);
  const uint32_t mine = coins(p.stream_keys[at.head], at.row + 8 * (at.lane & 1),
                              at.tile * 2 + (at.lane % 4) / 2, p.limits + at.item * kCoins);
  p.probes[at.index * 32 + at.lane] = share_bits(mine, at.lane) & allowed & ~p.tiles[at.index * 32 + at.lane];
}

__global__ void tile_dropout(const __grid_constant__ TileDropoutParams p, double limit) {
  const QuarterTile at(p.shape);
  if (!at.exists) return;
  const uint32_t row = at.row + 8 * (at.lane & 1), first = (at.tile * 64 + at.lane % 4 / 2 * 32) / 4;
  const uint64_t key = p.stream_keys[at.head];
  uint32_t mine = 0;
  for (int block = 0; block < 8; ++block) {
    const PairWords words = philox<10>(row, first + block, 0, 0, key);
#pragma unroll
    for (int n = 0; n < 4; ++n) mine |= static_cast<uint32_t>(words.word[n] < limit) << (4 * block + n);
  }
  p.dropped[at.index * 32 + at.lane] = share_bits(mine, at.lane) & p.tiles[at.index * 32 + at.lane];
}

template <int C, bool kPoisson>
cudaError_t launch(const TileSampleParams& p, cudaStream_t stream) {
  constexpr int kBytes = Shared<C>::kBytes;
  auto* const kernel = tile_sample<C, kPoisson>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (ready != cudaSuccess) return ready;
  const dim3 grid((p.shape.queries + kRows - 1) / kRows, p.shape.batch * p.shape.heads);
  if (grid.x == 0 || grid.y == 0 || p.shape.keys == 0) return cudaSuccess;
  if (p.shape.keys >= 1 << 25 || p.open_capacity >= 0xFFFFFFFFll) return cudaErrorInvalidValue;
  launch_mark_columns(p.shape, p.key_mask, p.column_words, stream);
  kernel<<<grid, kThreads, kBytes, stream>>>(p);
  decide_open<<<264, 256, 0, stream>>>(p);
  return cudaGetLastError();
}

template <int C>
cudaError_t launch_clusters(const TileSampleParams& p, cudaStream_t stream) {
  return p.poisson ? launch<C, true>(p, stream) : launch<C, false>(p, stream);
}

}  // namespace

bool tile_sample_takes(int64_t clusters) {
  return clusters == 16 || clusters == 32 || clusters == 64 || clusters == 128 || clusters == 256;
}

int launch_tile_probes(const TileProbeParams& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  if (p.shape.words() == 0) return cudaSuccess;
  launch_mark_columns(p.shape, p.key_mask, p.column_words, stream);
  tile_probes<<<QuarterTile::grid(p.shape), 256, 0, stream>>>(p);
  return cudaGetLastError();
}

int launch_tile_dropout(const TileDropoutParams& p, Stream stream) {
  if (p.shape.words() == 0) return cudaSuccess;
  tile_dropout<<<QuarterTile::grid(p.shape), 256, 0, static_cast<cudaStream_t>(stream)>>>(p,
                                                                                          p.p * 4294967296.0);
  return cudaGetLastError();
}

int launch_tile_sample(const TileSampleParams& p, Stream stream) {
  switch (p.clusters) {
    case 16:
      return launch_clusters<16>(p, static_cast<cudaStream_t>(stream));
    case 32:
      return launch_clusters<32>(p, static_cast<cudaStream_t>(stream));
    case 64:
      return launch_clusters<64>(p, static_cast<cudaStream_t>(stream));
    case 128:
      return launch_clusters<128>(p, static_cast<cudaStream_t>(stream));
    case 256:
      return launch_clusters<256>(p, static_cast<cudaStream_t>(stream));
  }
  return cudaErrorInvalidValue;
}

}  // namespace edgewise::kernels::cuda
