// The walk of pairs of SacEdges on CUDA (the equations of cpu/pairs_walk_level.cpp): one block of 8 warps
// runs the chain of a unit, 2 T predictions one after the other.
//
// What counts is the length of one prediction. LSTM: 128 gates by the two halves of the 64 inputs, one a
// thread, weights in registers. Scores: a warp has neighbouring chunks of 32 nodes, which lie in shared
// memory where they fit. Softmax: maximum and sums of each warp meet in shared memory; every warp works out
// which one has the drawn node, and that one finds it. Three barriers a prediction.
#include "kernels/cuda/walk/walk_common.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kFewChunks = 1, kSomeChunks = 4, kMostChunks = 16;  // of a warp: 256, 1024 or 4096 nodes in all
constexpr int kMostShared = 200 * 1024;

// In shared memory, in floats: nodes of both sides (once, when they are the same), candidates left to each
// source.
struct Plan {
  bool shared_nodes;
  int queries, keys, left, bytes;

  __host__ __device__ explicit Plan(const PairsParams& p) {
    const bool same = p.query_nodes == p.key_nodes;
    const int64_t nodes = static_cast<int64_t>(p.queries + (same ? 0 : p.keys)) * P;
    shared_nodes = (nodes + p.queries) * 4 <= kMostShared;
    queries = 0;
    keys = same ? 0 : p.queries * P;
    left = shared_nodes ? static_cast<int>(nodes) : 0;
    bytes = (left + p.queries) * 4;
  }
};

struct WarpSums {
  float top[kWarps], total[kWarps], weighted[kWarps];
};
struct Prediction {
  int index;
  float score;
};

// A softmax over nodes spread over all warps.
struct Softmax {
  float top, total, weighted;
  __device__ __forceinline__ float normaliser() const { return top + __logf(total); }
  __device__ __forceinline__ float entropy() const { return normaliser() - weighted / total; }
};

// What the threads of the block share beside the nodes.
struct Common {
  alignas(16) float hidden[2][P];
  alignas(16) float start[P];
  WarpSums sums;
  Prediction prediction;
  int counts[kWarps];
};

// kChunks: chunks of a warp. A prediction runs through all of this once: code for more of them would not stay
// near.
template <int kChunks>
class Chain {
 public:
  __device__ __forceinline__ Chain(const PairsParams& params, Common& common, float* shared)
      : p_(params),
        common_(common),
        plan_(params),
        lane_(lane_id()),
        warp_(static_cast<int>(threadIdx.x / 32)) {
    unit_ = static_cast<int>(blockIdx.x);
    item_ = unit_ / p_.groups;
    group_ = unit_ % p_.groups;
    words_ = (p_.keys + 31) / 32;
    left_ = reinterpret_cast<int*>(shared + plan_.left);
    queries_ = p_.query_nodes + static_cast<int64_t>(unit_) * p_.queries * P;
    keys_ = p_.key_nodes + static_cast<int64_t>(unit_) * p_.keys * P;
    if (plan_.shared_nodes) {
      copy(queries_, p_.queries, shared + plan_.queries);
      if (p_.query_nodes != p_.key_nodes) copy(keys_, p_.keys, shared + plan_.keys);
      queries_ = shared + plan_.queries;
      keys_ = shared + plan_.keys;
    }
    // Gates: warp w has units 4 w .. 4 w + 3; lane = 8 unit + 2 gate + side (x, h).
    const int side = lane_ % 2, column = lane_ / 2 % 4 * P + 4 * warp_ + lane_ / 8;
    const float* const from =
        (side == 0 ? p_.lstm.weight_ih : p_.lstm.weight_hh) + static_cast<int64_t>(group_) * P * 4 * P;
#pragma unroll
    for (int k = 0; k < P; ++k) weights_[k] = from[k * 4 * P + column];
    bias_ = side == 0 ? p_.lstm.bias[group_ * 4 * P + column] : 0;
    if (threadIdx.x < P) {
      common_.hidden[0][threadIdx.x] = 0;
      common_.start[threadIdx.x] = p_.start[group_ * P + static_cast<int>(threadIdx.x)];
    }
    key_ = stream_key_of(p_.stream, item_, group_);
    for (int i = static_cast<int>(threadIdx.x); i < p_.queries; i += kThreads)
      left_[i] = row(i).count() * valid(i);
    __syncthreads();
  }

  __device__ __forceinline__ void run() {
    const int limit = static_cast<int>(min(p_.limits[item_], static_cast<int64_t>(p_.steps)));
    const int64_t total = pairs_left();
    int made = 0;
    const bool choosing = limit > 0 && total > 0 && (p_.duplicates ? total > 1 : total > limit);
    if (limit > 0 && total > 0 && !choosing) {
      if (warp_ == 0) made = take_all();
      made = __shfl_sync(kAll, made, 0);
      if (lane_ == 0) common_.counts[warp_] = made;
      __syncthreads();
      made = common_.counts[0];
    } else if (choosing) {
      walk(limit);
      made = limit;
    }
    for (int t = static_cast<int>(threadIdx.x); t < p_.steps; t += kThreads) {
      const int64_t at = place(t);
      p_.taken[at] = t < made;
      p_.chosen[at] = t < made && choosing;
      if (t >= made) p_.source[at] = p_.destination[at] = 0;
      if (!(t < made && choosing)) p_.log_prob[at] = p_.entropy[at] = 0;
    }
    if (p_.states)
      for (int64_t n = (choosing ? made : 0) * int64_t{P} + threadIdx.x; n < int64_t{p_.steps} * P;
           n += kThreads)
        for (int side = 0; side < 2; ++side) p_.states[(side * units() * p_.steps + place(0)) * P + n] = 0;
  }

 private:
  __device__ __forceinline__ int64_t units() const {
    return static_cast<int64_t>(p_.batch) * p_.groups;
  }
  __device__ __forceinline__ int64_t place(int t) const {
    return static_cast<int64_t>(unit_) * p_.steps + t;
  }
  __device__ __forceinline__ Candidates row(int i) const {
    return {p_.span, item_, i, p_.keys};
  }
  __device__ __forceinline__ bool valid(int i) const {
    return !p_.query_mask || p_.query_mask[static_cast<int64_t>(item_) * p_.queries + i];
  }
  __device__ __forceinline__ uint32_t* made_row(int i) const {
    return p_.made + (static_cast<int64_t>(unit_) * p_.queries + i) * words_;
  }

  __device__ __forceinline__ static void copy(const float* from, int rows, float* to) {
    for (int n = static_cast<int>(threadIdx.x); n < rows * P / 4; n += kThreads)
      reinterpret_cast<float4*>(to)[n] = reinterpret_cast<const float4*>(from)[n];
  }

  __device__ __forceinline__ int64_t pairs_left() const {  // every warp counts for itself
    long long sum = 0;
    for (int i = lane_; i < p_.queries; i += 32) sum += left_[i];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
    return sum;
  }

  __device__ __forceinline__ int take_all() {
    int made = 0;
    for (int i = 0; i < p_.queries; ++i) {
      if (left_[i] == 0) continue;
      const Candidates candidates = row(i);
      for (int begin = candidates.lo; begin < candidates.hi; begin += 32) {
        const int j = begin + lane_;
        const bool is_candidate = j < candidates.hi && candidates.contains(j);
        const unsigned found = __ballot_sync(kAll, is_candidate);
        if (is_candidate) {
          const int64_t at = place(made + __popc(found & ((1u << lane_) - 1)));
          p_.source[at] = i;
          p_.destination[at] = j;
        }
        made += __popc(found);
      }
    }
    return made;
  }

  // The next state from the given input.
  __device__ __forceinline__ void advance(const float* input) {
    const float* const from = lane_ % 2 == 0 ? input : common_.hidden[now_];
    float sum = bias_, other = 0;
#pragma unroll
    for (int k = 0; k < P; k += 4) {
      const float4 x = *reinterpret_cast<const float4*>(from + k);
      sum = fmaf(x.x, weights_[k], fmaf(x.y, weights_[k + 1], sum));
      other = fmaf(x.z, weights_[k + 2], fmaf(x.w, weights_[k + 3], other));
    }
    sum += other;
    sum += __shfl_xor_sync(kAll, sum, 1);
    const float gate = lane_ / 2 % 4 == 2 ? tanh_of(sum) : sigmoid_of(sum);
    const int unit = lane_ & 24;
    const float i = __shfl_sync(kAll, gate, unit), f = __shfl_sync(kAll, gate, unit + 2),
                g = __shfl_sync(kAll, gate, unit + 4), o = __shfl_sync(kAll, gate, unit + 6);
    cell_ = fmaf(f, cell_, i * g);
    if (lane_ % 8 == 0) common_.hidden[1 - now_][4 * warp_ + lane_ / 8] = o * tanh_of(cell_);
    now_ = 1 - now_;
    __syncthreads();
  }

  // Predicts among `count` nodes. forbidden(j): whether j < count may not be chosen; add(j): what distance
  // adds.
  template <typename Forbidden, typename Add>
  __device__ __forceinline__ Softmax predict(const float* nodes, int count, int side, int t,
                                             const Forbidden& forbidden, const Add& add) {
    double uniform = 0;
    if (p_.choice == WalkChoice::kSample) {  // before everything else: nothing waits for it then
      const PairWords words = philox<10>(0, static_cast<uint32_t>(2 * t + side), 0, kWalkLane, key_);
      uniform = uniform_of(words.word[0], words.word[1]);
    }
    const int chunks = (count + 31) / 32, each = (chunks + kWarps - 1) / kWarps, first = warp_ * each;
    const float4 h = *reinterpret_cast<const float4*>(common_.hidden[now_] + lane_ % 8 * 4);
    uint32_t* const open =
        p_.open ? p_.open + (side * units() * p_.steps + place(t)) * ((max(p_.queries, p_.keys) + 31) / 32)
                : nullptr;
    float score[kChunks], most = kForbidden;
#pragma unroll
    for (int n = 0; n < kChunks; ++n) {
      score[n] = kForbidden;
      if (n >= each || first + n >= chunks) continue;
      const int begin = 32 * (first + n), j = begin + lane_;
      NodeRows rows;
      rows.load(nodes + static_cast<int64_t>(begin) * P, count - begin);
      const float s = rows.scores(h) + add(min(j, count - 1));
      const bool is_open = j < count && !forbidden(j);
      if (is_open) score[n] = s;
      if (open) {
        const unsigned bits = __ballot_sync(kAll, is_open);
        if (lane_ == 0) open[first + n] = bits;
      }
      most = fmaxf(most, score[n]);
    }
    most = warp_max(most);
    float sum = 0, products = 0;
#pragma unroll
    for (int n = 0; n < kChunks; ++n)
      if (n < each) {
        const float x = score[n] <= kForbidden / 2 ? 0.f : __expf(score[n] - most);
        sum += x;
        products = fmaf(x, score[n], products);
      }
    sum = warp_sum(sum);
    products = warp_sum(products);
    if (lane_ == 0)
      common_.sums.top[warp_] = most, common_.sums.total[warp_] = sum,
      common_.sums.weighted[warp_] = products;
    __syncthreads();
    // Every warp: all sums below one maximum, and whose turn it is.
    const float other_top = lane_ < kWarps ? common_.sums.top[lane_] : kForbidden;
    Softmax result;
    result.top = warp_max(other_top);
    const float factor = lane_ < kWarps ? __expf(other_top - result.top) : 0.f;
    const float share = lane_ < kWarps ? factor * common_.sums.total[lane_] : 0.f;
    const float running = running_sum(share);
    result.total = __shfl_sync(kAll, running, 31);
    result.weighted = warp_sum(lane_ < kWarps ? factor * common_.sums.weighted[lane_] : 0.f);
    int winner = 0;
    float target = 0;
    bool drawn = false;
    if (p_.choice == WalkChoice::kSample) {
      target = static_cast<float>(uniform * static_cast<double>(result.total));
      const unsigned passed = __ballot_sync(kAll, running > target && share > 0);
      drawn = passed != 0;
      winner = drawn ? __ffs(static_cast<int>(passed)) - 1 : 0;
    }
    const float before = __shfl_up_sync(kAll, running, 1);
    if (!drawn) winner = warp_argmax(other_top, lane_ < kWarps ? lane_ : kWarps - 1);
    if (warp_ == winner) {
      float passed_before = winner == 0 ? 0.f : __shfl_sync(kAll, before, winner);
      int place = -1, last = -1;
      float best = kForbidden;
      int best_place = 32 * first;
#pragma unroll
      for (int n = 0; n < kChunks; ++n) {
        if (n >= each) continue;
        const int begin = 32 * (first + n);
        if (score[n] > best) best = score[n], best_place = begin + lane_;
        if (!drawn) continue;
        const float x = score[n] <= kForbidden / 2 ? 0.f : __expf(score[n] - result.top);
        const float up_to = passed_before + running_sum(x);
        const unsigned passed = __ballot_sync(kAll, up_to > target && x > 0),
                       some = __ballot_sync(kAll, x > 0);
        if (place < 0 && passed) place = begin + __ffs(static_cast<int>(passed)) - 1;
        if (some) last = begin + 31 - __clz(static_cast<int>(some));
        passed_before = __shfl_sync(kAll, up_to, 31);
      }
      if (place < 0) place = last;
      if (place < 0) place = warp_argmax(best, best_place);
      place = min(place, count - 1);
#pragma unroll
      for (int n = 0; n < kChunks; ++n)
        if (place == 32 * (first + n) + lane_) common_.prediction = {place, score[n]};
    }
    __syncthreads();
    return result;
  }

  __device__ __forceinline__ void keep_state(int side, int t) {
    if (p_.states && threadIdx.x < P)
      p_.states[(side * units() * p_.steps + place(t)) * P + threadIdx.x] = common_.hidden[now_][threadIdx.x];
  }
  __device__ __forceinline__ void keep_levels(int side, int t, const Softmax& softmax) {
    if (p_.levels && threadIdx.x == 0)
      reinterpret_cast<float2*>(p_.levels)[side * units() * p_.steps + place(t)] =
          make_float2(softmax.normaliser(), softmax.entropy());
  }

  __device__ __forceinline__ void walk(int limit) {
    const float* input = common_.start;
    const float* const distance =
        p_.distance ? p_.distance + static_cast<int64_t>(group_) * (p_.queries + p_.keys - 1) + p_.queries - 1
                    : nullptr;
    for (int t = 0; t < limit; ++t) {
      advance(input);
      keep_state(0, t);
      const Softmax of_source = predict(
          queries_, p_.queries, 0, t, [&](int i) { return left_[i] == 0; }, [](int) { return 0.f; });
      keep_levels(0, t, of_source);
      const Prediction source = common_.prediction;
      const int i = source.index;
      advance(queries_ + static_cast<int64_t>(i) * P);
      keep_state(1, t);
      const Candidates candidates = row(i);
      const uint32_t* const made = made_row(i);
      const Softmax of_destination = predict(
          keys_, p_.keys, 1, t,
          [&](int j) { return static_cast<bool>(!candidates.contains(j) | (made[j / 32] >> j % 32 & 1)); },
          [&](int j) { return distance ? __ldg(distance + j - i) : 0.f; });
      keep_levels(1, t, of_destination);
      const Prediction destination = common_.prediction;
      input = keys_ + static_cast<int64_t>(destination.index) * P;
      if (threadIdx.x == 0) {
        const int64_t at = place(t);
        p_.source[at] = i;
        p_.destination[at] = destination.index;
        p_.log_prob[at] =
            source.score - of_source.normaliser() + destination.score - of_destination.normaliser();
        p_.entropy[at] = of_source.entropy() + of_destination.entropy();
        if (!p_.duplicates) {  // read again after the barriers of the next predictions
          --left_[i];
          atomicOr(made_row(i) + destination.index / 32,
                   1u << destination.index % 32);  // without waiting for what was there
        }
      }
    }
  }

  const PairsParams& p_;
  Common& common_;
  const Plan plan_;
  int lane_, warp_, unit_, item_, group_, words_;
  int* left_;
  const float *queries_, *keys_;
  float weights_[P], bias_, cell_ = 0;
  uint64_t key_;
  int now_ = 0;
};

template <int kChunks>
__global__ void __launch_bounds__(kThreads, 1) pairs_walk(const __grid_constant__ PairsParams p) {
  extern __shared__ __align__(16) float shared[];
  __shared__ Common common;
  Chain<kChunks>(p, common, shared).run();
}

template <int kChunks>
cudaError_t launch(const PairsParams& p, cudaStream_t stream) {
  const int bytes = Plan(p).bytes;
  if (const cudaError_t error =
          cudaFuncSetAttribute(pairs_walk<kChunks>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
    return error;
  pairs_walk<kChunks>
      <<<static_cast<unsigned>(p.batch * p.groups), kThreads, static_cast<size_t>(bytes), stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

bool pairs_walk_takes(int64_t nodes) {
  return nodes <= int64_t{32} * kWarps * kMostChunks;
}

int launch_pairs_walk(const PairsParams& p, Stream stream) {
  if (p.batch * p.groups == 0 || p.steps == 0) return cudaSuccess;
  const int nodes = max(p.queries, p.keys);
  if (nodes <= 32 * kWarps * kFewChunks) return launch<kFewChunks>(p, static_cast<cudaStream_t>(stream));
  if (nodes <= 32 * kWarps * kSomeChunks) return launch<kSomeChunks>(p, static_cast<cudaStream_t>(stream));
  return launch<kMostChunks>(p, static_cast<cudaStream_t>(stream));
}

}  // namespace edgewise::kernels::cuda
