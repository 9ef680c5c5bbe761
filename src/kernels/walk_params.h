// Parameters of the fused walks of SacEdges: raw pointers with their shapes. B items, G groups of heads that
// share their edges, L queries, S keys, P the predictor's width, T predictions a query.
#pragma once

#include <cstdint>

namespace edgewise::kernels {

enum class WalkChoice : int32_t { kSample, kGreedy };

// What every walk has: sizes, what may be chosen and how, and what was. Query i chooses among keys first[i]
// .. last[i] - 1 that key_mask allows, without those at most `gap` from excluded[i] and (unless duplicates)
// without those it has chosen.
struct WalkParams {
  int64_t batch = 0, groups = 0, queries = 0, keys = 0;
  int64_t width = 0;                  // P
  int64_t steps = 0;                  // T
  const int64_t* first = nullptr;     // [L]
  const int64_t* last = nullptr;      // [L]
  const int64_t* excluded = nullptr;  // [L], -1 = none
  int64_t gap = 0;
  const uint8_t* key_mask = nullptr;  // [B, S], 0 = not; null = all
  const int64_t* limits = nullptr;    // rooted: [B, L] edges of a query, at most T; pairs: [B] of an item
  bool duplicates = false;
  WalkChoice choice = WalkChoice::kSample;
  const int64_t* stream_keys = nullptr;  // [B * G], the bits of the uint64 keys; kSample
  // Out: [B, G, L, T]; pairs: [B, G, T].
  int64_t* destination = nullptr;
  bool* taken = nullptr;   // an edge was made
  bool* chosen = nullptr;  // ... by choice: it has a log-probability

  bool excludes(int64_t i, int64_t j) const {
    return excluded[i] >= 0 && j >= excluded[i] - gap && j <= excluded[i] + gap;
  }
};

// A walk with the scorer `dot` whose kernel steps through the LSTM from the nodes themselves.
template <typename T>
struct NodeWalkParams : WalkParams {
  const T* query_nodes = nullptr;  // [B, G, L, P]
  const T* key_nodes = nullptr;    // [B, G, S, P]
  const T* weight_ih = nullptr;    // [G, P, 4P]: input, forget, cell, output gates
  const T* weight_hh = nullptr;    // [G, P, 4P]
  const T* bias = nullptr;         // [G, 4P]
  // [G, L + S - 1]: added to the score of j - i, at j - i + L - 1; null = nothing
  const T* distance = nullptr;
  // Out, as destination.
  T* log_prob = nullptr;
  T* entropy = nullptr;
};

// A rooted walk. A query with no more candidates than limits[i] takes them all, with log-probability 0.
template <typename T>
struct RootedWalkParams : NodeWalkParams<T> {
  T* normaliser = nullptr;  // [B, G, L, T] log-sum-exp of the scores, for the backward pass
  T* states = nullptr;  // [B, G, L, T, P] h of each prediction, untouched where none was; null = not asked
};

// The gradients of log_prob, entropy and states; scores are computed again, the softmax from the normalisers.
// Chunks of rows sum up apart, so that the result does not depend on the number of threads.
template <typename T>
struct RootedWalkGradParams {
  RootedWalkParams<T> walk;
  int64_t chunks = 1;                // C, chunks of the rows of a group
  const T* grad_log_prob = nullptr;  // [B, G, L, T]
  const T* grad_entropy = nullptr;   // [B, G, L, T]
  const T* grad_states = nullptr;    // [B, G, L, T, P]; null = none
  T* grad_query_nodes = nullptr;     // [B, G, L, P]
  T* grad_key_nodes = nullptr;       // [B, G, C, P, S'], S' = padded_keys(S): transposed
  T* grad_weight_ih = nullptr;       // [B, G, C, P, 4P]
  T* grad_weight_hh = nullptr;       // [B, G, C, P, 4P]
  T* grad_bias = nullptr;            // [B, G, C, 4P]
  T* grad_distance = nullptr;        // [B, G, C, L + S - 1], null when distance is
};

// A walk of pairs: source, destination, source, ... in one chain per item and group; log_prob and entropy are
// of both predictions together. Sources are queries with a candidate left; destinations as above. An item
// with no more candidates than its limit takes them all.
template <typename T>
struct PairsWalkParams : NodeWalkParams<T> {
  const T* start = nullptr;             // [G, P], the first input
  const uint8_t* query_mask = nullptr;  // [B, L], 0 = not; null = all
  int64_t* source = nullptr;            // [B, G, T]
  T* normaliser = nullptr;              // [B, G, T, 2]
  T* entropies = nullptr;               // [B, G, T, 2]
};
template <typename T>
struct PairsWalkGradParams {
  PairsWalkParams<T> walk;
  const T* grad_log_prob = nullptr;  // [B, G, T]
  const T* grad_entropy = nullptr;   // [B, G, T]
  T* grad_query_nodes = nullptr;     // [B, G, P, L'], transposed
  T* grad_key_nodes = nullptr;       // [B, G, P, S'], transposed
  T* grad_weight_ih = nullptr;       // [B, G, P, 4P]
  T* grad_weight_hh = nullptr;       // [B, G, P, 4P]
  T* grad_bias = nullptr;            // [B, G, 4P]
  T* grad_start = nullptr;           // [B, G, P]
  T* grad_distance = nullptr;        // [B, G, L + S - 1]
};

inline constexpr int64_t kWalkPadding = 64;
inline int64_t padded_keys(int64_t keys) {
  return (keys + kWalkPadding - 1) / kWalkPadding * kWalkPadding;
}

}  // namespace edgewise::kernels
