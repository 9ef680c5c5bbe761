// The rooted walk of SacEdges on CUDA, one kernel runs whole walks, with the
// equations of cpu/walk_level.cpp.
//
// A block of 16 warps has 16 rows, one a warp. A step: the LSTM of all rows on tensor cores (walk_mma.cuh);
// maximum and sum of each tile of 64 keys on tensor cores, too, 16 rows at a time; each warp draws a tile for
// its row, scores the tile's keys once more and draws the key. States stay in shared memory and registers.
#include "kernels/cuda/walk/walk_mma.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kRows = kMmaRows, kThreads = 32 * kRows;
constexpr int kMostShared = 227 * 1024;

__host__ __device__ constexpr int round_up(int x, int to) {
  return (x + to - 1) / to * to;
}

// Where everything lies in shared memory, in floats: the LSTM's weights first.
struct Plan {
  int stride;  // of a row of tiles
  int hidden, inputs, tops, sums, products, distance, list, bytes;

  __host__ __device__ explicit Plan(const RootedParams& p) {
    stride = round_up((p.keys + kWalkTile - 1) / kWalkTile, 32) + 8;
    int at = kLstmWeights;
    const auto take = [&](int floats) {
      const int from = at;
      at += round_up(floats, 4);
      return from;
    };
    hidden = take(kRows * kRowStride);
    inputs = take(kRows * kRowStride);
    tops = take(kRows * stride);
    sums = take(kRows * stride);
    products = take(kRows * stride);
    distance = p.distance ? take(p.keys + kRows) : at;
    list = take(kRows * p.steps);
    bytes = at * 4;
  }
};

// The key in a tile where the running sum of e^(s - level) passes target.
struct KeyChoice {
  int key;
  float score;
};
__device__ __forceinline__ KeyChoice choose_key(const RootedParams& p, int unit, int query, int tile,
                                                int step, const float* hidden, const int* list, float level,
                                                float target) {
  constexpr int kChunks = kWalkTile / 32;
  const int lane = lane_id(), begin = tile * kWalkTile, size = min(kWalkTile, p.keys - begin);
  const float* const keys = p.key_nodes + (static_cast<int64_t>(unit) * p.keys + begin) * P;
  const float4 h = *reinterpret_cast<const float4*>(hidden + lane % 8 * 4);
  const Candidates candidates(p.span, unit / p.groups, query, p.keys);
  const float* const distance =
      p.distance ? p.distance + static_cast<int64_t>(unit % p.groups) * (p.queries + p.keys - 1) + p.queries -
                       1 - query
                 : nullptr;
  Decision<kChunks> decision;
#pragma unroll
  for (int n = 0; n < kChunks; ++n) {
    NodeRows rows;
    rows.load(keys + min(n * 32, size - 1) * P, max(size - 32 * n, 1));
    const int j = begin + 32 * n + lane;
    const bool inside = 32 * n + lane < size && candidates.contains(j);
    float add = 0;
    if (inside && distance) add = __ldg(distance + j);
    const uint32_t gone = p.duplicates ? 0 : listed_bits(list, step, begin + 32 * n);
    const float score = rows.scores(h) + add;
    decision.score[n] = inside && !(gone >> lane & 1) ? score : kForbidden;
  }
  int place = p.choice == WalkChoice::kSample ? decision.draw(level, target) : -1;
  if (place < 0) place = decision.likeliest();
  place = min(place, size - 1);  // numbers that are none must not lead outside
  return {begin + place, decision.at(place)};
}

// A decision among the tiles of a row, by maximum, sum and products of each. Lane n has neighbouring ones.
struct TileChoice {
  int tile;
  float top, total, weighted;
  float before;  // the running sum up to the tile
  float target;
};
__device__ __forceinline__ TileChoice choose_tile(int tiles, WalkChoice choice, const float* tops,
                                                  const float* sums, const float* products, double uniform) {
  const int lane = lane_id(), each = (tiles + 31) / 32, from = lane * each, to = min(from + each, tiles);
  float most = kForbidden;
  int place = min(from, tiles - 1);
  for (int b = from; b < to; ++b)
    if (tops[b] > most) most = tops[b], place = b;
  TileChoice result{};
  result.top = warp_max(most);
  float sum = 0, weighted = 0;
  for (int b = from; b < to; ++b) {
    const float x = __expf(tops[b] - result.top);
    sum = fmaf(x, sums[b], sum);
    weighted = fmaf(x, products[b], weighted);
  }
  const float running = running_sum(sum);
  result.total = __shfl_sync(kAll, running, 31);
  result.weighted = warp_sum(weighted);
  unsigned passed = 0;
  if (choice == WalkChoice::kSample) {
    result.target = static_cast<float>(uniform * static_cast<double>(result.total));
    passed = __ballot_sync(kAll, running > result.target && sum > 0);
  }
  const float before_lane = __shfl_up_sync(kAll, running, 1);
  if (!passed) {
    result.tile = warp_argmax(most, place);
    return result;
  }
  const int winner = __ffs(static_cast<int>(passed)) - 1;
  float before = lane == 0 ? 0 : before_lane;
  if (lane == winner) {
    float next = before;
    for (int b = from; b < to; ++b) {
      const float x = __expf(tops[b] - result.top) * sums[b];
      if (x <= 0) continue;
      place = b;  // the last one, where rounding leaves the sum just below the target
      before = next;
      next += x;
      if (next > result.target) break;
    }
  }
  result.tile = __shfl_sync(kAll, place, winner);
  result.before = __shfl_sync(kAll, before, winner);
  return result;
}

// Maximum, sum and products of a tile of 64 keys for the 16 rows, into the tile's column.
__device__ __forceinline__ void score_tile(const RootedParams& p, const Plan& plan, float* shared, int unit,
                                           int first_row, int tile, int step) {
  const int lane = lane_id(), g = lane / 4, t = lane % 4, item = unit / p.groups, begin = tile * kWalkTile;
  float scores[8][4] = {};
  const float* const keys = p.key_nodes + (static_cast<int64_t>(unit) * p.keys + begin) * P;
  LeftStep left[4];
  load_left(shared + plan.hidden, left);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const RightNodes right(keys + min(8 * n + g, p.keys - begin - 1) * P);
#pragma unroll
    for (int k = 0; k < 4; ++k) add_step(scores[n], left[k], right.first(k), right.second(k));
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = g + 8 * r, query = first_row + row;
    const Candidates candidates(p.span, item, min(query, p.queries - 1), p.keys);
    const float* const distance = shared + plan.distance + kRows - 1 - row;
    if (p.distance)
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          scores[n][2 * r + e] += distance[min(begin + 8 * n + 2 * t + e, p.keys - 1)];
    const bool all_inside = begin >= candidates.lo && begin + kWalkTile <= candidates.hi &&
                            !candidates.open_before &&
                            (candidates.gap_lo == candidates.gap_hi || candidates.gap_hi <= begin ||
                             candidates.gap_lo >= begin + kWalkTile);
    if (!__all_sync(kAll, all_inside))
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int j = begin + 8 * n + 2 * t + e;
          if (j >= p.keys || !candidates.contains(j)) scores[n][2 * r + e] = kForbidden;
        }
    if (!p.duplicates) {
      const int* const list = reinterpret_cast<const int*>(shared + plan.list) + row * p.steps;
      for (int k = 0; k < step; ++k) {
        const int place = list[k] - begin;
        if (place < 0 || place >= kWalkTile) continue;
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (place == 8 * n + 2 * t + e) scores[n][2 * r + e] = kForbidden;
      }
    }
    float top = kForbidden;
#pragma unroll
    for (int n = 0; n < 8; ++n) top = fmaxf(top, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
    float sum = 0, products = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float s = scores[n][2 * r + e], x = s <= kForbidden / 2 ? 0.f : __expf(s - top);
        sum += x;
        products = fmaf(x, s, products);
      }
    sum += __shfl_xor_sync(kAll, sum, 1);
    sum += __shfl_xor_sync(kAll, sum, 2);
    products += __shfl_xor_sync(kAll, products, 1);
    products += __shfl_xor_sync(kAll, products, 2);
    if (t == 0) {
      const int at = row * plan.stride + tile;
      shared[plan.tops + at] = top;
      shared[plan.sums + at] = sum;
      shared[plan.products + at] = products;
    }
  }
}

// A row that takes all its candidates.
__device__ __forceinline__ void take_all(const Candidates& candidates, WalkRow& row, int* list) {
  for (int begin = candidates.lo; begin < candidates.hi; begin += 32) {
    const int j = begin + lane_id();
    const bool is_candidate = j < candidates.hi && candidates.contains(j);
    const unsigned found = __ballot_sync(kAll, is_candidate);
    if (is_candidate) list[row.made + __popc(found & ((1u << lane_id()) - 1))] = j;
    row.made += __popc(found);
  }
}

__global__ void __launch_bounds__(kThreads, 1) rooted_walk(const __grid_constant__ RootedParams p) {
  extern __shared__ __align__(16) float shared[];
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x / 32);
  const Plan plan(p);
  const int unit = static_cast<int>(blockIdx.y), item = unit / p.groups, group = unit % p.groups;
  const int first_row = static_cast<int>(blockIdx.x) * kRows;
  const float* const unit_keys = p.key_nodes + static_cast<int64_t>(unit) * p.keys * P;
  float* const hidden = shared + plan.hidden;
  float* const inputs = shared + plan.inputs;
  int* const list = reinterpret_cast<int*>(shared + plan.list) + warp * p.steps;

  pack_lstm_weights(p.lstm.weight_ih + group * P * 4 * P, p.lstm.weight_hh + group * P * 4 * P, shared);
  if (p.distance)  // of query first_row + r and key j: at j - r + 15
    for (int n = static_cast<int>(threadIdx.x); n < p.keys + kRows - 1; n += kThreads) {
      const int at = n - (kRows - 1) - first_row + p.queries - 1;
      shared[plan.distance + n] =
          at >= 0 ? p.distance[static_cast<int64_t>(group) * (p.queries + p.keys - 1) + at] : 0;
    }
  WalkRow row{first_row + warp, 0, 0, first_row + warp < p.queries, false};
  const Candidates candidates(p.span, item, min(row.query, p.queries - 1), p.keys);
  if (begin_row(p, item, candidates, row) > 0 && !row.choosing) take_all(candidates, row, list);
  inputs[warp * kRowStride + lane] =
      row.exists ? p.query_nodes[(static_cast<int64_t>(unit) * p.queries + row.query) * P + lane] : 0;
  hidden[warp * kRowStride + lane] = 0;
  const uint64_t key = stream_key_of(p.stream, item, group);
  // Tiles that some row of this block may choose from.
  const int first_tile = Candidates(p.span, item, first_row, p.keys).lo / kWalkTile;
  const int last_hi = Candidates(p.span, item, min(first_row + kRows, p.queries) - 1, p.keys).hi;
  const int end_tile = (last_hi + kWalkTile - 1) / kWalkTile;

  LstmQuad lstm;
  if (warp < kUnitQuads) lstm.start(warp, p.lstm.bias + group * 4 * P);
  for (int step = 0; step < p.steps; ++step) {
    __syncthreads();  // inputs and states are there
    if (warp < kUnitQuads) {
      LeftStep left[4];
      load_left(inputs, left);
      lstm.add(left, LstmSide::kInput, shared);
      load_left(hidden, left);
      lstm.add(left, LstmSide::kState, shared);
    }
    __syncthreads();  // and have been read
    if (warp < kUnitQuads) lstm.finish(hidden);
    __syncthreads();
    for (int tile = first_tile + warp; tile < end_tile; tile += kRows)
      score_tile(p, plan, shared, unit, first_row, tile, step);
    __syncthreads();
    if (!row.choosing || step >= row.limit) continue;

    const int64_t at = (static_cast<int64_t>(unit) * p.queries + row.query) * p.steps + step;
    if (p.states) p.states[at * P + lane] = hidden[warp * kRowStride + lane];
    double uniform = 0;
    if (p.choice == WalkChoice::kSample) {
      const PairWords words =
          philox<10>(static_cast<uint32_t>(row.query), static_cast<uint32_t>(step), 0, kWalkLane, key);
      uniform = uniform_of(words.word[0], words.word[1]);
    }
    const int from = warp * plan.stride + first_tile;
    const TileChoice tile = choose_tile(end_tile - first_tile, p.choice, shared + plan.tops + from,
                                        shared + plan.sums + from, shared + plan.products + from, uniform);
    const KeyChoice choice =
        choose_key(p, unit, row.query, first_tile + tile.tile, step, hidden + warp * kRowStride, list,
                   tile.top, tile.target - tile.before);
    inputs[warp * kRowStride + lane] = unit_keys[static_cast<int64_t>(choice.key) * P + lane];
    if (lane == 0) list[step] = choice.key;
    __syncwarp();
    row.made = step + 1;
    if (p.log_prob && lane == 0) {
      const float normaliser = tile.top + __logf(tile.total),
                  entropy = normaliser - tile.weighted / tile.total;
      p.log_prob[at] = choice.score - normaliser;
      p.entropy[at] = entropy;
      reinterpret_cast<float2*>(p.levels)[at] = make_float2(normaliser, entropy);
    }
  }
  write_row(p, unit, row, list);
}

}  // namespace

const char* rooted_walk_refusal(int64_t keys, int64_t steps) {
  if (steps > kMostWalkSteps) return "more than 256 edges a query";
  RootedParams p;
  p.keys = static_cast<int>(keys);
  p.steps = static_cast<int>(steps);
  p.distance = reinterpret_cast<const float*>(16);  // any: as much shared memory as it can be
  return Plan(p).bytes > kMostShared ? "the sums of a step do not fit into shared memory" : nullptr;
}

int launch_rooted_walk(const RootedParams& p, Stream given) {
  if (p.batch * p.groups == 0 || p.queries == 0) return cudaSuccess;
  const int bytes = Plan(p).bytes;
  if (const cudaError_t error =
          cudaFuncSetAttribute(rooted_walk, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
    return error;
  rooted_walk<<<dim3(static_cast<unsigned>((p.queries + kRows - 1) / kRows),
                     static_cast<unsigned>(p.batch * p.groups)),
                kThreads, static_cast<size_t>(bytes), static_cast<cudaStream_t>(given)>>>(p);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
