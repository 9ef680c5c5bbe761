// The rooted walk of SacEdges in blocks on CUDA, for up to 64 blocks of up to 64 keys, with the equations of
// cpu/block_walk_level.cpp: every product of a step runs on tensor cores in bf16, on inputs that a first
// launch (pack_walk.cu) has put into the order of their fragments.
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
#include "kernels/cuda/walk/packed_draw.cuh"
#include "kernels/cuda/walk/packed_walk.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kRows = 16;
constexpr int kScoreStride = kPackedBlocks + 8;  // floats
constexpr int kNone = 0x40000000;                // no key

// Numbers 4 g .. of the mean over the candidates of a block that the row's range cuts.
__device__ __forceinline__ float4 mean_of_cut(const Candidates& candidates, const RootedParams& p,
                                              const Packed& packed, int unit, int block) {
  const int g = lane_id() / 4, begin = max(block * p.block, candidates.lo),
            end = min((block + 1) * p.block, candidates.hi), own = candidates.own;
  const float4* const sums =
      reinterpret_cast<const float4*>(packed.sums + static_cast<int64_t>(unit) * p.keys * P) + g;
  float4 sum = make_float4(0, 0, 0, 0);
  const auto add = [&](int key, float sign) {  // the sum up to and with `key` of this block
    if (key < block * p.block) return;
    const float4 x = sums[static_cast<int64_t>(key) * (P / 4)];
    sum.x = fmaf(sign, x.x, sum.x), sum.y = fmaf(sign, x.y, sum.y);
    sum.z = fmaf(sign, x.z, sum.z), sum.w = fmaf(sign, x.w, sum.w);
  };
  add(end - 1, 1.f);
  add(begin - 1, -1.f);
  if (own >= begin && own < end) add(own, -1.f), add(own - 1, 1.f);
  const float share = 1.f / static_cast<float>(max(candidates.count(begin, end), 1));
  return make_float4(sum.x * share, sum.y * share, sum.z * share, sum.w * share);
}

// 1 << place, or 0 from 32 on: C++ does not say so, the instruction does.
__device__ __forceinline__ uint32_t bit_or_none(int place) {
  uint32_t result;
  asm("shl.b32 %0, %1, %2;" : "=r"(result) : "r"(1), "r"(place));
  return result;
}

__device__ __forceinline__ void copy_async(uint4* to, const uint4* from) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from)
      : "memory");
}
// Past the first-level cache, whose room the keys need.
__device__ __forceinline__ float4 load_once(const float* from) {
  float4 x;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(from));
  return x;
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

// 16 rows as the left side of products, in shared memory: [2 mma steps, 32 pieces], where piece (g, t) has of
// the rows g and g + 8 two numbers each, then the next two. Pieces are exchanged so that neither those who
// write nor those who read meet a bank twice.
__device__ __forceinline__ int piece_at(int g, int t) {
  return 4 * g + (t ^ g / 2);
}
// The word of number n and the next of a row.
__device__ __forceinline__ int word_at(int row, int n) {
  return n % 8 / 4 * 128 + piece_at(row % 8, n / 8) * 4 + row / 8 + n % 4 / 2 * 2;
}
struct LeftRows {
  uint4 first, second;  // mma steps
  __device__ __forceinline__ explicit LeftRows(const uint4* rows) {
    const int at = piece_at(lane_id() / 4, lane_id() % 4);
    first = rows[at];
    second = rows[32 + at];
  }
  __device__ __forceinline__ void multiply(float (&sum)[4], const uint4& right) const {
    mma_bf16(sum, first.x, first.y, first.z, first.w, right.x, right.y);
    mma_bf16(sum, second.x, second.y, second.z, second.w, right.z, right.w);
  }
};

// What a walk has: kPlain: every key of every block is a candidate until it is chosen, and nothing but the
// sorted keys is asked for. kCut: ranges and masks besides. kWhole: also what learning needs.
enum class Kind { kPlain, kCut, kWhole };

// A tile has 4 kSplit warps of 4 / kSplit rows (where the lanes of two rows do the same as the first two's):
// split for short walks' sake where there are few tiles. kRoom: tiles a thread block at most.
template <int kTerms, Kind kKind, int kSplit, int kRoom>
__global__ void __launch_bounds__(128 * kSplit * kRoom, 1)
    packed_walk(const __grid_constant__ PackedWalkParams given, const __grid_constant__ Packed packed) {
  constexpr bool kGeneral = kKind != Kind::kPlain, kWhole = kKind == Kind::kWhole;
  constexpr int kTileThreads = 128 * kSplit, kOwn = 4 / kSplit, kUnits = 2 / kSplit, kColumns = 2 / kSplit;
  extern __shared__ __align__(16) char shared[];
  const RootedParams& p = given.walk;
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), g = lane / 4, t = lane % 4,
            tile = thread / kTileThreads, warp = thread % kTileThreads / 32,
            tiles = static_cast<int>(blockDim.x) / kTileThreads;
  const Shared plan(kTerms, p.steps, tiles);

  const int unit = static_cast<int>(blockIdx.y), item = unit / p.groups, group = unit % p.groups;
  const int first_row = (static_cast<int>(blockIdx.x) * tiles + tile) * kRows, local = kOwn * warp + t % kOwn;

  asm volatile("griddepcontrol.wait;" ::: "memory");
  uint4* const weights = reinterpret_cast<uint4*>(shared);
  uint4* const means = weights + kTerms * kWeightPieces;
  {
    const uint4* const from = packed.weights + static_cast<int64_t>(group) * kTerms * kWeightPieces;
    const uint4* const from_means = packed.means + static_cast<int64_t>(unit) * 2 * kMeanPieces;
    for (int n = thread; n < kTerms * kWeightPieces; n += static_cast<int>(blockDim.x))
      copy_async(weights + n, from + n);
    for (int n = thread; n < 2 * kMeanPieces; n += static_cast<int>(blockDim.x))
      copy_async(means + n, from_means + n);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  char* const own = shared + plan.tiles + tile * plan.tile_bytes;
  uint4* const inputs = reinterpret_cast<uint4*>(own + plan.inputs);  // [terms, 16, 4]
  uint4* const states = reinterpret_cast<uint4*>(own + plan.states);  // [2, 16, 4]
  float* const scores = reinterpret_cast<float*>(own + plan.scores);
  int* const list = reinterpret_cast<int*>(own + plan.lists) + local * plan.list_stride;
  constexpr int kMatrix = kRows * P / 8;  // pieces of 16 rows, a term
  const auto wait = [&] { asm volatile("bar.sync %0, %1;" ::"r"(1 + tile), "n"(kTileThreads) : "memory"); };

  // Nodes of keys as the packed blocks have them: lane g writes numbers 4 g .. of row `local`.
  const uint32_t* const unit_keys = reinterpret_cast<const uint32_t*>(
      packed.keys + static_cast<int64_t>(unit) * p.blocks * kTerms * kKeyPieces);
  const auto write_input = [&](int term, uint32_t low, uint32_t high) {
    uint32_t* const to = reinterpret_cast<uint32_t*>(inputs + term * kMatrix) + word_at(local, 4 * g);
    to[0] = low, to[2] = high;
  };
  const auto take_input = [&](int block, int place) {
    const uint32_t* const from = unit_keys + static_cast<int64_t>(block) * kTerms * kKeyPieces * 4 +
                                 ((place % 8 / 2 * 2 + g % 2) * 32 + place / 8 * 4 + g / 2) * 4 + place % 2;
#pragma unroll
    for (int term = 0; term < kTerms; ++term)
      write_input(term, from[term * kKeyPieces * 4], from[term * kKeyPieces * 4 + 2]);
  };

  WalkRow row{first_row + local, 0, 0, first_row + local < p.queries, false};
  const int known_query = min(row.query, p.queries - 1), own_block = (known_query + p.span.offset) / p.block;
  const Candidates candidates(p.span, item, known_query, p.keys);
  const int count = begin_row(p, item, candidates, row);
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
    write_input(0, low.high, high.high);
    if constexpr (kTerms == 2) write_input(1, low.low, high.low);

  } else {
    take_input(own_block, known_query - own_block * p.block);
  }
  float block_bias[8] = {};  // kForbidden: no candidate is left there
  if (given.block_distance.count > 0) {
    const float* const from =
        packed.block_distance + group * given.block_distance.count + p.block_farthest - own_block;
#pragma unroll
    for (int n = 0; n < 8; ++n) block_bias[n] = from[min(8 * g + n, p.blocks - 1)];
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int b = 8 * g + n;
    if (b >= p.blocks || (kGeneral && candidates.count(b * p.block, min((b + 1) * p.block, p.keys)) == 0))
      block_bias[n] = kForbidden;
  }
  int partial[kGeneral ? kMostPartialBlocks : 1];
  float4 partial_mean[kGeneral ? kMostPartialBlocks : 1];  // numbers 4 g ..
  if constexpr (kGeneral) {
#pragma unroll
    for (int k = 0; k < kMostPartialBlocks; ++k) {
      partial[k] = row.choosing ? candidates.partial(k, p.block, p.keys) : -1;
      partial_mean[k] = make_float4(0, 0, 0, 0);
      if (partial[k] >= 0) partial_mean[k] = mean_of_cut(candidates, p, packed, unit, partial[k]);
    }
  }
  // Units 8 (warp / kSplit) + 2 t + first_unit .., rows g and g + 8.
  const int first_unit = kSplit == 2 ? warp % 2 : 0, eight = warp / kSplit;
  float gate_bias[kUnits][4], cell[kUnits][2] = {};
#pragma unroll
  for (int u = 0; u < kUnits; ++u)
#pragma unroll
    for (int n = 0; n < 4; ++n)
      gate_bias[u][n] = __ldg(p.lstm.bias + group * 4 * P + n * P + 8 * eight + 2 * t + first_unit + u);
  const uint64_t stream = packed.streams[unit];
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  if (first_row >= p.queries) return;  // the other tiles have barriers of their own

  float gates[kUnits][2][4];  // i, f and g, o; of two rows
  const auto add_gates = [&](const LeftRows& left, int side, int term) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int pair = 0; pair < 2; ++pair)
        left.multiply(gates[u][pair],
                      weights[term * kWeightPieces +
                              (((eight * 2 + first_unit + u) * 2 + pair) * 2 + side) * 32 + lane]);
  };
  const auto start_gates = [&] {
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
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
      float h[kUnits][2];
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          h[u][r] = lstm_unit(gates[u][0][2 * r], gates[u][0][2 * r + 1], gates[u][1][2 * r],
                              gates[u][1][2 * r + 1], cell[u][r]);
      uint32_t* const to = reinterpret_cast<uint32_t*>(states) + word_at(g, 8 * eight + 2 * t);
      if constexpr (kUnits == 2) {
        const Bf16Terms upper(h[0][0], h[1][0]), lower(h[0][1], h[1][1]);
        *reinterpret_cast<uint2*>(to) = make_uint2(upper.high, lower.high);
        *reinterpret_cast<uint2*>(to + kMatrix * 4) = make_uint2(upper.low, lower.low);
      } else {
        const Bf16Terms rows(h[0][0], h[0][1]);
        uint16_t* const half = reinterpret_cast<uint16_t*>(to) + first_unit;
        half[0] = static_cast<uint16_t>(rows.high), half[2] = static_cast<uint16_t>(rows.high >> 16);
        half[kMatrix * 8] = static_cast<uint16_t>(rows.low);
        half[kMatrix * 8 + 2] = static_cast<uint16_t>(rows.low >> 16);
      }
    }
    wait();  // states are there
    {
      const LeftRows high(states), low(states + kMatrix);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const int column = kColumns * warp + n;  // eight blocks
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
    }
    if (step % 8 == 0 && p.choice == WalkChoice::kSample) {
      const PairWords words =
          philox<10>(static_cast<uint32_t>(row.query), static_cast<uint32_t>(step + g), 0, kWalkLane, stream);
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
      const uint32_t* const high = reinterpret_cast<const uint32_t*>(states) + word_at(local, 4 * g);
      const uint32_t* const low = high + kMatrix * 4;
      const float4 h =
          make_float4(low_half(high[0]) + low_half(low[0]), high_half(high[0]) + high_half(low[0]),
                      low_half(high[2]) + low_half(low[2]), high_half(high[2]) + high_half(low[2]));

      if (kWhole && live && p.states) reinterpret_cast<float4*>(p.states + at * P)[g] = h;
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
    const Draw of_block =
        draw<kWhole>(score, p.choice, __shfl_sync(kAll, block_uniform, step % 8 * 4 + t), live);
    const int block = min(of_block.place, p.blocks - 1), begin = block * p.block, from = begin + 8 * g;

    // What the distances add.
    float distance[8] = {};
    if (given.distance.count > 0) {
      const int first = p.queries - 1 - known_query + from, copy = first % 4;
      const float* const at_first =
          packed.distance + static_cast<int64_t>(group * 4 + copy) * packed.stride + first - copy;
      const float4 low = load_once(at_first), high = load_once(at_first + 4);
      distance[0] = low.x, distance[1] = low.y, distance[2] = low.z, distance[3] = low.w;
      distance[4] = high.x, distance[5] = high.y, distance[6] = high.z, distance[7] = high.w;
    }
    // Which of this lane's keys are open.
    uint32_t open = (1u << min(max(min(begin + p.block, candidates.hi) - from, 0), 8)) - 1;
    if constexpr (kGeneral) {
      open &= ~((1u << min(max(candidates.lo - from, 0), 8)) - 1) & ~bit_or_none(candidates.own - from);
      if (candidates.open_before)
        for (int k = 0; k < 8; ++k)
          if (open >> k & 1 && !candidates.open(from + k)) open &= ~(1u << k);
    }
    const auto close_listed = [&](int k) {
      const int4 low = *reinterpret_cast<const int4*>(list + k),
                 high = *reinterpret_cast<const int4*>(list + k + 4);
      open &= ~(bit_or_none(low.x - from) | bit_or_none(low.y - from) | bit_or_none(low.z - from) |
                bit_or_none(low.w - from) | bit_or_none(high.x - from) | bit_or_none(high.y - from) |
                bit_or_none(high.z - from) | bit_or_none(high.w - from));
    };
    if (!p.duplicates)
#pragma unroll 1
      for (int k = 8; k < step; k += 8) close_listed(k);

    // No branches from here to the draw, so that every key is on its way before the first product waits for
    // one;
    // __syncwarp() keeps the compiler from mixing loads, products and what follows.
    float sum[4][4] = {};  // tiles of keys
    {
      // Column g: of row g / 2 of this warp, term g % 2.
      const uint32_t* const from_states = reinterpret_cast<const uint32_t*>(states + g % 2 * kMatrix) +
                                          word_at(kOwn * warp + g / 2 % kOwn, 8 * t);
      const uint4 h = make_uint4(from_states[0], from_states[2], from_states[128], from_states[130]);
      uint4 left[kOwn][8];
      const auto load = [&](int term) {
#pragma unroll
        for (int r = 0; r < kOwn; ++r) {
          const uint4* const keys =
              reinterpret_cast<const uint4*>(unit_keys) +
              (static_cast<int64_t>(__shfl_sync(kAll, block, r)) * kTerms + term) * kKeyPieces + lane;
#pragma unroll
          for (int n = 0; n < 8; ++n) left[r][n] = keys[32 * n];
        }
      };
      load(0);
      {  // the state's part of the next step's gates
        start_gates();
        const LeftRows high(states);
        add_gates(high, 1, 0);
        if constexpr (kTerms == 2) add_gates(high, 1, 1);
        add_gates(LeftRows(states + kMatrix), 1, 0);
      }
      __syncwarp();
      const uint32_t keep = p.duplicates ? open : 0;
      close_listed(0);
      open |= keep;
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        if (term > 0) load(term);
#pragma unroll
        for (int r = 0; r < kOwn; ++r) {
          const bool mine = g / 2 % kOwn == r;
          const uint4 right = make_uint4(mine ? h.x : 0, mine ? h.y : 0, mine ? h.z : 0, mine ? h.w : 0);
#pragma unroll
          for (int n = 0; n < 8; ++n)
            mma_bf16(sum[n / 2], left[r][n].x, left[r][n].y, left[r][n].z, left[r][n].w,
                     n % 2 ? right.z : right.x, n % 2 ? right.w : right.y);
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      score[2 * n] = sum[n][0] + sum[n][1] + distance[2 * n];
      score[2 * n + 1] = sum[n][2] + sum[n][3] + distance[2 * n + 1];
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) score[n] = open >> n & 1 ? score[n] : kForbidden;
    const Draw of_key = draw<kWhole>(score, p.choice, __shfl_sync(kAll, key_uniform, step % 8 * 4 + t), live);
    // Numbers that are none must not lead outside.
    const int place = min(of_key.place, min(p.block, p.keys - begin) - 1), chosen = begin + place;
    if (live && step + 1 < p.steps) take_input(block, place);
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
    if constexpr (kWhole) {
      if (live && p.log_prob && g == 0) {
        const float4 levels =
            make_float4(of_block.normaliser(), of_block.entropy(), of_key.normaliser(), of_key.entropy());
        p.log_prob[at] = of_block.score - levels.x + of_key.score - levels.z;
        p.entropy[at] = levels.y + levels.w;
        reinterpret_cast<float4*>(p.levels)[at] = levels;
      }
    }
  }
  if (t < kOwn) write_row<8>(p, unit, row, list, g);
}

template <int kTerms, Kind kKind, int kSplit, int kRoom>
cudaError_t launch_tiles(const PackedWalkParams& p, int tiles, cudaStream_t stream) {
  const auto kernel = packed_walk<kTerms, kKind, kSplit, kRoom>;
  const int units = p.walk.batch * p.walk.groups, of_unit = (p.walk.queries + kRows - 1) / kRows;
  const Shared plan(kTerms, p.walk.steps, tiles);
  // The most that may be asked for, whatever this call needs: another thread may be launching the same
  // kernel.
  constexpr int kMostShared = 227 * 1024;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared))
    return error;
  // The first-level cache gets what shared memory leaves.
  constexpr int kProcessorShared = 228 * 1024, kReserved = 1024;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               ((plan.bytes + kReserved) * 100 + kProcessorShared - 1) / kProcessorShared))
    return error;
  const Launch walk(dim3(static_cast<unsigned>((of_unit + tiles - 1) / tiles), static_cast<unsigned>(units)),
                    tiles * 128 * kSplit, plan.bytes, stream);
  return cudaLaunchKernelEx(&walk.config, kernel, p, Packed(p));
}

// Tiles a thread block, which is all that a multiprocessor holds: as few as use every multiprocessor. Which
// of the variants is fastest was measured (docs/kernels/cuda-walks.md).
template <int kTerms, Kind kKind>
cudaError_t launch(const PackedWalkParams& p, cudaStream_t stream) {
  constexpr int64_t kProcessors = 132;
  const int64_t tiles = int64_t{p.walk.batch} * p.walk.groups * ((p.walk.queries + kRows - 1) / kRows);
  if (tiles <= kProcessors) return launch_tiles<kTerms, kKind, 2, 2>(p, 1, stream);
  if constexpr (kKind != Kind::kWhole)
    if (tiles > 2 * kProcessors) return launch_tiles<kTerms, kKind, 1, 4>(p, 4, stream);
  if constexpr (kKind == Kind::kPlain && kTerms == 1) return launch_tiles<kTerms, kKind, 1, 2>(p, 2, stream);
  return launch_tiles<kTerms, kKind, 2, 2>(p, 2, stream);
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
  if (const cudaError_t error = launch_pack_walk(p, stream)) return error;
  const WalkSpan& span = p.walk.span;
  const bool cut = span.cuts_blocks() || span.open_before, whole = p.walk.destination;
  const auto launch_terms = [&]<int kTerms>() {
    return whole ? launch<kTerms, Kind::kWhole>(p, stream)
           : cut ? launch<kTerms, Kind::kCut>(p, stream)
                 : launch<kTerms, Kind::kPlain>(p, stream);
  };
  return p.terms == 1 ? launch_terms.operator()<1>() : launch_terms.operator()<2>();
}

}  // namespace edgewise::kernels::cuda
