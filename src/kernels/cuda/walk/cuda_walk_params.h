// Parameters of the walks of SacEdges on CUDA: raw pointers with their shapes. Torch-free and CUDA-free.
//
// B items, G groups of heads that share their edges, U = B * G units, L queries, S keys, T predictions a
// query, P = kWalkWidth the predictor's width (narrower ones are padded with zeros, which stay zero).
#pragma once

#include <cstdint>

#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/walk_params.h"

namespace edgewise::kernels::cuda {

inline constexpr int kWalkWidth = 32;
inline constexpr int kWalkTile = 64;        // keys are looked at in tiles of so many
inline constexpr int kMostWalkSteps = 256;  // predictions a query

// Which keys query i may choose: those of [lo, hi) that the mask allows, less a gap around its own place.
struct WalkSpan {
  int offset = 0;   // query i stands at key offset + i
  int window = -1;  // keys at most so far away; -1 = all
  int gap = -1;     // not those at most so far away; -1 = no gap
  bool causal = false;
  const int32_t* open_before = nullptr;  // [B, S + 1] keys before j that the mask allows; null = all
};

// What a stream of random numbers is for (philox.h, stream_key()); the unit's key is made on the device.
struct WalkStream {
  uint64_t seed = 0, step = 0;
  uint32_t layer = 0, purpose = 0;
  int64_t first_item = 0;
};

struct LstmTensors {
  const float* weight_ih = nullptr;  // [G, P, 4P]: input, forget, cell, output gates
  const float* weight_hh = nullptr;  // [G, P, 4P]
  const float* bias = nullptr;       // [G, 4P]
};

struct RootedParams {
  int batch = 0, groups = 0, queries = 0, keys = 0;
  int steps = 0;                       // T
  const float* query_nodes = nullptr;  // [U, L, P]
  const float* key_nodes = nullptr;    // [U, S, P]
  LstmTensors lstm;
  const float* distance = nullptr;  // [G, L + S - 1], at j - i + L - 1; null = nothing is added
  WalkSpan span;
  int limit = 0;                    // edges of every query, where limits is null
  const int64_t* limits = nullptr;  // [B, L]
  bool duplicates = false;
  WalkChoice choice = WalkChoice::kSample;
  WalkStream stream;
  // Out, [U, L, T]. Keys in the order of the walk, and sorted with the prediction that chose each; S where
  // none was.
  int32_t* sorted = nullptr;
  int64_t* order = nullptr;  // null = nobody asks, as the next ones
  int64_t* destination = nullptr;
  bool* taken = nullptr;   // an edge was made
  bool* chosen = nullptr;  // ... by choice: it has a log-probability
  float* log_prob = nullptr;
  float* entropy = nullptr;
  float* levels = nullptr;  // [U, L, T, 2] normaliser and entropy
  float* states = nullptr;  // [U, L, T, P] h of each prediction
};
int launch_rooted_walk(const RootedParams& params, Stream stream);  // a cudaError_t
// Why the kernel does not take these sizes; null when it does.
const char* rooted_walk_refusal(int64_t keys, int64_t steps);

// ---- backward ----
// Every prediction is a softmax over nodes; its gradients need its state h alone, so that all predictions are
// worked on side by side:  ds_j = dlogp (1[j chosen] - p_j) - dH p_j (log p_j + H),  dh = sum_j ds_j w_j,
// dw_j += ds_j h. The LSTM's chain comes after (LstmGradParams).

// Sums over predictions that meet in any order are formed in whole numbers, so that they do not depend on it:
// x becomes round(x * *scale).
struct OrderlessSum {
  long long* data = nullptr;     // null = not wanted
  const float* scale = nullptr;  // one number on the device
};

// Predictions among all nodes. Q predictions a unit.
struct PredictionGradParams {
  int batch = 0, groups = 0, queries = 0;
  int predictions = 0;                   // Q
  int nodes = 0;                         // n
  int run = 1;                           // prediction q belongs to query q / run
  const float* states = nullptr;         // [U, Q, P]
  const float* node_values = nullptr;    // [U, n, P]
  const float* distance = nullptr;       // [G, L + n - 1]; null = nothing was added
  const int64_t* chosen = nullptr;       // [U, Q]
  const bool* acts = nullptr;            // [U, Q]
  const float* levels = nullptr;         // [U, Q, 2]: normaliser, entropy
  const float* grad_log_prob = nullptr;  // [U, Q]
  const float* grad_entropy = nullptr;   // [U, Q]
  WalkSpan span;
  bool duplicates = false;
  float* grad_states = nullptr;  // [U, Q, P]
  float* grad_nodes = nullptr;   // [U, n, P]
  OrderlessSum grad_distance;    // [G, L + n - 1]
};
int launch_prediction_grads(const PredictionGradParams& params, Stream stream);

// R chains a unit, of T steps, back through time.
struct LstmGradParams {
  int batch = 0, groups = 0, rows = 0, steps = 0;
  const float* weight_hh = nullptr;    // [G, P, 4P]
  const bool* acts = nullptr;          // [U, R, T]: a chain ends at its first false
  const float* grad_states = nullptr;  // [U, R, T, P]
  float* gates = nullptr;              // [U, R, T, 4P] before their functions; becomes their gradients
  float* cells = nullptr;              // scratch [U, R, T, P]
};
int launch_lstm_grads(const LstmGradParams& params, Stream stream);

// sums[u, index[u, n], :] += rows[u, n, :] for indices >= 0.
struct RowScatterParams {
  int64_t units = 0, rows = 0, targets = 0;
  const int64_t* index = nullptr;  // [U, rows]
  const float* values = nullptr;   // [U, rows, P]
  OrderlessSum sums;               // [U, targets, P]
};
int launch_row_scatter(const RowScatterParams& params, Stream stream);

}  // namespace edgewise::kernels::cuda
