// The rooted walk of SacEdges in blocks on CUDA: one kernel runs whole walks, with the equations of
// cpu/block_walk_level.cpp.
//
// A block of four warps has 16 rows. A step: the LSTM of all rows and the scores of all blocks on tensor
// cores (walk_mma.cuh); then eight lanes a row draw a block and, inside it, a key. States stay in shared
// memory and registers.
//
// Of the keys a row reads 8 KB a step, which no cache near it would hold: a cluster of blocks keeps the keys
// of the unit in its shared memories, block b with rank b % C. A row's wish goes to the rank that has the
// keys; eight lanes there draw the key and send it back with its node. Where the keys do not fit, each row
// reads them from the second-level cache.
#include <cooperative_groups.h>

#include "kernels/cuda/device/eight_lanes.cuh"
#include "kernels/cuda/walk/walk_mma.cuh"

namespace edgewise::kernels::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kRows = kMmaRows, kWarps = 4, kThreads = 32 * kWarps, kQuads = kUnitQuads / kWarps;
constexpr int kHeldBlocks = 8;  // scores of blocks that a lane holds in registers
// One, two and three blocks a multiprocessor.
constexpr int kMostShared = 227 * 1024, kHalfShared = (228 - 2) * 1024 / 2,
              kThirdShared = (228 - 3) * 1024 / 3;

__host__ __device__ constexpr int round_up(int x, int to) {
  return (x + to - 1) / to * to;
}

// ---- shared memory, in floats ----

struct Plan {
  int stride;  // of a row of scores
  int words;   // of a row's closed blocks
  int hidden, inputs, scores, closed, list, want, served, reply, keys, bytes;

  __host__ __device__ Plan(const RootedParams& p, int ranks) {
    stride = round_up(p.blocks, 32) + 8;
    words = round_up(p.blocks, 32) / 32;
    int at = kLstmWeights;
    const auto take = [&](int floats) {
      const int from = at;
      at += round_up(floats, 4);
      return from;
    };
    // Behind the numbers of a state, 16 bytes: which keys of the wished block are open, kKeys bits a lane.
    hidden = take(kRows * kRowStride);
    inputs = take(kRows * kRowStride);
    scores = take(kRows * stride);
    closed = take(kRows * words);
    list = take(kRows * p.steps);
    want = ranks > 1 ? take(kRows * ranks / 2) : at;    // int16
    served = ranks > 1 ? take(kRows * ranks / 4) : at;  // uint8
    reply = ranks > 1 ? take(kRows * 4) : at;
    keys = ranks > 1 ? take((p.blocks + ranks - 1) / ranks * p.block * P) : at;
    bytes = at * 4;
  }
};

struct KeyChoice {
  int key;
  float log_p, normaliser, entropy;
};

// Lane s has keys kKeys s .. of the block. Keys in shared memory have their 16-byte pieces exchanged by lane,
// so that eight lanes meet no bank twice.
template <int kKeys>
__device__ __forceinline__ int piece_of(int row, int n) {
  return n ^ row / kKeys % 8;
}

// open: of this lane's keys. state: 32 numbers in shared memory of this block.
template <int kKeys, bool kExchanged>
__device__ __forceinline__ KeyChoice choose_key(const RootedParams& p, int group, int query, int block,
                                                const float* keys, const float* state, uint32_t open,
                                                float uniform) {
  const int begin = block * p.block, size = min(p.block, p.keys - begin), first = sub_lane() * kKeys;
  // Lanes beyond the block's end read its first keys, rows beyond it the last: loads without branches.
  const int from = first < size ? first : 0, last = size - 1 - from,
            exchange = kExchanged ? from / kKeys % 8 : 0;
  float score[kKeys];
#pragma unroll
  for (int k = 0; k < kKeys; ++k) score[k] = 0;
  const float* const own = keys + from * P;
  const auto add_all = [&](const auto& row) {
#pragma unroll
    for (int n = 0; n < P / 4; ++n) {
      const float4 h = *reinterpret_cast<const float4*>(state + 4 * n);
      const float* const piece = own + 4 * (n ^ exchange);
#pragma unroll
      for (int k = 0; k < kKeys; ++k) {
        const float4 w = *reinterpret_cast<const float4*>(piece + row(k) * P);
        score[k] = fmaf(h.x, w.x, fmaf(h.y, w.y, fmaf(h.z, w.z, fmaf(h.w, w.w, score[k]))));
      }
    }
  };
  if (__all_sync(kAll, last >= kKeys - 1))
    add_all([](int k) { return k; });
  else
    add_all([&](int k) { return min(k, last); });
  const float* const distance = p.distance
                                    ? p.distance + static_cast<int64_t>(group) * (p.queries + p.keys - 1) +
                                          p.queries - 1 - min(query, p.queries - 1) + begin + from
                                    : nullptr;
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    if (distance) score[k] += __ldg(distance + min(k, last));
    score[k] = open >> k & 1 ? score[k] : kForbidden;
  }
  const Decision decision = decide(score, first, p.choice, uniform, p.log_prob != nullptr);
  const int place = min(decision.place, size - 1);  // numbers that are none must not lead outside
  KeyChoice choice{begin + place, 0, 0, 0};
  if (p.log_prob) {
    choice.normaliser = decision.normaliser();
    choice.entropy = decision.entropy();
    choice.log_p = decision.score - choice.normaliser;
  }
  return choice;
}

template <bool kCluster, int kKeys>
__global__ void __launch_bounds__(kThreads, 3) block_walk(const __grid_constant__ RootedParams p) {
  extern __shared__ __align__(16) float shared[];
  const int lane = lane_id(), sub = sub_lane(), warp = static_cast<int>(threadIdx.x / 32),
            local = static_cast<int>(threadIdx.x / 8);
  int rank = 0, ranks = 1;
  if constexpr (kCluster) {
    rank = static_cast<int>(cg::this_cluster().block_rank());
    ranks = static_cast<int>(cg::this_cluster().num_blocks());
  }
  const Plan plan(p, ranks);
  const int unit = static_cast<int>(blockIdx.y), item = unit / p.groups, group = unit % p.groups;
  const int first_row = static_cast<int>(blockIdx.x) * kRows;
  const float* const unit_keys = p.key_nodes + static_cast<int64_t>(unit) * p.keys * P;
  float* const hidden = shared + plan.hidden;
  float* const inputs = shared + plan.inputs;
  float* const own_hidden = hidden + local * kRowStride;
  float* const own_inputs = inputs + local * kRowStride;
  int* const list = reinterpret_cast<int*>(shared + plan.list) + local * p.steps;
  uint32_t* const closed = reinterpret_cast<uint32_t*>(shared + plan.closed) + local * plan.words;
  float* const scores = shared + plan.scores + local * plan.stride;

  if constexpr (kCluster) {  // the keys of this block's share; waited for before the first key is drawn
    for (int b = rank; b < p.blocks; b += ranks) {
      const int rows = min(p.block, p.keys - b * p.block);
      const float* const from = unit_keys + static_cast<int64_t>(b) * p.block * P;
      float* const to = shared + plan.keys + b / ranks * p.block * P;
      for (int n = static_cast<int>(threadIdx.x); n < rows * P / 4; n += kThreads) {
        const int row = n / 8, piece = piece_of<kKeys>(row, n % 8);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                         static_cast<uint32_t>(__cvta_generic_to_shared(to + row * P + 4 * piece))),
                     "l"(from + 4 * n)
                     : "memory");
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  pack_lstm_weights(p.lstm.weight_ih + group * P * 4 * P, p.lstm.weight_hh + group * P * 4 * P, shared);

  WalkRow row{first_row + local, 0, 0, first_row + local < p.queries, false};
  const Candidates candidates(p.span, item, min(row.query, p.queries - 1), p.keys);
  const int count = begin_row(p, item, candidates, row);
  // A row that takes all its candidates.
  const bool takes_all = count > 0 && !row.choosing;
  for (int begin = candidates.lo; __any_sync(kAll, takes_all && begin < candidates.hi); begin += 8) {
    const bool is_candidate = takes_all && begin + sub < candidates.hi && candidates.contains(begin + sub);
    const unsigned found = eight_ballot(is_candidate);
    if (is_candidate) list[row.made + __popc(found & ((1u << sub) - 1))] = begin + sub;
    row.made += __popc(found);
  }
  reinterpret_cast<float4*>(own_inputs)[sub] =
      row.exists ? reinterpret_cast<const float4*>(
                       p.query_nodes + (static_cast<int64_t>(unit) * p.queries + row.query) * P)[sub]
                 : make_float4(0, 0, 0, 0);
  for (int w = 0; w < plan.words; ++w) {
    uint32_t bits = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int b = 32 * w + 8 * k + sub;
      bits |=
          eight_ballot(b >= p.blocks || candidates.count(b * p.block, min((b + 1) * p.block, p.keys)) == 0)
          << 8 * k;
    }
    if (sub == 0) closed[w] = bits;
  }
  int partial[kMostPartialBlocks];
  float4 partial_mean[kMostPartialBlocks];  // numbers 4 s ..
#pragma unroll
  for (int k = 0; k < kMostPartialBlocks; ++k) {
    partial[k] = row.choosing ? candidates.partial(k, p.block, p.keys) : -1;
    partial_mean[k] = make_float4(0, 0, 0, 0);
    if (partial[k] >= 0) partial_mean[k] = mean_of_partial(candidates, p, unit_keys, partial[k], sub);
  }
  const uint64_t key = stream_key_of(p.stream, item, group);
  const float* const bias =
      p.block_distance ? p.block_distance + static_cast<int64_t>(group) * p.block_distances +
                             p.block_farthest - (min(row.query, p.queries - 1) + p.span.offset) / p.block
                       : nullptr;
  const float* const means = p.means + static_cast<int64_t>(unit) * p.blocks * P;
  const int each = (p.blocks + 7) / 8, first = min(sub * each, p.blocks), mine = min(each, p.blocks - first);

  if constexpr (kCluster)
    cg::this_cluster().sync();  // every block of the cluster runs before another writes to it
  LstmQuad lstm[kQuads];
#pragma unroll
  for (int n = 0; n < kQuads; ++n) lstm[n].start(warp * kQuads + n, p.lstm.bias + group * 4 * P);
  for (int step = 0; step < p.steps; ++step) {
    __syncthreads();  // inputs are there, and states have been read
    {
      LeftStep left[4];
      load_left(inputs, left);
#pragma unroll
      for (int n = 0; n < kQuads; ++n) lstm[n].add(left, LstmSide::kInput, shared);
#pragma unroll
      for (int n = 0; n < kQuads; ++n) lstm[n].finish(hidden);
    }
    __syncthreads();
    LeftStep left[4];
    load_left(hidden, left);
    for (int tile = warp; tile < (p.blocks + 7) / 8; tile += kWarps) {
      const RightNodes right(means + min(8 * tile + lane / 4, p.blocks - 1) * P);
      float even[4] = {}, odd[4] = {};
#pragma unroll
      for (int k = 0; k < 4; ++k) add_step(k % 2 ? odd : even, left[k], right.first(k), right.second(k));
      float* const to = shared + plan.scores + lane / 4 * plan.stride + 8 * tile + 2 * (lane % 4);
      *reinterpret_cast<float2*>(to) = make_float2(even[0] + odd[0], even[1] + odd[1]);
      *reinterpret_cast<float2*>(to + 8 * plan.stride) = make_float2(even[2] + odd[2], even[3] + odd[3]);
    }
    __syncthreads();

    const bool live = row.choosing && step < row.limit;
    const int64_t at = (static_cast<int64_t>(unit) * p.queries + row.query) * p.steps + step;
    const float4 h = reinterpret_cast<const float4*>(own_hidden)[sub];
    if (live && p.states) reinterpret_cast<float4*>(p.states + at * P)[sub] = h;
    // Lanes of rows that do not choose go along; what they find is not looked at.
    float uniform_of_key = 0, uniform_of_block = 0;
    if (p.choice == WalkChoice::kSample) {
      const PairWords words =
          philox<10>(static_cast<uint32_t>(row.query), static_cast<uint32_t>(step), 0, kWalkLane, key);
      uniform_of_key = static_cast<float>(uniform_of(words.word[0], words.word[1]));
      uniform_of_block = static_cast<float>(uniform_of(words.word[2], words.word[3]));
    }
    float of_partial[kMostPartialBlocks] = {};
#pragma unroll
    for (int k = 0; k < kMostPartialBlocks; ++k) {
      if (!__any_sync(kAll, partial[k] >= 0)) continue;
      const float4& mean = partial_mean[k];
      of_partial[k] = eight_sum(fmaf(h.x, mean.x, fmaf(h.y, mean.y, fmaf(h.z, mean.z, h.w * mean.w))));
    }
    const auto score_of = [&](int b) {
      float s = scores[b];
#pragma unroll
      for (int k = 0; k < kMostPartialBlocks; ++k) s = partial[k] == b ? of_partial[k] : s;
      if (bias) s += __ldg(bias + b);
      return closed[b / 32] >> b % 32 & 1 ? kForbidden : s;
    };
    Decision of_block;
    if (p.blocks <= 8 * kHeldBlocks) {
      float held[kHeldBlocks];
#pragma unroll
      for (int n = 0; n < kHeldBlocks; ++n) {
        const int b = sub * kHeldBlocks + n;
        const float s = score_of(min(b, p.blocks - 1));
        held[n] = b < p.blocks ? s : kForbidden;
      }
      of_block = decide(held, sub * kHeldBlocks, p.choice, uniform_of_block, p.log_prob != nullptr);
      of_block.place = min(of_block.place, p.blocks - 1);
    } else {
      for (int n = 0; n < mine; ++n) scores[first + n] = score_of(first + n);
      __syncwarp();
      of_block = decide_many(scores, first, mine, p.choice, uniform_of_block);
    }
    const int block = of_block.place, begin = block * p.block;

    // Which of this lane's keys are open.
    uint32_t open = 0;
    if (live) {
      const int from = begin + sub * kKeys, end = min(begin + p.block, p.keys);
#pragma unroll
      for (int k = 0; k < kKeys; ++k)
        open |= static_cast<uint32_t>(from + k < end && from + k >= candidates.lo &&
                                      from + k < candidates.hi && from + k != candidates.own)
                << k;
      if (candidates.open_before)
        for (int k = 0; k < kKeys; ++k)
          if (open >> k & 1 && !candidates.open(from + k)) open &= ~(1u << k);
      if (!p.duplicates)
        for (int k = 0; k < step; ++k) {
          const int place = list[k] - from;
          if (place >= 0 && place < kKeys) open &= ~(1u << place);
        }
    }

    KeyChoice choice{};
    if constexpr (kCluster) {
      cg::cluster_group cluster = cg::this_cluster();
      int16_t* const want = reinterpret_cast<int16_t*>(shared + plan.want);
      reinterpret_cast<uint16_t*>(own_hidden + P)[sub] = static_cast<uint16_t>(open);
      for (int to = sub; to < ranks; to += 8)
        cluster.map_shared_rank(want, to)[rank * kRows + local] =
            static_cast<int16_t>(live && block % ranks == to ? block : -1);
      if (step == 0) asm volatile("cp.async.wait_group 0;" ::: "memory");
      cluster.barrier_arrive();
#pragma unroll
      for (int n = 0; n < kQuads; ++n)
        lstm[n].add(left, LstmSide::kState, shared);  // of the next step, while others arrive
      cluster.barrier_wait();
      uint8_t* const served = reinterpret_cast<uint8_t*>(shared + plan.served);
      int wishes = 0;
      for (int from = 0; from < kRows * ranks; from += 32) {  // every warp writes the same list
        const bool wished = want[from + lane] >= 0;
        const unsigned some = __ballot_sync(kAll, wished);
        if (wished) served[wishes + __popc(some & ((1u << lane) - 1))] = static_cast<uint8_t>(from + lane);
        wishes += __popc(some);
      }
      __syncwarp();
      for (int n = local; n - local + warp * 4 < wishes; n += kRows) {
        const bool serves = n < wishes;
        const int entry = served[serves ? n : 0], wished = want[entry], there = entry / kRows,
                  other = entry % kRows;
        const int query = first_row + (there - rank) * kRows + other;
        float* const staged = scores;  // of this row; they have been looked at
        const float* const from = cluster.map_shared_rank(hidden, there) + other * kRowStride;
        const float4 theirs = reinterpret_cast<const float4*>(from)[sub];
        const uint32_t open_there = reinterpret_cast<const uint16_t*>(from + P)[sub];
        reinterpret_cast<float4*>(staged)[sub] = theirs;
        float uniform = 0;
        if (p.choice == WalkChoice::kSample) {
          const PairWords words =
              philox<10>(static_cast<uint32_t>(query), static_cast<uint32_t>(step), 0, kWalkLane, key);
          uniform = static_cast<float>(uniform_of(words.word[0], words.word[1]));
        }
        __syncwarp();
        const float* const keys = shared + plan.keys + wished / ranks * p.block * P;
        const KeyChoice found =
            choose_key<kKeys, true>(p, group, query, wished, keys, staged, open_there, uniform);
        if (serves) {
          const int row_found = found.key - wished * p.block;
          reinterpret_cast<float4*>(cluster.map_shared_rank(inputs, there) + other * kRowStride)[sub] =
              reinterpret_cast<const float4*>(keys + row_found * P)[piece_of<kKeys>(row_found, sub)];
          if (sub == 0)
            reinterpret_cast<float4*>(cluster.map_shared_rank(shared + plan.reply, there))[other] =
                make_float4(__int_as_float(found.key), found.log_p, found.normaliser, found.entropy);
        }
        __syncwarp();
      }
      cluster.sync();
      const float4 reply = reinterpret_cast<const float4*>(shared + plan.reply)[local];
      choice = {__float_as_int(reply.x), reply.y, reply.z, reply.w};
    } else {
#pragma unroll
      for (int n = 0; n < kQuads; ++n) lstm[n].add(left, LstmSide::kState, shared);
      choice =
          choose_key<kKeys, false>(p, group, row.query, block, unit_keys + static_cast<int64_t>(begin) * P,
                                   own_hidden, open, uniform_of_key);
      if (live)
        reinterpret_cast<float4*>(own_inputs)[sub] =
            reinterpret_cast<const float4*>(unit_keys + static_cast<int64_t>(choice.key) * P)[sub];
    }
    if (live && sub == 0) list[step] = choice.key;
    __syncwarp();
    if (live) row.made = step + 1;
    if (!p.duplicates) {    // a block whose last candidate is taken closes
      uint32_t others = 0;  // what was open before this choice
#pragma unroll
      for (int k = 0; k < kKeys; ++k)
        if (begin + sub * kKeys + k != choice.key) others |= open & 1u << k;
      const unsigned left_over = eight_ballot(others != 0);
      if (live && left_over == 0 && sub == 0) closed[block / 32] |= 1u << block % 32;
      __syncwarp();
    }
    if (live && p.log_prob && sub == 0) {
      const float normaliser = of_block.normaliser(), entropy = of_block.entropy();
      p.log_prob[at] = of_block.score - normaliser + choice.log_p;
      p.entropy[at] = entropy + choice.entropy;
      reinterpret_cast<float4*>(p.levels)[at] =
          make_float4(normaliser, entropy, choice.normaliser, choice.entropy);
    }
  }
  write_row<8>(p, unit, row, list, sub);
}

// How many blocks share the keys: the fewest that leave room for three blocks a multiprocessor, or for two,
// else 16, else 1 (keys stay in global memory).
int ranks_for(const RootedParams& p) {
  if (p.queries <= kRows) return 1;
  for (const int room : {kThirdShared, kHalfShared})
    for (const int ranks : {2, 4, 8, 16})
      if (Plan(p, ranks).bytes <= room) return ranks;
  return Plan(p, 16).bytes <= kMostShared ? 16 : 1;
}

template <bool kCluster, int kKeys>
cudaError_t launch(const RootedParams& p, int ranks, cudaStream_t stream) {
  const auto kernel = block_walk<kCluster, kKeys>;
  cudaLaunchConfig_t config = {};
  const int tiles = (p.queries + kRows - 1) / kRows;
  config.gridDim =
      dim3(static_cast<unsigned>(round_up(tiles, ranks)), static_cast<unsigned>(p.batch * p.groups));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(Plan(p, ranks).bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim = {static_cast<unsigned>(ranks), 1, 1};
  config.attrs = attribute;
  config.numAttrs = kCluster ? 1 : 0;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     static_cast<int>(config.dynamicSmemBytes)))
    return error;
  if (kCluster)
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1))
      return error;
  return cudaLaunchKernelEx(&config, kernel, p);
}

template <int kKeys>
cudaError_t launch_keys(const RootedParams& p, cudaStream_t stream) {
  const int ranks = ranks_for(p);
  return ranks > 1 ? launch<true, kKeys>(p, ranks, stream) : launch<false, kKeys>(p, 1, stream);
}

}  // namespace

const char* block_walk_refusal(int64_t keys, int64_t block, int64_t steps) {
  if (steps > kMostWalkSteps) return "more than 256 edges a query";
  if (block > kMostWalkBlock) return "blocks of more than 128 keys";
  RootedParams p;
  p.keys = static_cast<int>(keys);
  p.steps = static_cast<int>(steps);
  p.block = static_cast<int>(block);
  p.blocks = (p.keys + p.block - 1) / p.block;
  p.span.causal = true;  // as much shared memory as it can be
  return Plan(p, 1).bytes > kMostShared ? "the scores of a step do not fit into shared memory" : nullptr;
}

int launch_block_walk(const RootedParams& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  if (p.batch * p.groups == 0 || p.queries == 0) return cudaSuccess;
  return p.block <= 64 ? launch_keys<8>(p, stream) : launch_keys<16>(p, stream);
}

}  // namespace edgewise::kernels::cuda
