// The backward pass of the walks of SacEdges on CUDA. The states h of all predictions are known, so that the
// softmaxes come first, all predictions side by side (walk_params.h has the equations), and the LSTM's chain
// after them.
//
// Scores are computed again, the softmax from its stored normaliser. Gradients of states: a warp a
// prediction. Gradients of nodes: a block a few nodes, predictions in a fixed order; what meets in any order
// is summed in whole numbers. So no result depends on the order of threads.
#include "kernels/cuda/walk/walk_common.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 16, kThreads = 32 * kWarps;

__device__ float4 state_part(const float* state) {  // numbers 4 s .. of this lane
  return *reinterpret_cast<const float4*>(state + lane_id() % 8 * 4);
}
__device__ void store_state(float* to, const float4& sum) {  // of every lane the same, by s
  if (lane_id() < 8) reinterpret_cast<float4*>(to)[lane_id()] = sum;
}

// ---- predictions among all nodes ----

// Prediction q of a unit: which query it belongs to, what it may choose, and its gradients.
struct Prediction {
  int64_t at;              // of [U, Q]
  int query, item, first;  // first: prediction 0 of its query
  PredictionGrad grad;
  int chosen;

  __device__ Prediction(const PredictionGradParams& p, int unit, int q) {
    at = static_cast<int64_t>(unit) * p.predictions + q;
    item = unit / p.groups;
    query = q / p.run;
    first = q - q % p.run;
    grad = {p.grad_log_prob[at], p.grad_entropy[at], p.levels[at * p.level_stride],
            p.levels[at * p.level_stride + 1]};
    chosen = static_cast<int>(p.chosen[at]);
  }
  // Bits of the candidates among nodes [begin, begin + 32).
  __device__ uint32_t open(const PredictionGradParams& p, int unit, int q, int begin) const {
    const Candidates candidates(p.span, item, query, p.nodes);
    const int j = begin + lane_id();
    uint32_t bits = __ballot_sync(kAll, j < p.nodes && candidates.contains(j));
    if (p.duplicates) return bits;
    const int64_t list = static_cast<int64_t>(unit) * p.predictions + first;
    for (int from = 0; from < q - first; from += 32) {
      const int k = from + lane_id(),
                place = k < q - first ? static_cast<int>(p.chosen[list + k]) - begin : -1;
      bits &= ~__reduce_or_sync(kAll, place >= 0 && place < 32 ? 1u << place : 0u);
    }
    return bits;
  }
  // ds of node begin + lane from its score.
  __device__ float slope(const PredictionGradParams& p, int unit, int q, int begin, float score) const {
    const uint32_t bits = open(p, unit, q, begin);
    const int j = begin + lane_id();
    if (!(bits >> lane_id() & 1)) return 0;
    if (p.distance)
      score += __ldg(p.distance + static_cast<int64_t>(unit % p.groups) * (p.queries + p.nodes - 1) + j -
                     query + p.queries - 1);
    return grad(score, j == chosen);
  }
};

// dh of each prediction: 16 of them look at the same 64 nodes, which lie in shared memory.
__global__ void __launch_bounds__(kThreads)
    prediction_states(const __grid_constant__ PredictionGradParams p) {
  __shared__ __align__(16) float tile[64 * P];
  const int warp = static_cast<int>(threadIdx.x / 32), q = static_cast<int>(blockIdx.x) * kWarps + warp,
            unit = static_cast<int>(blockIdx.y);
  const int64_t at = static_cast<int64_t>(unit) * p.predictions + q;
  const bool acts = q < p.predictions && p.acts[at];
  const float* const nodes = p.node_values + static_cast<int64_t>(unit) * p.nodes * P;
  const Prediction prediction(p, unit, min(q, p.predictions - 1));
  const float4 h = acts ? state_part(p.states + at * P) : make_float4(0, 0, 0, 0);
  float4 sum = make_float4(0, 0, 0, 0);
  if (!__syncthreads_or(acts)) {
    if (q < p.predictions) store_state(p.grad_states + at * P, sum);
    return;
  }
  for (int begin = 0; begin < p.nodes; begin += 64) {
    __syncthreads();
    const int count = min(64, p.nodes - begin);
    for (int n = static_cast<int>(threadIdx.x); n < count * P / 4; n += kThreads)
      reinterpret_cast<float4*>(tile)[n] =
          reinterpret_cast<const float4*>(nodes + static_cast<int64_t>(begin) * P)[n];
    __syncthreads();
    if (!acts) continue;
    for (int half = 0; half < count; half += 32) {
      NodeRows rows;
      rows.load(tile + half * P, count - half);
      rows.add_weighted(prediction.slope(p, unit, q, begin + half, rows.scores(h)), sum);
    }
  }
  sum = sum_over_groups(sum);
  if (q < p.predictions) store_state(p.grad_states + at * P, sum);
}

// dw of 32 nodes: warps take runs of predictions in turn, and add up in their order.
__global__ void __launch_bounds__(kThreads) prediction_nodes(const __grid_constant__ PredictionGradParams p) {
  __shared__ __align__(16) float total[32 * P];
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x / 32),
            begin = static_cast<int>(blockIdx.x) * 32, unit = static_cast<int>(blockIdx.y);
  const int count = min(32, p.nodes - begin);
  NodeRows rows, sums;
  rows.load(p.node_values + (static_cast<int64_t>(unit) * p.nodes + begin) * P, count);
  sums.clear();
  for (int from = warp * p.run; from < p.predictions; from += kWarps * p.run) {
    float of_query = 0;
    int query = 0;
    for (int q = from; q < min(from + p.run, p.predictions); ++q) {
      const int64_t at = static_cast<int64_t>(unit) * p.predictions + q;
      if (!p.acts[at]) continue;
      const Prediction prediction(p, unit, q);
      const float4 h = state_part(p.states + at * P);
      const float ds = prediction.slope(p, unit, q, begin, rows.scores(h));
      sums.add_outer(ds, h);
      of_query += ds;
      query = prediction.query;
    }
    if (p.grad_distance.data && lane < count)
      add_orderless(p.grad_distance,
                    static_cast<int64_t>(unit % p.groups) * (p.queries + p.nodes - 1) + begin + lane - query +
                        p.queries - 1,
                    of_query);
  }
  for (int w = 0; w < kWarps; ++w) {
    if (warp == w) {
#pragma unroll
      for (int v = 0; v < 8; ++v) {
        float4& to = reinterpret_cast<float4*>(total)[(lane / 8 * 8 + v) * (P / 4) + lane % 8];
        const float4 x = sums.row[v];
        to = w == 0 ? x : make_float4(to.x + x.x, to.y + x.y, to.z + x.z, to.w + x.w);
      }
    }
    __syncthreads();
  }
  for (int n = static_cast<int>(threadIdx.x); n < count * P; n += kThreads)
    p.grad_nodes[(static_cast<int64_t>(unit) * p.nodes + begin) * P + n] = total[n];
}

// ---- predictions in blocks ----

// Means of the partial blocks of each row: a warp a row.
__global__ void __launch_bounds__(256) partial_means(const __grid_constant__ BlockGradParams g) {
  const RootedParams& p = g.walk;
  const int lane = lane_id(), query = static_cast<int>(blockIdx.x * 8 + threadIdx.x / 32),
            unit = static_cast<int>(blockIdx.y);
  if (query >= p.queries) return;
  const Candidates candidates(p.span, unit / p.groups, query, p.keys);
  for (int k = 0; k < kMostPartialBlocks; ++k) {
    const int block = candidates.partial(k, p.block, p.keys);
    float sum = 0;
    if (block >= 0) {
      const int begin = max(block * p.block, candidates.lo), end = min((block + 1) * p.block, candidates.hi);
#pragma unroll 8
      for (int j = begin; j < end; ++j)
        if (j != candidates.own && candidates.open(j))
          sum += p.key_nodes[(static_cast<int64_t>(unit) * p.keys + j) * P + lane];
      sum /= static_cast<float>(max(candidates.count(begin, end), 1));
    }
    g.partial_means[((static_cast<int64_t>(unit) * p.queries + query) * kMostPartialBlocks + k) * P + lane] =
        sum;
  }
}

// A warp a row: the predictions of its walk one by one.
__global__ void __launch_bounds__(256) block_grads(const __grid_constant__ BlockGradParams g) {
  extern __shared__ float of_distances[];  // [8, N] a row's sums over its walk
  const RootedParams& p = g.walk;
  float* const of_distance = of_distances + threadIdx.x / 32 * p.blocks;
  const int lane = lane_id(), query = static_cast<int>(blockIdx.x * 8 + threadIdx.x / 32),
            unit = static_cast<int>(blockIdx.y);
  if (query >= p.queries) return;
  const int64_t row = static_cast<int64_t>(unit) * p.queries + query;
  const int group = unit % p.groups, padded = (p.block + 31) / 32 * 32;
  const Candidates candidates(p.span, unit / p.groups, query, p.keys);
  const float* const means = p.means + static_cast<int64_t>(unit) * p.blocks * P;
  const float* const unit_keys = p.key_nodes + static_cast<int64_t>(unit) * p.keys * P;
  const int block_distance_at = p.block_farthest - (query + p.span.offset) / p.block;
  const int64_t distance_at = static_cast<int64_t>(group) * (p.queries + p.keys - 1) + p.queries - 1 - query;
  int partial[kMostPartialBlocks];
  float partial_mean[kMostPartialBlocks], partial_grad[kMostPartialBlocks];  // number `lane` of each
#pragma unroll
  for (int k = 0; k < kMostPartialBlocks; ++k) {
    partial[k] = g.partial_means ? candidates.partial(k, p.block, p.keys) : -1;
    partial_mean[k] = partial[k] < 0 ? 0 : g.partial_means[(row * kMostPartialBlocks + k) * P + lane];
    partial_grad[k] = 0;
  }
  if (g.grad_block_distance.data)
    for (int b = lane; b < p.blocks; b += 32) of_distance[b] = 0;
  for (int t = 0; t < p.steps; ++t) {
    const int64_t at = row * p.steps + t;
    float4 dh = make_float4(0, 0, 0, 0);
    if (!p.chosen[at]) {
      store_state(g.grad_states + at * P, dh);
      for (int b = lane; b < p.blocks; b += 32) g.block_grads[at * p.blocks + b] = 0;
      for (int k = lane; k < padded; k += 32) g.key_grads[at * padded + k] = 0;
      continue;
    }
    const float dlogp = g.grad_log_prob[at], dentropy = g.grad_entropy[at];
    const float4 levels = reinterpret_cast<const float4*>(p.levels)[at];
    const int key = static_cast<int>(p.destination[at]), chosen = key / p.block;
    const float* const state = p.states + at * P;
    const float4 h = state_part(state);
    const float h_lane = state[lane];
    float partial_score[kMostPartialBlocks], partial_slope[kMostPartialBlocks];
#pragma unroll
    for (int k = 0; k < kMostPartialBlocks; ++k) {
      partial_score[k] = partial[k] < 0 ? 0 : warp_sum(h_lane * partial_mean[k]);
      partial_slope[k] = 0;
    }
    const PredictionGrad of_block{dlogp + dentropy * levels.w, dentropy, levels.x, levels.y};
    for (int begin = 0; begin < p.blocks; begin += 32) {
      NodeRows rows;
      rows.load(means + begin * P, p.blocks - begin);
      const int b = begin + lane;
      float score = rows.scores(h);
      // How many of a block's candidates were taken before.
      int left = b < p.blocks ? candidates.count(b * p.block, min((b + 1) * p.block, p.keys)) : 0;
      if (!p.duplicates)
        for (int before = 0; before < t; ++before)
          left -= static_cast<int>(p.destination[row * p.steps + before]) / p.block == b;
      int own = -1;
#pragma unroll
      for (int k = 0; k < kMostPartialBlocks; ++k)
        if (partial[k] == b && b >= 0) score = partial_score[k], own = k;
      if (p.block_distance && b < p.blocks)
        score += p.block_distance[static_cast<int64_t>(group) * p.block_distances + block_distance_at + b];
      const float ds = left > 0 ? of_block(score, b == chosen) : 0.f;
      if (g.grad_block_distance.data && b < p.blocks) of_distance[b] += ds;
#pragma unroll
      for (int k = 0; k < kMostPartialBlocks; ++k) {
        const unsigned who = __ballot_sync(kAll, own == k);
        if (who) partial_slope[k] = __shfl_sync(kAll, ds, __ffs(static_cast<int>(who)) - 1);
      }
      const float shared = own < 0 ? ds : 0.f;  // of means that all rows share
      if (b < p.blocks) g.block_grads[at * p.blocks + b] = shared;
      rows.add_weighted(shared, dh);
    }
    const PredictionGrad of_key{dlogp, dentropy, levels.z, levels.w};
    const int first = chosen * p.block, size = min(p.block, p.keys - first);
    for (int begin = 0; begin < padded; begin += 32) {
      if (begin >= size) {
        g.key_grads[at * padded + begin + lane] = 0;
        continue;
      }
      NodeRows rows;
      rows.load(unit_keys + static_cast<int64_t>(first + begin) * P, size - begin);
      const int j = first + begin + lane;
      float score = rows.scores(h);
      bool open = begin + lane < size && candidates.contains(j);
      if (!p.duplicates)
        for (int before = 0; before < t; ++before)
          open = open && static_cast<int>(p.destination[row * p.steps + before]) != j;
      if (open && p.distance) score += p.distance[distance_at + j];
      const float ds = open ? of_key(score, j == key) : 0.f;
      if (open && g.grad_distance.data) add_orderless(g.grad_distance, distance_at + j, ds);
      g.key_grads[at * padded + begin + lane] = ds;
      rows.add_weighted(ds, dh);
    }
    dh = sum_over_groups(dh);
#pragma unroll
    for (int k = 0; k < kMostPartialBlocks; ++k) {
      if (partial[k] < 0) continue;
      partial_grad[k] = fmaf(partial_slope[k], h_lane, partial_grad[k]);
      // Lane s of a group adds its four numbers of the mean.
      const int s = lane % 8 * 4;
      dh.x = fmaf(partial_slope[k], __shfl_sync(kAll, partial_mean[k], s), dh.x);
      dh.y = fmaf(partial_slope[k], __shfl_sync(kAll, partial_mean[k], s + 1), dh.y);
      dh.z = fmaf(partial_slope[k], __shfl_sync(kAll, partial_mean[k], s + 2), dh.z);
      dh.w = fmaf(partial_slope[k], __shfl_sync(kAll, partial_mean[k], s + 3), dh.w);
    }
    store_state(g.grad_states + at * P, dh);
  }
  if (g.grad_block_distance.data)
    for (int b = lane; b < p.blocks; b += 32)
      add_orderless(g.grad_block_distance,
                    static_cast<int64_t>(group) * p.block_distances + block_distance_at + b, of_distance[b]);
  if (g.partial_grads)
#pragma unroll
    for (int k = 0; k < kMostPartialBlocks; ++k)
      g.partial_grads[(row * kMostPartialBlocks + k) * P + lane] = partial_grad[k];
}

// 32 keys of a block: the predictions that chose the block, in their order.
__global__ void __launch_bounds__(kThreads) block_nodes(const __grid_constant__ BlockNodeGradParams g) {
  __shared__ __align__(16) float total[32 * P];
  const RootedParams& p = g.walk;
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x / 32), unit = static_cast<int>(blockIdx.y);
  const int padded = (p.block + 31) / 32 * 32, parts = padded / 32;
  const int block = static_cast<int>(blockIdx.x) / parts, begin = static_cast<int>(blockIdx.x) % parts * 32;
  const int first = block * p.block + begin, count = min(32, min(p.block - begin, p.keys - first));
  if (count <= 0) return;
  const int64_t predictions = static_cast<int64_t>(p.queries) * p.steps;
  const int64_t* const offsets = g.offsets + static_cast<int64_t>(unit) * (p.blocks + 1) + block;
  NodeRows sums;
  sums.clear();
  for (int64_t n = offsets[0] + warp; n < offsets[1]; n += kWarps) {
    const int64_t at = unit * predictions + g.sorted[unit * predictions + n];
    sums.add_outer(g.key_grads[at * padded + begin + lane], state_part(p.states + at * P));
  }
  for (int w = 0; w < kWarps; ++w) {
    if (warp == w) {
#pragma unroll
      for (int v = 0; v < 8; ++v) {
        float4& to = reinterpret_cast<float4*>(total)[(lane / 8 * 8 + v) * (P / 4) + lane % 8];
        const float4 x = sums.row[v];
        to = w == 0 ? x : make_float4(to.x + x.x, to.y + x.y, to.z + x.z, to.w + x.w);
      }
    }
    __syncthreads();
  }
  // Partial means: a warp two keys. Rows whose partial block this is lie where an end of their range, or
  // their own key, falls into it.
  for (int k = warp; k < count; k += kWarps) {
    const int j = first + k;
    float sum = total[k * P + lane];
    if (g.partial_grads) {
      for (int kind = 0; kind < kMostPartialBlocks; ++kind) {
        // Positions at which the end may fall into the block, one more on each side.
        int shift = 0;
        if (kind == 0 && p.span.window < 0) continue;
        if (kind == 0) shift = p.span.window;                            // lo = position - window
        if (kind == 1) shift = p.span.causal ? -1 : -p.span.window - 1;  // hi = position + 1, or + window + 1
        if (kind == 1 && !p.span.causal && p.span.window < 0) continue;
        if (kind == 2 && !p.span.no_self) continue;
        const int from = max(block * p.block + shift - p.span.offset, 0),
                  to = min((block + 1) * p.block + shift - p.span.offset, p.queries);
        for (int i = from; i < to; ++i) {
          const Candidates candidates(p.span, unit / p.groups, i, p.keys);
          if (candidates.partial(kind, p.block, p.keys) != block || !candidates.contains(j)) continue;
          const int size = candidates.count(block * p.block, min((block + 1) * p.block, p.keys));
          sum +=
              g.partial_grads[((static_cast<int64_t>(unit) * p.queries + i) * kMostPartialBlocks + kind) * P +
                              lane] /
              static_cast<float>(size);
        }
      }
    }
    g.grad_nodes[(static_cast<int64_t>(unit) * p.keys + j) * P + lane] += sum;
  }
}

// ---- LSTM ----

constexpr int kLstmRows = 8;

// A warp a chain, a lane a unit: cells forward, then the gates' gradients back. dh of the step before is d
// W_hh^T.
__global__ void __launch_bounds__(32 * kLstmRows) lstm_grads(const __grid_constant__ LstmGradParams p) {
  constexpr int kPitch = P + 1;
  __shared__ float weights[4 * P * kPitch];  // turned
  __shared__ __align__(16) float slopes[kLstmRows][4 * P];
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x / 32), unit = static_cast<int>(blockIdx.y);
  const float* const given = p.weight_hh + unit % p.groups * P * 4 * P;
  for (int n = static_cast<int>(threadIdx.x); n < P * 4 * P; n += 32 * kLstmRows)
    weights[n % (4 * P) * kPitch + n / (4 * P)] = given[n];
  __syncthreads();
  const int of_unit = static_cast<int>(blockIdx.x) * kLstmRows + warp;
  if (of_unit >= p.rows) return;
  const int64_t row = static_cast<int64_t>(unit) * p.rows + of_unit;
  float* const d = slopes[warp];
  const auto gate = [&](int t, int n) -> float& { return p.gates[((row * p.steps + t) * 4 + n) * P + lane]; };
  int steps = 0;
  float cell = 0;
  while (steps < p.steps && p.acts[row * p.steps + steps]) {
    cell = fmaf(sigmoid_of(gate(steps, 1)), cell, sigmoid_of(gate(steps, 0)) * tanh_of(gate(steps, 2)));
    p.cells[(row * p.steps + steps++) * P + lane] = cell;
  }
  for (int t = steps; t < p.steps; ++t)
    for (int n = 0; n < 4; ++n) gate(t, n) = 0;
  float dh = 0, dc = 0;
  for (int t = steps - 1; t >= 0; --t) {
    dh += p.grad_states[(row * p.steps + t) * P + lane];
    const float i = sigmoid_of(gate(t, 0)), f = sigmoid_of(gate(t, 1)), g = tanh_of(gate(t, 2)),
                o = sigmoid_of(gate(t, 3));
    const float bent = tanh_of(cell), before = t > 0 ? p.cells[(row * p.steps + t - 1) * P + lane] : 0;
    const float along = fmaf(dh * o, 1 - bent * bent, dc);
    const float slope[4] = {along * g * i * (1 - i), along * before * f * (1 - f), along * i * (1 - g * g),
                            dh * bent * o * (1 - o)};
#pragma unroll
    for (int n = 0; n < 4; ++n) gate(t, n) = d[n * P + lane] = slope[n];
    dc = along * f;
    cell = before;
    __syncwarp();
    float even = 0, odd = 0;
#pragma unroll 8
    for (int q = 0; q < 4 * P; q += 4) {
      const float4 x = *reinterpret_cast<const float4*>(d + q);
      even = fmaf(x.x, weights[q * kPitch + lane], even);
      odd = fmaf(x.y, weights[(q + 1) * kPitch + lane], odd);
      even = fmaf(x.z, weights[(q + 2) * kPitch + lane], even);
      odd = fmaf(x.w, weights[(q + 3) * kPitch + lane], odd);
    }
    dh = even + odd;
    __syncwarp();
  }
}

__global__ void row_scatter(const __grid_constant__ RowScatterParams p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  if (row >= p.units * p.rows) return;
  const int64_t target = p.index[row];
  if (target < 0) return;
  add_orderless(p.sums, (row / p.rows * p.targets + target) * P + lane_id(), p.values[row * P + lane_id()]);
}

dim3 grid_of(int64_t x, int64_t each, int64_t units) {
  return dim3(static_cast<unsigned>((x + each - 1) / each), static_cast<unsigned>(units));
}

}  // namespace

int launch_prediction_grads(const PredictionGradParams& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  const int units = p.batch * p.groups;
  if (units == 0 || p.predictions == 0 || p.nodes == 0) return cudaSuccess;
  prediction_states<<<grid_of(p.predictions, kWarps, units), kThreads, 0, stream>>>(p);
  prediction_nodes<<<grid_of(p.nodes, 32, units), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

int launch_block_grads(const BlockGradParams& g, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  const RootedParams& p = g.walk;
  const int units = p.batch * p.groups;
  if (units == 0 || p.queries == 0) return cudaSuccess;
  if (g.partial_means) partial_means<<<grid_of(p.queries, 8, units), 256, 0, stream>>>(g);
  const size_t bytes = static_cast<size_t>(g.grad_block_distance.data ? 8 * p.blocks : 0) * sizeof(float);
  if (const cudaError_t error = cudaFuncSetAttribute(block_grads, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     static_cast<int>(bytes)))
    return error;
  block_grads<<<grid_of(p.queries, 8, units), 256, bytes, stream>>>(g);
  return cudaGetLastError();
}

int launch_block_node_grads(const BlockNodeGradParams& g, Stream given) {
  const RootedParams& p = g.walk;
  const int units = p.batch * p.groups, parts = (p.block + 31) / 32;
  if (units == 0 || p.blocks == 0) return cudaSuccess;
  block_nodes<<<dim3(static_cast<unsigned>(p.blocks * parts), static_cast<unsigned>(units)), kThreads, 0,
                static_cast<cudaStream_t>(given)>>>(g);
  return cudaGetLastError();
}

int launch_lstm_grads(const LstmGradParams& p, Stream given) {
  if (p.batch * p.groups == 0 || p.rows == 0 || p.steps == 0) return cudaSuccess;
  lstm_grads<<<grid_of(p.rows, kLstmRows, p.batch * p.groups), 32 * kLstmRows, 0,
               static_cast<cudaStream_t>(given)>>>(p);
  return cudaGetLastError();
}

int launch_row_scatter(const RowScatterParams& p, Stream given) {
  if (p.units * p.rows == 0) return cudaSuccess;
  row_scatter<<<grid_of(p.units * p.rows, 8, 1), 256, 0, static_cast<cudaStream_t>(given)>>>(p);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
