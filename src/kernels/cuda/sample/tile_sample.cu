// SBM edges as bit tiles. Tensor cores give every p_ij nearly; the pair's random number (pair_numbers.h)
// decides where it is clearly on one side. The few pairs in between, whose number is closer to p than the
// products' error, go to a list and are decided by the exact sum that the CPU's direct sampler forms, in its
// order: the edges are the same, bit for bit.
#include "kernels/cuda/device/bulk_copy.cuh"
#include "kernels/cuda/device/row_numbers.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/sample/exact_pairs.cuh"
#include "kernels/cuda/tiles/bit_tiles.cuh"
#include "kernels/cuda/tiles/tile_masks.cuh"
#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {
namespace {

// Open pairs of a block wait in shared memory, so that no warp waits for a counter in global memory.
constexpr int kOpenPlaces = 1024;

// Memberships in fp32 are two terms, high + low, each bf16: three products instead of one.
template <int kClusters, bool kInTwoTerms>
struct Plan {
  static constexpr bool kSplit = kInTwoTerms;
  static constexpr int C = kClusters, kWidth = kSplit ? 2 * C : C;
  static constexpr int kSteps = C / 16 * (kSplit ? 3 : 1);
  static constexpr int kTileBytes = 64 * kWidth * 2;
  static constexpr int kGroups = kTileBytes > 32768 ? 1 : 2, kThreads = 128 * kGroups, kRows = 64 * kGroups;
  // Where registers suffice the queries stay in them, and only keys are read from shared memory.
  static constexpr bool kHeld = !kSplit && (C == 64 || C == 128);
  static constexpr int kQueryBytes = kHeld ? 0 : kGroups * kTileBytes;
  // A stage is kTiles key tiles.
  static constexpr int kTiles = kTileBytes <= 4096 ? 2 : 1;
  static constexpr int kStages = kTileBytes <= 16384 ? 4 : kTileBytes <= 32768 ? 3 : 2;
  static constexpr int kStageBytes = kTiles * kTileBytes;
  // After the tiles: barriers (query, full and free of each stage), the open pairs.
  static constexpr int kBarriersAt = kQueryBytes + kStages * kStageBytes;
  static constexpr int kOpenAt = kBarriersAt + 128;
  static constexpr int kBytes = kOpenAt + (kOpenPlaces + 1) * 4 + 1024;
  static constexpr int kFit = 227 * 1024 / (kBytes + 1024), kMost = !kHeld ? 4 : C == 64 ? 3 : 2;
  static constexpr int kBlocks = kFit < kMost ? kFit : kMost;

  // Operands of step n: columns 16 a .. of the queries' tile, 16 b .. of the keys'.
  static constexpr int query_step(int n) { return n < 2 * (C / 16) ? n : n - 2 * (C / 16); }
  static constexpr int key_step(int n) { return n < C / 16 ? n : n - C / 16; }
};

// Sets the bit of an open pair if it is an edge; integer atomics, so the order does not matter.
__device__ void decide(const TileSampleParams& p, int head_index, int row, int column) {
  if (!exact_edge(p, head_index, row, column)) return;
  const int64_t word =
      ((head_index * p.shape.row_tiles() + row / 64) * p.shape.column_tiles() + column / 64) * kTileWords +
      tile_word(row % 64, column % 64);
  atomicOr(p.tiles + word, 1u << tile_bit(row % 64, column % 64));
  atomicAdd(reinterpret_cast<unsigned long long*>(p.edge_counts + head_index), 1ull);
}

// Whether thin_sample.cu has drawn this row.
__device__ bool drawn_by_thinning(const TileSampleParams& p, int head_index, int row) {
  const int64_t blocks = (p.shape.queries + kThinRows - 1) / kThinRows;
  return p.thin.blocks && p.thin.blocks[head_index * blocks + row / kThinRows];
}

// An open pair goes to the list for decide_open.
__device__ void leave_open(const TileSampleParams& p, unsigned long long place, int head_index, int row,
                           uint32_t column) {
  if (place < static_cast<unsigned long long>(p.open_capacity))
    p.open_pairs[place] = (static_cast<uint64_t>(head_index) * p.shape.queries + row) * p.shape.keys + column;
}

// Four integers as bytes, a the lowest, each saturated to 0 .. 255.
__device__ uint32_t saturated_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  uint32_t bytes;
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(bytes) : "r"(d), "r"(c));
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %0;" : "+r"(bytes) : "r"(b), "r"(a));
  return bytes;
}

// Memberships [tokens, C] of every head as tiles of 64 tokens in the order of shared memory, so that the
// sampler takes a tile as one bulk copy; tokens beyond the last are zeros. A thread moves 8 clusters.
template <typename Plan>
__global__ void stage_memberships(HeadTensor<const Bf16> rounded, HeadTensor<const float> exact, int heads,
                                  int tokens, int64_t chunks, const uint32_t* direct_blocks, Bf16* staged) {
  constexpr int kChunks = Plan::C / 8;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= chunks) return;
  const int chunk = index % kChunks, row = index / kChunks % 64, tiles = (tokens + 63) / 64;
  const int64_t tile = index / kChunks / 64;  // over all heads
  const int head_index = tile / tiles, token = tile % tiles * 64 + row;
  if (direct_blocks && direct_blocks[head_index] == 0) return;  // nobody will ask
  uint8_t* const out = reinterpret_cast<uint8_t*>(staged) + tile * Plan::kTileBytes;
  const auto place = [&](int at) {
    return reinterpret_cast<uint4*>(out + TileLayout<Plan::kWidth>::template offset<64>(row, at));
  };
  uint4 high{}, low{};
  if (token < tokens) {
    const int item = head_index / heads, head = head_index % heads;
    if constexpr (Plan::kSplit) {
      const auto* from =
          reinterpret_cast<const float4*>(exact.head(item, head) + token * exact.row_stride) + chunk * 2;
      const float4 a = from[0], b = from[1];
      const auto split = [](float x, float y, uint32_t& rest) {
        const uint32_t top = pack_bf16(x, y);
        rest = pack_bf16(x - __uint_as_float(top << 16), y - __uint_as_float(top & 0xFFFF0000u));
        return top;
      };
      high.x = split(a.x, a.y, low.x), high.y = split(a.z, a.w, low.y);
      high.z = split(b.x, b.y, low.z), high.w = split(b.z, b.w, low.w);
    } else {
      high = *(reinterpret_cast<const uint4*>(rounded.head(item, head) + token * rounded.row_stride) + chunk);
    }
  }
  *place(chunk) = high;
  if constexpr (Plan::kSplit) *place(chunk + kChunks) = low;
}

// How far, in units of 2^-16, a product's p <= 1 may be from the exact sum: the rounding of `shift` and of
// both sums, the terms that a split leaves out, and for Poisson the exponential.
template <typename Plan>
__device__ constexpr float error_units(bool poisson) {
  return 0.625f + Plan::C / 128.0f + Plan::kSteps / 8.0f + (Plan::kSplit ? 1 : 0) + (poisson ? 0.5f : 0);
}

// The accumulators start as minus the numbers, so that a product ends as p - number: its sign is the edge.
// A number of 16 bits is the end of the mantissa of -(128 + number / 65536): one permutation of bytes and one
// addition. Moved up by the error bound, a negative result is surely no edge and one above `region` surely
// is; in between the pair is open. The Poisson law needs p itself and subtracts afterwards.
template <typename Plan, bool kPoisson>
__global__ void __launch_bounds__(Plan::kThreads, kPoisson&& Plan::kBlocks > 3 ? 3 : Plan::kBlocks)
    tile_sample(const __grid_constant__ TileSampleParams p) {
  extern __shared__ uint8_t raw[];
  constexpr int kWidth = Plan::kWidth, kTiles = Plan::kTiles, kStages = Plan::kStages;
  constexpr float kError = error_units<Plan>(kPoisson);
  const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int head_index = blockIdx.y, item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  const int column_tiles = p.shape.column_tiles(), row_tiles = p.shape.row_tiles();
  if (drawn_by_thinning(p, head_index, blockIdx.x * Plan::kRows)) return;
  const int row_tile = blockIdx.x * Plan::kGroups + group;
  const int row = row_tile * 64 + warp * 16 + lane / 4;  // and row + 8
  const bool has_rows = row_tile < row_tiles;
  const uint32_t row_word = valid_rows(p.shape, p.query_mask, item, row);

  const uint32_t query_tile = base + group * Plan::kTileBytes;
  const uint32_t stages = base + Plan::kQueryBytes;
  const uint32_t query_barrier = base + Plan::kBarriersAt, full = query_barrier + 8,
                 unused = full + 8 * kStages;
  // How many pairs are open, then row within the block and column of each.
  uint32_t* const open_here = reinterpret_cast<uint32_t*>(raw + (base - shared_address(raw)) + Plan::kOpenAt);

  const auto* key_tiles = reinterpret_cast<const uint8_t*>(p.key_tiles) +
                          static_cast<int64_t>(head_index) * column_tiles * Plan::kTileBytes;
  const auto load_stage = [&](int index) {
    const int first = index * kTiles, count = min(kTiles, column_tiles - first), slot = index % kStages;
    if (count <= 0) return;
    const uint32_t barrier = full + 8 * slot;
    barrier_expect(barrier, count * Plan::kTileBytes);
    bulk_copy(stages + slot * Plan::kStageBytes, key_tiles + static_cast<int64_t>(first) * Plan::kTileBytes,
              count * Plan::kTileBytes, barrier);
  };
  if (threadIdx.x == 0) {
    *open_here = 0;
    barrier_init(query_barrier, 1);
    for (int n = 0; n < kStages; ++n)
      barrier_init(full + 8 * n, 1), barrier_init(unused + 8 * n, Plan::kThreads / 32);
    publish_barriers();
  }
  const auto* const queries =
      Plan::kSplit ? nullptr : reinterpret_cast<const __nv_bfloat16*>(p.query_membership.head(item, head));
  const int query_count = p.shape.queries;
  uint32_t held[Plan::kHeld ? Plan::C / 4 : 1];
  if constexpr (Plan::kHeld) {
#pragma unroll
    for (int n = 0; n < Plan::C / 4; ++n) {
      const int at = row + 8 * (n & 1), cluster = n / 4 * 16 + (n & 2) * 4 + 2 * (lane % 4);
      held[n] =
          at < query_count
              ? *reinterpret_cast<const uint32_t*>(queries + at * p.query_membership.row_stride + cluster)
              : 0;
    }
  } else if constexpr (!Plan::kSplit) {
#pragma unroll
    for (int n = 0; n < Plan::kGroups; ++n)
      copy_tile<kWidth, 64, Plan::kThreads>(base + n * Plan::kTileBytes, queries,
                                            p.query_membership.row_stride,
                                            (blockIdx.x * Plan::kGroups + n) * 64, query_count);
    copies_commit();
    copies_wait<0>();
    publish_copies();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    if constexpr (Plan::kSplit) {
      const int first = blockIdx.x * Plan::kGroups;
      const uint32_t bytes = min(Plan::kGroups, row_tiles - first) * Plan::kTileBytes;
      barrier_expect(query_barrier, bytes);
      bulk_copy(base,
                reinterpret_cast<const uint8_t*>(p.query_tiles) +
                    (static_cast<int64_t>(head_index) * row_tiles + first) * Plan::kTileBytes,
                bytes, query_barrier);
    }
    for (int n = 0; n < kStages; ++n) load_stage(n);
  }

  // The random numbers of a tile: for each of the lane's two rows, two calls of eight pairs.
  const RowNumbers random(p.edge_keys[head_index], row);
  PairWords numbers[2][2];
  uint32_t call = lane % 4;
  const auto draw = [&] {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) numbers[half][n] = random.words(call + 4 * n, half);
    call += 8;
  };
  const float shift = 128 + (kPoisson ? 0 : p.exploration) + kError * 0x1.0p-16f;
  uint32_t minus_128 = 0xC3000000u;
  keep(minus_128);  // as an immediate it would displace the selector of the permutation
  const auto minus_number = [&](int j, int e) {
    const uint32_t source = numbers[e >> 1][j / 4].word[j % 4];
    return __uint_as_float(__byte_perm(source, minus_128, e & 1 ? 0x7632 : 0x7610)) + shift;
  };
  const uint32_t region = __float_as_uint((1 + 2 * kError) * 0x1.0p-16f);
  uint32_t* words =
      p.tiles +
      (static_cast<int64_t>(head_index) * row_tiles + (has_rows ? row_tile : 0)) * column_tiles * kTileWords +
      warp * 32 + lane;
  const uint32_t* column_words =
      p.column_words + static_cast<int64_t>(item) * column_tiles * 4 + lane % 4;  // of the lane, tile by tile
  unsigned count = 0;
  float result[32];
  if constexpr (Plan::kSplit) barrier_wait(query_barrier, 0);
  int slot = 0;
  uint32_t parity = 0;
  for (int index = 0; index * kTiles < column_tiles; ++index) {
    if (threadIdx.x == 0 && index > 0) {
      // Everyone is done with the last stage: its place takes the one that follows those on the way.
      barrier_wait(unused + 8 * ((index - 1) % kStages), (index - 1) / kStages & 1);
      load_stage(index - 1 + kStages);
    }
    barrier_wait(full + 8 * slot, parity);
    const int stop = min((index + 1) * kTiles, column_tiles);
    uint32_t key_tile = stages + slot * Plan::kStageBytes;
#pragma unroll 1
    for (int t = index * kTiles; t < stop; ++t) {
      if constexpr (!kPoisson) {
        draw();
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) result[4 * j + e] = minus_number(j, e);
      }
      settle(result);
      products_begin();
#pragma unroll
      for (int n = 0; n < Plan::kSteps; ++n) {
        const uint64_t keys = along_row<kWidth, 64>(key_tile, Plan::key_step(n));
        if constexpr (Plan::kHeld)
          score_product(result, held + 4 * n, keys, !kPoisson || n > 0);
        else
          score_product(result, along_row<kWidth, 64>(query_tile, Plan::query_step(n)), keys,
                        !kPoisson || n > 0);
      }
      products_commit();
      if constexpr (kPoisson) draw();
      uint32_t allowed = __ldg(column_words) & row_word;
      key_tile += Plan::kTileBytes;
      column_words += 4;
      if (p.is_causal && t >= row_tile) allowed &= causal_bits(row, t, lane);
      products_wait<0>();
      settle(result);
      if constexpr (kPoisson) {
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& x = result[4 * j + e];
            x = 1 - exp2_fast(fminf(x + p.exploration, 1) * -1.44269504f);
            x += minus_number(j, e);
          }
      }

      // Saturated to a byte, a positive float is 255 and a negative one 0.
      uint32_t word = 0, nearest[2] = {~0u, ~0u};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint32_t a = __float_as_uint(result[4 * j]), b = __float_as_uint(result[4 * j + 1]),
                       c = __float_as_uint(result[4 * j + 2]), d = __float_as_uint(result[4 * j + 3]);
        nearest[0] = __vimin3_u32(nearest[0], a, b);
        nearest[1] = __vimin3_u32(nearest[1], c, d);
        word |= saturated_bytes(a, b, c, d) & 0x01010101u << (7 - j);
      }
      word &= allowed;
      if (min(nearest[0], nearest[1]) <= region) {  // rare
        uint32_t open = 0;
#pragma unroll
        for (int e = 3; e >= 0; --e)
#pragma unroll
          for (int j = 0; j < 8; ++j) open = open << 1 | (__float_as_uint(result[4 * j + e]) <= region);
        open &= allowed;
        word &= ~open;
        for (; open; open &= open - 1) {
          const int place = __ffs(static_cast<int>(open)) - 1, e = place / 8, j = 7 - place % 8;
          const int row_here = group * 64 + warp * 16 + lane / 4 + 8 * (e >> 1);
          const uint32_t column = t * 64 + 8 * j + 2 * (lane % 4) + (e & 1);
          const unsigned here = atomicAdd(open_here, 1u);
          if (here < kOpenPlaces)
            open_here[1 + here] = static_cast<uint32_t>(row_here) << 25 | column;
          else
            leave_open(p, atomicAdd(p.open_count, 1ull), head_index, blockIdx.x * Plan::kRows + row_here,
                       column);
        }
      }
      count += __popc(word);
      if (has_rows) *words = word;
      words += kTileWords;
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(unused + 8 * slot);
    if (++slot == kStages) slot = 0, parity ^= 1;
  }
  __syncthreads();
  __shared__ unsigned long long first_open;
  const unsigned waiting = min(*open_here, static_cast<unsigned>(kOpenPlaces));
  if (threadIdx.x == 0 && waiting)
    first_open = atomicAdd(p.open_count, static_cast<unsigned long long>(waiting));
  __syncthreads();
  for (unsigned n = threadIdx.x; n < waiting; n += Plan::kThreads)
    leave_open(p, first_open + n, head_index, blockIdx.x * Plan::kRows + (open_here[1 + n] >> 25),
               open_here[1 + n] & 0x1FFFFFF);
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
    if (drawn_by_thinning(p, head_index, row)) continue;
    const uint32_t word = exact_word(p, head_index, row, static_cast<int>(tile % column_tiles), lane);
    const long long more = __popc(word) - __popc(p.tiles[n]);
    p.tiles[n] = word;
    if (more)
      atomicAdd(reinterpret_cast<unsigned long long*>(p.edge_counts + head_index),
                static_cast<unsigned long long>(more));
  }
}

template <int C, bool kSplit, bool kPoisson>
cudaError_t launch(const TileSampleParams& p, cudaStream_t stream) {
  using Plan = Plan<C, kSplit>;
  auto* const kernel = tile_sample<Plan, kPoisson>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
  if (ready != cudaSuccess) return ready;
  const dim3 grid((p.shape.queries + Plan::kRows - 1) / Plan::kRows, p.shape.batch * p.shape.heads);
  if (grid.x == 0 || grid.y == 0 || p.shape.keys == 0) return cudaSuccess;
  if (p.shape.keys >= 1 << 25) return cudaErrorInvalidValue;
  if (p.thin.blocks)
    if (const int error = launch_thin_sample(p, stream); error != cudaSuccess)
      return static_cast<cudaError_t>(error);
  launch_mark_columns(p.shape, p.key_mask, p.column_words, stream);
  const auto stage = [&](const HeadTensor<const Bf16>& rounded, const HeadTensor<const float>& exact,
                         int64_t tokens, Bf16* to) {
    const int64_t chunks = p.shape.batch * p.shape.heads * ((tokens + 63) / 64) * 64 * (C / 8);
    stage_memberships<Plan><<<static_cast<unsigned>((chunks + 255) / 256), 256, 0, stream>>>(
        rounded, exact, static_cast<int>(p.shape.heads), static_cast<int>(tokens), chunks,
        p.thin.direct_blocks, to);
  };
  if (kSplit) stage(p.query_membership, p.exact_query_membership, p.shape.queries, p.query_tiles);
  stage(p.key_side, p.exact_key_side, p.shape.keys, p.key_tiles);
  kernel<<<grid, Plan::kThreads, Plan::kBytes, stream>>>(p);
  decide_open<<<264, 256, 0, stream>>>(p);
  return cudaGetLastError();
}

template <int C>
cudaError_t launch_clusters(const TileSampleParams& p, cudaStream_t stream) {
  if (p.exact_query_membership.data)
    return p.poisson ? launch<C, true, true>(p, stream) : launch<C, true, false>(p, stream);
  return p.poisson ? launch<C, false, true>(p, stream) : launch<C, false, false>(p, stream);
}

}  // namespace

bool tile_sample_takes(int64_t clusters) {
  return clusters == 16 || clusters == 32 || clusters == 64 || clusters == 128 || clusters == 256;
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
