// The rooted walk of SacEdges in blocks on CUDA, for up to 64 blocks of up to 64 keys, with the equations of
// cpu/block_walk_level.cpp: every product of a step runs on tensor cores in bf16, on inputs that a first
// launch (pack_walk) has put into the order of their fragments.
//
// A tile of four warps has 16 rows. A step:
//   1. LSTM: 16 rows times [2P, 4P]; a warp has eight units, of which a lane ends up with all four gates, so
//      that cells stay in registers. h is kept in two bf16 terms.
//   2. scores of all blocks: a warp has 16 blocks of all 16 rows, and leaves them in shared memory.
//   3. four rows a warp, eight lanes each: a block is drawn; then the keys of the four blocks are the left
//      sides of 32 products whose right side has the two terms of the four states as its eight columns
//      (zeros but for the row's own two), so that each lane finds the scores of eight keys of its row.
//
// Keys are read through the first-level cache, 4 KB a prediction in one term: a multiprocessor works on rows
// of one unit, whose keys in one term nearly fit.
#include "kernels/cuda/walk_common.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kRows = 16, kWarps = 4, kTileThreads = 32 * kWarps, kMostTiles = 4;
constexpr int kScoreStride = kPackedBlocks + 8;     // floats
constexpr int kKeyPieces = kPackedBlock * P / 8;    // 16-byte pieces of a block of keys, a term
constexpr int kMeanPieces = kPackedBlocks * P / 8;  // of the means, a term
constexpr int kWeightPieces = 2 * P * 4 * P / 8;    // of the LSTM's weights, a term
constexpr int kNone = 0x40000000;                   // no key

__host__ __device__ constexpr int64_t round_up(int64_t x, int64_t to) {
  return (x + to - 1) / to * to;
}

// ---- the workspace ----
// Which of the P numbers a lane holds is free as long as both sides of a product agree: lane t of four has
// numbers 8 t .. 8 t + 7, a 16-byte piece. mma step s takes 8 t + 4 s .. + 3 of them.
//   keys     [U, N, terms, 4 tiles, 2 steps, 32 lanes]: row g of tile j is key 8 g + 2 j, row g + 8 the next
//   means    [U, 2 terms, 64, P]
//   weights  [G, terms, 4 warps, 2 units, 2 pairs of gates, 2 sides, 32 lanes]
//   distance [G, 4, stride]: copy c begins at entry c, so that any run can be read 16 bytes at a time
struct Packed {
  uint4 *keys, *means, *weights;
  float *distance, *block_distance;
  int stride;  // of a copy of the distances
  int64_t bytes;

  __host__ __device__ explicit Packed(const PackedWalkParams& p) {
    const int64_t units = static_cast<int64_t>(p.walk.batch) * p.walk.groups;
    char* at = static_cast<char*>(p.workspace);
    const auto take = [&](int64_t size) {
      char* const from = at;
      at += round_up(size, 16);
      return from;
    };
    keys = reinterpret_cast<uint4*>(take(units * p.walk.blocks * p.terms * kKeyPieces * 16));
    means = reinterpret_cast<uint4*>(take(units * 2 * kMeanPieces * 16));
    weights = reinterpret_cast<uint4*>(take(int64_t{p.walk.groups} * p.terms * kWeightPieces * 16));
    stride = p.distance.count > 0 ? static_cast<int>(round_up(p.distance.count + kPackedBlock, 4)) : 0;
    distance = reinterpret_cast<float*>(take(int64_t{p.walk.groups} * 4 * stride * 4));
    block_distance = reinterpret_cast<float*>(take(int64_t{p.walk.groups} * p.block_distance.count * 4));
    bytes = at - static_cast<char*>(p.workspace);
  }
};

// Two numbers in two bf16 terms, the first number in the lower half.
struct Bf16Terms {
  uint32_t high, low;
  __device__ __forceinline__ Bf16Terms(float x, float y) {
    high = pair(x, y);
    low = pair(x - __uint_as_float(high << 16), y - __uint_as_float(high & 0xFFFF0000u));
  }
  static __device__ __forceinline__ uint32_t pair(float x, float y) {
    uint32_t result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(y), "f"(x));
    return result;
  }
};
__device__ __forceinline__ float rounded_to_bf16(float x) {
  return __uint_as_float(Bf16Terms::pair(x, 0.f) << 16);
}
__device__ __forceinline__ float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

__device__ __forceinline__ void mma_bf16(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- packing ----

constexpr int kPackThreads = 256, kEmbedStep = 64, kNodePitch = P + 1, kOtherBlocks = 16;

// Nodes of the keys of block b into shared memory, rounded where terms is 1; zeros beyond its end.
__device__ __forceinline__ void make_nodes(const PackedWalkParams& p, int unit, int block,
                                           float (&nodes)[kPackedBlock][kNodePitch]) {
  __shared__ __align__(16) float tokens[kPackedBlock][kEmbedStep + 4];
  __shared__ __align__(16) float weights[kEmbedStep][P];
  const RootedParams& walk = p.walk;
  const NodeSource& source = p.source;
  const int begin = block * walk.block, size = min(walk.block, walk.keys - begin),
            thread = static_cast<int>(threadIdx.x);
  const auto keep = [&](int key, int number, float x) {
    nodes[key][number] = key < size ? (p.terms == 1 ? rounded_to_bf16(x) : x) : 0.f;
  };
  if (walk.key_nodes) {
    const float* const from = walk.key_nodes + (static_cast<int64_t>(unit) * walk.keys + begin) * P;
    for (int n = thread; n < kPackedBlock * P; n += kPackThreads)
      keep(n / P, n % P, n / P < size ? from[n] : 0.f);
    __syncthreads();
    return;
  }
  // Two keys and four numbers a thread.
  const int key = thread / 8, column = thread % 8 * 4, item = unit / walk.groups, group = unit % walk.groups;
  const float4 bias = *reinterpret_cast<const float4*>(source.bias + group * P + column);
  float4 sum[2] = {bias, bias};
  const int64_t first = (static_cast<int64_t>(item) * walk.keys + begin) * source.embed;
  for (int from = 0; from < source.embed; from += kEmbedStep) {
    const int width = min(kEmbedStep, source.embed - from);
    for (int n = thread; n < kPackedBlock * kEmbedStep / 4; n += kPackThreads) {
      const int row = n / (kEmbedStep / 4), e = n % (kEmbedStep / 4) * 4;
      float4 x = make_float4(0, 0, 0, 0);
      if (row < size && e < width) {
        const int64_t at = first + static_cast<int64_t>(row) * source.embed + from + e;
        if (source.tokens) {
          x = *reinterpret_cast<const float4*>(source.tokens + at);
        } else {
          const uint2 pairs = *reinterpret_cast<const uint2*>(source.bf16_tokens + at);
          x = make_float4(low_half(pairs.x), high_half(pairs.x), low_half(pairs.y), high_half(pairs.y));
        }
      }
      *reinterpret_cast<float4*>(&tokens[row][e]) = x;
    }
    for (int n = thread; n < kEmbedStep * P / 4; n += kPackThreads) {
      const int e = n / (P / 4);
      reinterpret_cast<float4*>(weights)[n] =
          e < width ? reinterpret_cast<const float4*>(
                          source.weight + (static_cast<int64_t>(group) * source.embed + from) * P)[n]
                    : make_float4(0, 0, 0, 0);
    }
    __syncthreads();
#pragma unroll 4
    for (int e = 0; e < kEmbedStep; e += 4) {
      float x[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 four = *reinterpret_cast<const float4*>(&tokens[key + 32 * half][e]);
        x[half][0] = four.x, x[half][1] = four.y, x[half][2] = four.z, x[half][3] = four.w;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float4 w = *reinterpret_cast<const float4*>(&weights[e + k][column]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          sum[half].x = fmaf(x[half][k], w.x, sum[half].x), sum[half].y = fmaf(x[half][k], w.y, sum[half].y);
          sum[half].z = fmaf(x[half][k], w.z, sum[half].z), sum[half].w = fmaf(x[half][k], w.w, sum[half].w);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float value[4] = {sum[half].x, sum[half].y, sum[half].z, sum[half].w};
#pragma unroll
    for (int n = 0; n < 4; ++n) keep(key + 32 * half, column + n, value[n]);
  }
  __syncthreads();
  if (source.nodes)
    for (int n = thread; n < size * P; n += kPackThreads)
      source.nodes[(static_cast<int64_t>(unit) * walk.keys + begin) * P + n] = nodes[n / P][n % P];
}

__device__ __forceinline__ void pack_block(const PackedWalkParams& p, const Packed& packed, int unit,
                                           int block) {
  __shared__ float nodes[kPackedBlock][kNodePitch];
  __shared__ float sums[kPackThreads / 32][P];
  make_nodes(p, unit, block, nodes);
  const RootedParams& walk = p.walk;
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x / 32);
  {
    const int tile = warp / 2, step = warp % 2, key = 8 * (lane / 4) + 2 * tile,
              n = 8 * (lane % 4) + 4 * step;
    const Bf16Terms x(nodes[key][n], nodes[key][n + 1]), y(nodes[key + 1][n], nodes[key + 1][n + 1]),
        z(nodes[key][n + 2], nodes[key][n + 3]), w(nodes[key + 1][n + 2], nodes[key + 1][n + 3]);
    uint4* const to =
        packed.keys + (static_cast<int64_t>(unit) * walk.blocks + block) * p.terms * kKeyPieces + threadIdx.x;
    to[0] = make_uint4(x.high, y.high, z.high, w.high);
    if (p.terms == 2) to[kKeyPieces] = make_uint4(x.low, y.low, z.low, w.low);
  }
  // The mean over the keys that the mask allows.
  const int begin = block * walk.block, end = min(begin + walk.block, walk.keys);
  const int32_t* const before =
      walk.span.open_before
          ? walk.span.open_before + static_cast<int64_t>(unit / walk.groups) * (walk.keys + 1)
          : nullptr;
  float sum = 0;
  for (int j = begin + warp; j < end; j += kPackThreads / 32)
    if (!before || before[j + 1] != before[j]) sum += nodes[j - begin][lane];
  sums[warp][lane] = sum;
  __syncthreads();
  uint16_t* const means =
      reinterpret_cast<uint16_t*>(packed.means + static_cast<int64_t>(unit) * 2 * kMeanPieces);
  constexpr int kTerm = kPackedBlocks * P;  // numbers
  if (warp == 0) {
    for (int w = 1; w < kPackThreads / 32; ++w) sum += sums[w][lane];
    const int count = before ? before[end] - before[begin] : end - begin;
    const float mean = sum / static_cast<float>(max(count, 1));
    if (walk.means)
      const_cast<float*>(walk.means)[(static_cast<int64_t>(unit) * walk.blocks + block) * P + lane] = mean;
    const Bf16Terms terms(mean, 0.f);
    means[block * P + lane] = static_cast<uint16_t>(terms.high);
    means[kTerm + block * P + lane] = static_cast<uint16_t>(terms.low);
  } else if (block == 0) {  // nothing beyond the last block
    for (int n = walk.blocks * P + static_cast<int>(threadIdx.x) - 32; n < kTerm; n += kPackThreads - 32)
      means[n] = means[kTerm + n] = 0;
  }
}

// LSTM weights and distances.
__device__ __forceinline__ void pack_others(const PackedWalkParams& p, const Packed& packed, int first,
                                            int by) {
  const RootedParams& walk = p.walk;
  for (int at = first; at < walk.groups * kWeightPieces; at += by) {
    const int group = at / kWeightPieces, n = at % kWeightPieces, lane = n % 32, side = n / 32 % 2,
              pair = n / 64 % 2, which = n / 128 % 2, warp = n / 256;
    const int unit = 8 * warp + lane / 4 / 2 * 2 + which, gate = 2 * pair + lane / 4 % 2;
    const float* const from = (side ? walk.lstm.weight_hh : walk.lstm.weight_ih) +
                              static_cast<int64_t>(group) * P * 4 * P + lane % 4 * 8 * 4 * P + gate * P +
                              unit;
    uint32_t high[4], low[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Bf16Terms terms(from[2 * k * 4 * P], from[(2 * k + 1) * 4 * P]);
      high[k] = terms.high, low[k] = terms.low;
    }
    uint4* const to = packed.weights + static_cast<int64_t>(group) * p.terms * kWeightPieces + n;
    to[0] = make_uint4(high[0], high[1], high[2], high[3]);
    if (p.terms == 2) to[kWeightPieces] = make_uint4(low[0], low[1], low[2], low[3]);
  }
  const auto value = [](const DistanceSource& source, int group, int at) {
    if (source.values) return source.values[static_cast<int64_t>(group) * source.count + at];
    return source.table[group * source.buckets + source.bucket[at]];
  };
  for (int at = first; at < walk.groups * 4 * packed.stride; at += by) {
    const int copy = at / packed.stride, n = at % packed.stride + copy % 4;
    packed.distance[at] = n < p.distance.count ? value(p.distance, copy / 4, n) : 0.f;
  }
  const int blocks = p.block_distance.count;
  for (int at = first; at < walk.groups * blocks; at += by)
    packed.block_distance[at] = value(p.block_distance, at / blocks, at % blocks);
}

__global__ void __launch_bounds__(kPackThreads) pack_walk(const __grid_constant__ PackedWalkParams p) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");  // it waits for the end of this grid
  const Packed packed(p);
  const int block = static_cast<int>(blockIdx.x), unit = static_cast<int>(blockIdx.y);
  if (block < p.walk.blocks)
    pack_block(p, packed, unit, block);
  else if (unit == 0)
    pack_others(p, packed, (block - p.walk.blocks) * kPackThreads + static_cast<int>(threadIdx.x),
                kOtherBlocks * kPackThreads);
}

// ---- eight lanes ----
// Lane 4 g + t belongs to row t of its warp, and has places 8 g .. 8 g + 7 of it.

__device__ __forceinline__ float row_max(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, step));
  return x;
}
__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
}
__device__ __forceinline__ uint32_t row_ballot(bool x) {  // bit 4 g
  return __ballot_sync(kAll, x) >> lane_id() % 4 & 0x11111111u;
}

struct Draw {
  int place;
  float top, total, weighted, score;  // the last two: where sums are wanted
  __device__ __forceinline__ float normaliser() const { return top + __logf(total); }
  __device__ __forceinline__ float entropy() const { return normaliser() - __fdividef(weighted, total); }
};
// Forbidden places have scores of kForbidden or so.
template <bool kSums>
__device__ __forceinline__ Draw draw(const float (&score)[8], WalkChoice choice, float uniform) {
  const int lane = lane_id(), first = lane / 4 * 8;
  Draw result{};
  float most = score[0];
#pragma unroll
  for (int n = 1; n < 8; ++n) most = fmaxf(most, score[n]);
  result.top = row_max(most);
  float running[8], weighted = 0;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    running[n] = __expf(score[n] - result.top);
    if constexpr (kSums) weighted = fmaf(running[n], score[n], weighted);
  }
#pragma unroll
  for (int n = 1; n < 8; ++n) running[n] += running[n - 1];
  float up_to = running[7];  // over the lanes of the row up to this one
#pragma unroll
  for (int step = 4; step < 32; step *= 2) {
    const float before = __shfl_up_sync(kAll, up_to, step);
    if (lane >= step) up_to += before;
  }
  result.total = __shfl_sync(kAll, up_to, 28 + lane % 4);
  uint32_t passed = 0;
  if (choice == WalkChoice::kSample) {
    float before = __shfl_up_sync(kAll, up_to, 4);
    if (lane < 4) before = 0;
    // Not below 0, so that no place without a share passes.
    const float rest = fmaxf(fmaf(uniform, result.total, -before), 0.f);
    passed = row_ballot(running[7] > rest);
    int place = first;  // the first whose running sum passes the target
#pragma unroll
    for (int n = 0; n < 7; ++n) place += running[n] <= rest;
    result.place = __shfl_sync(kAll, place, passed ? __ffs(static_cast<int>(passed)) - 1 + lane % 4 : lane);
  }
  if (__any_sync(kAll, passed == 0)) {  // the likeliest; ties go to the smaller place
    float best = kForbidden;            // which a number that is none does not pass
    int place = first;
#pragma unroll
    for (int n = 0; n < 8; ++n)
      if (score[n] > best) best = score[n], place = first + n;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      const float other = __shfl_xor_sync(kAll, best, step);
      const int other_place = __shfl_xor_sync(kAll, place, step);
      if (other > best || (other == best && other_place < place)) best = other, place = other_place;
    }
    place = __shfl_sync(kAll, place, lane % 4);
    if (passed == 0) result.place = place;
  }
  if constexpr (kSums) {
    float own = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n)
      if (first + n == result.place) own = score[n];
    result.weighted = row_sum(weighted);
    result.score = row_sum(own);
  }
  return result;
}

// e^-x, of at most 2^40, so that three of them can be multiplied.
__device__ __forceinline__ float falling(float x, float scale) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(fminf(x * scale, 40.f)));
  return result;
}
__device__ __forceinline__ float inverse(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// The cell and h of one unit from its gates: sigmoid(x) = 1 / (1 + e^-x), tanh(x) = (1 - e^-2x) / (1 +
// e^-2x), with one division for each of the two results.
__device__ __forceinline__ float lstm_unit(float i, float f, float g, float o, float& cell) {
  constexpr float kOne = -1.4426950408889634f, kTwo = 2 * kOne;
  const float ei = 1.f + falling(i, kOne), ef = 1.f + falling(f, kOne), eg = falling(g, kTwo),
              eo = 1.f + falling(o, kOne);
  const float both = ei * (1.f + eg);
  cell = fmaf(cell, both, (1.f - eg) * ef) * inverse(both * ef);
  const float ec = falling(cell, kTwo);
  return (1.f - ec) * inverse(eo * (1.f + ec));
}

// 1 << place, or 0 from 32 on: C++ does not say so, the instruction does.
__device__ __forceinline__ uint32_t bit_or_none(int place) {
  uint32_t result;
  asm("shl.b32 %0, %1, %2;" : "=r"(result) : "r"(1), "r"(place));
  return result;
}

// ---- the walk ----

// Shared memory, in bytes: weights and means, then a tile's inputs, states, scores and lists.
struct Shared {
  int tiles, inputs, states, scores, lists, tile_bytes, list_stride, bytes;
  __host__ __device__ Shared(int terms, int steps, int count) {
    tiles = (terms * kWeightPieces + 2 * kMeanPieces) * 16;
    inputs = 0;
    states = inputs + terms * kRows * P * 2;
    scores = states + 2 * kRows * P * 2;
    lists = scores + kRows * kScoreStride * 4;
    list_stride = static_cast<int>(round_up(steps, 8));
    tile_bytes = lists + kRows * list_stride * 4;
    bytes = tiles + count * tile_bytes;
  }
};

// The left side of 16 rows in shared memory: pieces of rows g and g + 8.
struct LeftRows {
  uint4 upper, lower;
  __device__ __forceinline__ explicit LeftRows(const uint4* rows) {
    upper = rows[lane_id()];
    lower = rows[32 + lane_id()];
  }
  __device__ __forceinline__ void multiply(float (&sum)[4], const uint4& right) const {
    mma_bf16(sum, upper.x, lower.x, upper.y, lower.y, right.x, right.y);
    mma_bf16(sum, upper.z, lower.z, upper.w, lower.w, right.z, right.w);
  }
};

// kGeneral: ranges, masks, and walks that are learnt from. Elsewhere every key of every block is a candidate
// until it is chosen, and nothing but the sorted keys is asked for.
// kRoom: tiles a thread block at most; the fewer, the more registers.
template <int kTerms, bool kGeneral, int kRoom>
__global__ void __launch_bounds__(kTileThreads* kRoom, 1)
    packed_walk(const __grid_constant__ PackedWalkParams given) {
  extern __shared__ __align__(16) char shared[];
  const RootedParams& p = given.walk;
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), g = lane / 4, t = lane % 4,
            warp = thread / 32 % kWarps, tile = thread / kTileThreads,
            tiles = static_cast<int>(blockDim.x) / kTileThreads;
  const Shared plan(kTerms, p.steps, tiles);
  const Packed packed(given);
  const int unit = static_cast<int>(blockIdx.y), item = unit / p.groups, group = unit % p.groups;
  const uint64_t key = stream_key_of(p.stream, item, group);
  const int first_row = (static_cast<int>(blockIdx.x) * tiles + tile) * kRows, local = 4 * warp + t;

  asm volatile("griddepcontrol.wait;" ::: "memory");
  uint4* const weights = reinterpret_cast<uint4*>(shared);
  uint4* const means = weights + kTerms * kWeightPieces;
  {
    const uint4* const from = packed.weights + static_cast<int64_t>(group) * kTerms * kWeightPieces;
    for (int n = thread; n < kTerms * kWeightPieces; n += static_cast<int>(blockDim.x)) weights[n] = from[n];
    const uint4* const from_means = packed.means + static_cast<int64_t>(unit) * 2 * kMeanPieces;
    for (int n = thread; n < 2 * kMeanPieces; n += static_cast<int>(blockDim.x)) means[n] = from_means[n];
  }
  char* const own = shared + plan.tiles + tile * plan.tile_bytes;
  uint4* const inputs = reinterpret_cast<uint4*>(own + plan.inputs);  // [terms, 16, 4]
  uint4* const states = reinterpret_cast<uint4*>(own + plan.states);  // [2, 16, 4]
  float* const scores = reinterpret_cast<float*>(own + plan.scores);
  int* const list = reinterpret_cast<int*>(own + plan.lists) + local * plan.list_stride;
  constexpr int kMatrix = kRows * P / 8;  // pieces of 16 rows, a term
  const auto wait = [&] { asm volatile("bar.sync %0, 128;" ::"r"(1 + tile) : "memory"); };

  // Nodes of keys as the packed blocks have them: lane g writes numbers 4 g .. of row `local`.
  const uint32_t* const unit_keys = reinterpret_cast<const uint32_t*>(
      packed.keys + static_cast<int64_t>(unit) * p.blocks * kTerms * kKeyPieces);
  const auto take_input = [&](int block, int place) {
    const uint32_t* const from = unit_keys + static_cast<int64_t>(block) * kTerms * kKeyPieces * 4 +
                                 ((place % 8 / 2 * 2 + g % 2) * 32 + place / 8 * 4 + g / 2) * 4 + place % 2;
#pragma unroll
    for (int term = 0; term < kTerms; ++term)
      reinterpret_cast<uint2*>(inputs + term * kMatrix)[local * (P / 4) + g] =
          make_uint2(__ldg(from + term * kKeyPieces * 4), __ldg(from + term * kKeyPieces * 4 + 2));
  };

  WalkRow row{first_row + local, 0, 0, first_row + local < p.queries, false};
  const int known_query = min(row.query, p.queries - 1);
  const Candidates candidates(p.span, item, known_query, p.keys);
  int count = 0;
  if (row.exists) {
    row.limit = p.limits ? static_cast<int>(min(p.limits[static_cast<int64_t>(item) * p.queries + row.query],
                                                static_cast<int64_t>(p.steps)))
                         : p.limit;
    count = row.limit > 0 ? candidates.count() : 0;
    row.choosing = count > (p.duplicates ? 1 : row.limit);
  }
  for (int e = g; e < plan.list_stride; e += 8) list[e] = kNone;
  __syncwarp();
  // A row that takes all its candidates.
  const bool takes_all = count > 0 && !row.choosing;
  for (int begin = candidates.lo; __any_sync(kAll, takes_all && begin < candidates.hi); begin += 8) {
    const bool is_candidate = takes_all && begin + g < candidates.hi && candidates.contains(begin + g);
    const uint32_t found = row_ballot(is_candidate);
    if (is_candidate) list[row.made + __popc(found & ((1u << 4 * g) - 1))] = begin + g;
    row.made += __popc(found);
  }
  if (p.query_nodes) {
    const float4 x = reinterpret_cast<const float4*>(
        p.query_nodes + (static_cast<int64_t>(unit) * p.queries + known_query) * P)[g];
    const Bf16Terms low(x.x, x.y), high(x.z, x.w);
    reinterpret_cast<uint2*>(inputs)[local * (P / 4) + g] = make_uint2(low.high, high.high);
    if constexpr (kTerms == 2)
      reinterpret_cast<uint2*>(inputs + kMatrix)[local * (P / 4) + g] = make_uint2(low.low, high.low);
  } else {
    take_input(known_query / p.block, known_query % p.block);
  }
  float block_bias[8];  // kForbidden: no candidate is left there
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int b = 8 * g + n;
    const bool open =
        b < p.blocks && (!kGeneral || candidates.count(b * p.block, min((b + 1) * p.block, p.keys)) > 0);
    block_bias[n] = !open ? kForbidden
                    : given.block_distance.count == 0
                        ? 0.f
                        : packed.block_distance[group * given.block_distance.count + p.block_farthest -
                                                (known_query + p.span.offset) / p.block + b];
  }
  int partial[kGeneral ? kMostPartialBlocks : 1];
  float4 partial_mean[kGeneral ? kMostPartialBlocks : 1];  // numbers 4 g ..
  if constexpr (kGeneral) {
    const float* const nodes = p.key_nodes ? p.key_nodes : given.source.nodes;
#pragma unroll
    for (int k = 0; k < kMostPartialBlocks; ++k) {
      partial[k] = row.choosing ? candidates.partial(k, p.block, p.keys) : -1;
      partial_mean[k] = make_float4(0, 0, 0, 0);
      if (partial[k] >= 0)
        partial_mean[k] =
            mean_of_partial(candidates, p, nodes + static_cast<int64_t>(unit) * p.keys * P, partial[k], g);
    }
  }
  float gate_bias[2][4], cell[2][2] = {};  // of units 8 warp + 2 t and the next; rows g, g + 8
#pragma unroll
  for (int u = 0; u < 2; ++u)
#pragma unroll
    for (int n = 0; n < 4; ++n)
      gate_bias[u][n] = __ldg(p.lstm.bias + group * 4 * P + n * P + 8 * warp + 2 * t + u);
  __syncthreads();
  if (first_row >= p.queries) return;  // the other tiles have barriers of their own

  float gates[2][2][4];  // i, f and g, o; of two rows
  const auto add_gates = [&](const LeftRows& left, int side, int term) {
#pragma unroll
    for (int u = 0; u < 2; ++u)
#pragma unroll
      for (int pair = 0; pair < 2; ++pair)
        left.multiply(gates[u][pair],
                      weights[term * kWeightPieces + (((warp * 2 + u) * 2 + pair) * 2 + side) * 32 + lane]);
  };
  const auto start_gates = [&] {
#pragma unroll
    for (int u = 0; u < 2; ++u)
#pragma unroll
      for (int pair = 0; pair < 2; ++pair)
#pragma unroll
        for (int n = 0; n < 4; ++n) gates[u][pair][n] = gate_bias[u][2 * pair + n % 2];
  };
  start_gates();
  float key_uniform = 0, block_uniform = 0;  // lane g: of the g-th of eight steps

  for (int step = 0; step < p.steps; ++step) {
    wait();  // inputs are there
    {
      const LeftRows high(inputs);
      add_gates(high, 0, 0);
      if constexpr (kTerms == 2) {
        add_gates(high, 0, 1);
        add_gates(LeftRows(inputs + kMatrix), 0, 0);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float h[2];
#pragma unroll
        for (int u = 0; u < 2; ++u)
          h[u] = lstm_unit(gates[u][0][2 * r], gates[u][0][2 * r + 1], gates[u][1][2 * r],
                           gates[u][1][2 * r + 1], cell[u][r]);
        const Bf16Terms terms(h[0], h[1]);
        uint32_t* const to = reinterpret_cast<uint32_t*>(states) + (g + 8 * r) * (P / 2) + 4 * warp + t;
        to[0] = terms.high;
        to[kMatrix * 4] = terms.low;
      }
    }
    wait();  // states are there
    {
      const LeftRows high(states), low(states + kMatrix);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = 2 * warp + half;  // eight blocks
        const uint4 mean = means[column * 32 + lane], rest = means[kMeanPieces + column * 32 + lane];
        float sum[4] = {}, others[4] = {};
        high.multiply(sum, mean);
        low.multiply(others, mean);
        high.multiply(others, rest);
        float* const to = scores + g * kScoreStride + 8 * column + 2 * t;
        *reinterpret_cast<float2*>(to) = make_float2(sum[0] + others[0], sum[1] + others[1]);
        *reinterpret_cast<float2*>(to + 8 * kScoreStride) =
            make_float2(sum[2] + others[2], sum[3] + others[3]);
      }
      start_gates();  // of the next step
      add_gates(high, 1, 0);
      add_gates(low, 1, 0);
      if constexpr (kTerms == 2) add_gates(high, 1, 1);
    }
    if (step % 8 == 0 && p.choice == WalkChoice::kSample) {
      const PairWords words =
          philox<10>(static_cast<uint32_t>(row.query), static_cast<uint32_t>(step + g), 0, kWalkLane, key);
      key_uniform = static_cast<float>(uniform_of(words.word[0], words.word[1]));
      block_uniform = static_cast<float>(uniform_of(words.word[2], words.word[3]));
    }
    wait();  // scores are there

    // Lanes of rows that do not choose go along; what they find is not looked at.
    const bool live = row.choosing && step < row.limit;
    const int64_t at = (static_cast<int64_t>(unit) * p.queries + row.query) * p.steps + step;
    float score[8];
    {
      const float4* const from = reinterpret_cast<const float4*>(scores + local * kScoreStride + 8 * g);
      const float4 low = from[0], high = from[1];
      score[0] = low.x, score[1] = low.y, score[2] = low.z, score[3] = low.w;
      score[4] = high.x, score[5] = high.y, score[6] = high.z, score[7] = high.w;
    }
    if constexpr (kGeneral) {
      const uint2 high = reinterpret_cast<const uint2*>(states)[local * (P / 4) + g],
                  low = reinterpret_cast<const uint2*>(states + kMatrix)[local * (P / 4) + g];
      const float4 h = make_float4(low_half(high.x) + low_half(low.x), high_half(high.x) + high_half(low.x),
                                   low_half(high.y) + low_half(low.y), high_half(high.y) + high_half(low.y));
      if (live && p.states) reinterpret_cast<float4*>(p.states + at * P)[g] = h;
#pragma unroll
      for (int k = 0; k < kMostPartialBlocks; ++k) {
        if (!__any_sync(kAll, partial[k] >= 0)) continue;
        const float4& mean = partial_mean[k];
        const float s = row_sum(fmaf(h.x, mean.x, fmaf(h.y, mean.y, fmaf(h.z, mean.z, h.w * mean.w))));
#pragma unroll
        for (int n = 0; n < 8; ++n)
          if (partial[k] == 8 * g + n) score[n] = s;
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) score[n] += block_bias[n];
    const Draw of_block = draw<kGeneral>(score, p.choice, __shfl_sync(kAll, block_uniform, step % 8 * 4 + t));
    const int block = min(of_block.place, p.blocks - 1), begin = block * p.block, from = begin + 8 * g;

    // Which of this lane's keys are open.
    uint32_t open = (1u << min(max(min(begin + p.block, candidates.hi) - from, 0), 8)) - 1;
    if constexpr (kGeneral) {
      open &= ~((1u << min(max(candidates.lo - from, 0), 8)) - 1) & ~bit_or_none(candidates.own - from);
      if (candidates.open_before)
        for (int k = 0; k < 8; ++k)
          if (open >> k & 1 && !candidates.open(from + k)) open &= ~(1u << k);
    }
    if (!p.duplicates)
      for (int k = 0; k < step; k += 8) {
        const int4 low = *reinterpret_cast<const int4*>(list + k),
                   high = *reinterpret_cast<const int4*>(list + k + 4);
        open &= ~(bit_or_none(low.x - from) | bit_or_none(low.y - from) | bit_or_none(low.z - from) |
                  bit_or_none(low.w - from) | bit_or_none(high.x - from) | bit_or_none(high.y - from) |
                  bit_or_none(high.z - from) | bit_or_none(high.w - from));
      }

    float sum[4][4] = {};  // tiles of keys
    {
      // Column g: of row g / 2 of this warp, term g % 2.
      const uint4 h = states[g % 2 * kMatrix + (4 * warp + g / 2) * 4 + t];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const uint4* const keys = reinterpret_cast<const uint4*>(unit_keys) +
                                  static_cast<int64_t>(__shfl_sync(kAll, block, r)) * kTerms * kKeyPieces +
                                  lane;
        const bool mine = g / 2 == r;
        const uint4 right = make_uint4(mine ? h.x : 0, mine ? h.y : 0, mine ? h.z : 0, mine ? h.w : 0);
#pragma unroll
        for (int term = 0; term < kTerms; ++term) {
          uint4 left[8];
#pragma unroll
          for (int n = 0; n < 8; ++n) left[n] = __ldg(keys + term * kKeyPieces + 32 * n);
#pragma unroll
          for (int n = 0; n < 8; ++n)
            mma_bf16(sum[n / 2], left[n].x, left[n].y, left[n].z, left[n].w, n % 2 ? right.z : right.x,
                     n % 2 ? right.w : right.y);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n)
      score[2 * n] = sum[n][0] + sum[n][1], score[2 * n + 1] = sum[n][2] + sum[n][3];
    if (given.distance.count > 0) {
      const int first = p.queries - 1 - known_query + from, copy = first % 4;
      const float4* const distance = reinterpret_cast<const float4*>(
          packed.distance + static_cast<int64_t>(group * 4 + copy) * packed.stride + first - copy);
      const float4 low = __ldg(distance), high = __ldg(distance + 1);
      score[0] += low.x, score[1] += low.y, score[2] += low.z, score[3] += low.w;
      score[4] += high.x, score[5] += high.y, score[6] += high.z, score[7] += high.w;
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) score[n] = open >> n & 1 ? score[n] : kForbidden;
    const Draw of_key = draw<kGeneral>(score, p.choice, __shfl_sync(kAll, key_uniform, step % 8 * 4 + t));
    // Numbers that are none must not lead outside.
    const int place = min(of_key.place, min(p.block, p.keys - begin) - 1), chosen = begin + place;
    if (live) take_input(block, place);
    if (live && g == 0) list[step] = chosen;
    __syncwarp();
    if (live) row.made = step + 1;
    if (!p.duplicates) {  // a block whose last candidate is taken closes
      const uint32_t left_over = row_ballot((open & ~bit_or_none(chosen - from)) != 0);
      if (live && left_over == 0) {
#pragma unroll
        for (int n = 0; n < 8; ++n)
          if (block == 8 * g + n) block_bias[n] = kForbidden;
      }
    }
    if constexpr (kGeneral) {
      if (live && p.log_prob && g == 0) {
        const float4 levels =
            make_float4(of_block.normaliser(), of_block.entropy(), of_key.normaliser(), of_key.entropy());
        p.log_prob[at] = of_block.score - levels.x + of_key.score - levels.z;
        p.entropy[at] = levels.y + levels.w;
        reinterpret_cast<float4*>(p.levels)[at] = levels;
      }
    }
  }
  write_row(p, unit, row, list, g);
}

template <int kTerms, bool kGeneral>
cudaError_t launch(const PackedWalkParams& p, cudaStream_t stream) {
  // Tiles a thread block, which is all a multiprocessor holds: as few as use every multiprocessor.
  constexpr int kProcessors = 132;
  const int units = p.walk.batch * p.walk.groups, of_unit = (p.walk.queries + kRows - 1) / kRows;
  int tiles = 1;
  while (tiles < kMostTiles && int64_t{of_unit} * units > int64_t{tiles} * kProcessors) tiles *= 2;
  const auto kernel =
      tiles <= 2 ? packed_walk<kTerms, kGeneral, 2> : packed_walk<kTerms, kGeneral, kMostTiles>;
  const Shared plan(kTerms, p.walk.steps, tiles);
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.bytes))
    return error;
  // The first-level cache gets what shared memory leaves.
  constexpr int kProcessorShared = 228 * 1024, kReserved = 1024;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               ((plan.bytes + kReserved) * 100 + kProcessorShared - 1) / kProcessorShared))
    return error;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>((of_unit + tiles - 1) / tiles), static_cast<unsigned>(units));
  config.blockDim = dim3(static_cast<unsigned>(tiles * kTileThreads));
  config.dynamicSmemBytes = static_cast<size_t>(plan.bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, p);
}

}  // namespace

int64_t packed_walk_bytes(const PackedWalkParams& p) {
  PackedWalkParams from_zero = p;
  from_zero.workspace = nullptr;
  return Packed(from_zero).bytes;
}

int launch_packed_walk(const PackedWalkParams& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  const int units = p.walk.batch * p.walk.groups;
  if (units == 0 || p.walk.queries == 0) return cudaSuccess;
  pack_walk<<<dim3(static_cast<unsigned>(p.walk.blocks + kOtherBlocks), static_cast<unsigned>(units)),
              kPackThreads, 0, stream>>>(p);
  if (const cudaError_t error = cudaGetLastError()) return error;
  const WalkSpan& span = p.walk.span;
  const bool general =
      span.causal || span.window >= 0 || span.no_self || span.open_before || p.walk.destination;
  if (p.terms == 1) return general ? launch<1, true>(p, stream) : launch<1, false>(p, stream);
  return general ? launch<2, true>(p, stream) : launch<2, false>(p, stream);
}

}  // namespace edgewise::kernels::cuda
