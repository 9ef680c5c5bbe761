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
    grad = {p.grad_log_prob[at], p.grad_entropy[at], p.levels[at * 2], p.levels[at * 2 + 1]};
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
