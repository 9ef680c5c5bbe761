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
inline constexpr int kWalkTile = 64;          // destinations among all keys are looked at in tiles of so many
inline constexpr int kMostWalkBlock = 128;    // keys a block
inline constexpr int kMostWalkSteps = 256;    // predictions a query
inline constexpr int kMostPartialBlocks = 3;  // of a row: the ends of its range, the key it excludes

// Which keys query i may choose: those of [lo, hi) that the mask allows, without its own.
struct WalkSpan {
  int offset = 0;   // query i stands at key offset + i
  int window = -1;  // keys at most so far away; -1 = all
  bool causal = false, no_self = false;
  // Whether rows have blocks that they may choose from in part.
  constexpr bool cuts_blocks() const { return causal || no_self || window >= 0; }
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
  int block = 0, blocks = 0;           // M, N = ceil(S / M); among all keys: tiles of kWalkTile
  const float* query_nodes = nullptr;  // [U, L, P]
  const float* key_nodes = nullptr;    // [U, S, P]
  const float* means = nullptr;        // [U, N, P], in blocks
  LstmTensors lstm;
  const float* distance = nullptr;  // [G, L + S - 1], at j - i + L - 1; null = nothing is added
  const float* block_distance =
      nullptr;  // [G, D], of block b for query i: at block_farthest - (offset + i) / M + b
  int block_distances = 0, block_farthest = 0;
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
  float* levels = nullptr;  // [U, L, T, 4]: normaliser and entropy of the block, then of the key (blocks); of
                            // the key, 0, 0 (all)
  float* states = nullptr;  // [U, L, T, P] h of each prediction
};
// Among all keys; and a block first, then a key inside it. A cudaError_t.
int launch_rooted_walk(const RootedParams& params, Stream stream);
int launch_block_walk(const RootedParams& params, Stream stream);
// Why the kernels do not take these sizes; null when they do.
const char* rooted_walk_refusal(int64_t keys, int64_t steps);
const char* block_walk_refusal(int64_t keys, int64_t block, int64_t steps);

// ---- the walk in blocks on tensor cores (pack_walk.cu, packed_walk.cu), for up to kPackedBlocks blocks of
// kPackedBlock keys. Its inputs lie in one workspace, in the order of the fragments, and are packed in one
// launch: `terms` bf16 numbers a value, 2 for nearly fp32, 1 where nodes and LSTM weights count as rounded to
// bf16.

inline constexpr int kPackedBlock = 64, kPackedBlocks = 64;

// What distances add: `values` [G, count], or a table [G, buckets] at the bucket of each distance [count].
struct DistanceSource {
  const float* values = nullptr;
  const float* table = nullptr;
  const int64_t* bucket = nullptr;
  int buckets = 0, count = 0;
};
// Nodes that are still to be made: tokens [B, S, E] times weight [G, E, P] plus bias [G, P]. E: a multiple
// of 4.
struct NodeSource {
  const float* tokens = nullptr;  // one of the two
  const uint16_t* bf16_tokens = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  int embed = 0;
};
struct PackedWalkParams {
  RootedParams
      walk;  // key_nodes null: of `source`, and query i begins at key i. means: out, null = nobody asks
  int terms = 2;
  NodeSource source;
  DistanceSource distance, block_distance;
  void* workspace = nullptr;  // packed_walk_bytes(), on 16 bytes
};
int64_t packed_walk_bytes(const PackedWalkParams& params);
int launch_packed_walk(const PackedWalkParams& params, Stream stream);

// Means over the keys of a block that the mask allows: [U, N, P].
struct BlockMeanParams {
  int batch = 0, groups = 0, keys = 0, block = 0, blocks = 0;
  const float* key_nodes = nullptr;      // [U, S, P]
  const int32_t* open_before = nullptr;  // [B, S + 1]
  float* means = nullptr;
};
int launch_block_means(const BlockMeanParams& params, Stream stream);

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
  int predictions = 0;                 // Q
  int nodes = 0;                       // n
  int run = 1;                         // prediction q belongs to query q / run
  const float* states = nullptr;       // [U, Q, P]
  const float* node_values = nullptr;  // [U, n, P]
  const float* distance = nullptr;     // [G, L + n - 1]; null = nothing was added
  const int64_t* chosen = nullptr;     // [U, Q]
  const bool* acts = nullptr;          // [U, Q]
  const float* levels = nullptr;       // [U, Q, level_stride]: normaliser, entropy
  int level_stride = 2;
  const float* grad_log_prob = nullptr;  // [U, Q]
  const float* grad_entropy = nullptr;   // [U, Q]
  WalkSpan span;
  bool duplicates = false;
  float* grad_states = nullptr;  // [U, Q, P]
  float* grad_nodes = nullptr;   // [U, n, P]
  OrderlessSum grad_distance;    // [G, L + n - 1]
};
int launch_prediction_grads(const PredictionGradParams& params, Stream stream);

// Predictions in blocks.
struct BlockGradParams {
  RootedParams walk;                     // inputs, destination, chosen, levels, states
  const float* grad_log_prob = nullptr;  // [U, L, T]
  const float* grad_entropy = nullptr;   // [U, L, T]
  float* partial_means = nullptr;        // scratch [U, L, 3, P]; null where no row has any
  float* grad_states = nullptr;          // [U, L, T, P]
  float* block_grads = nullptr;          // [U, L, T, N] of the scores of blocks with shared means
  float* key_grads = nullptr;            // [U, L, T, M'] of the scores of keys, M' = M rounded up to 32
  float* partial_grads = nullptr;        // [U, L, 3, P]
  OrderlessSum grad_distance;            // [G, L + S - 1]
  OrderlessSum grad_block_distance;      // [G, D]
};
int launch_block_grads(const BlockGradParams& params, Stream stream);

// grad_nodes += what the keys of chosen blocks and of partial means get. Predictions sorted by their block.
struct BlockNodeGradParams {
  RootedParams walk;
  const int64_t* sorted = nullptr;       // [U, L * T] predictions by block
  const int64_t* offsets = nullptr;      // [U, N + 1]
  const float* key_grads = nullptr;      // as above
  const float* partial_grads = nullptr;  // null where no row has any
  float* grad_nodes = nullptr;           // [U, S, P]
};
int launch_block_node_grads(const BlockNodeGradParams& params, Stream stream);

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
