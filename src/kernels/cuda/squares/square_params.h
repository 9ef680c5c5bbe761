// Parameters of the CUDA kernels over squares of 16 x 16 pairs (src/graph/squares/squares.h). Equations:
// src/ops/squares/square_attention.h. Torch-free and CUDA-free. T: Bf16, or float with tf32 products.
//
// Nothing of the lists is known on the host: a launch depends on shapes alone and can be recorded.
#pragma once

#include <cstdint>

#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/params.h"
#include "kernels/quick_division.h"

namespace edgewise::kernels::cuda {

inline constexpr int64_t kSquareSide = 16;
constexpr int64_t square_groups(int64_t tokens) {
  return (tokens + kSquareSide - 1) / kSquareSide;
}
// Of a launch: as many as an H200 has multiprocessors.
inline constexpr int kMostSquareBlocks = 132;
inline constexpr int kForwardPasses = 1, kBackwardPasses = 2;
inline constexpr int64_t kMostSquareBytes =
    (int64_t{1} << 32) - 1;  // of a head, from its first row to its last

// Row r has count[r] squares, whose other groups stand in `groups` from begin[r] on, ascending.
struct SquareList {
  const int32_t* begin = nullptr;
  const int32_t* count = nullptr;
  const int32_t* groups = nullptr;
};

template <typename T>
struct SquareParams {
  int64_t batch = 0, heads = 0;   // B, H
  int64_t key_heads = 0;          // Hk: query head h reads key head h / (H / Hk)
  int64_t queries = 0, keys = 0;  // L, S
  int64_t head_dim = 0;           // D of query, key and value: 16, 32, 64 or 128
  float scale = 1;
  HeadTensor<const T> query, key, value;  // [B, H or Hk, L or S, D], rows aligned to 16 bytes
  SquareList squares;                     // rows (b*H + h) * groups(L) + I
  const int32_t* key_bits = nullptr;      // [B, groups(S)], bit j: key 16 J + j takes part; null: all do
  bool is_causal = false;                 // pairs with key <= query_offset + query only
  int64_t query_offset = 0;
  const uint64_t* stream_keys = nullptr;  // [B*H], null = no dropout
  double dropout_p = 0;
  float keep_scale = 1;  // 1 / (1 - p) with dropout
  // Rows of groups to where they stand: set_divisions().
  QuickDivision query_groups, key_groups, by_heads, by_key_heads, heads_of_key_head;
  int32_t* taken = nullptr;  // [passes, kMostSquareBlocks] zeros: rows that each block has handed out

  void set_divisions() {
    query_groups = QuickDivision(square_groups(queries)), key_groups = QuickDivision(square_groups(keys));
    by_heads = QuickDivision(heads), by_key_heads = QuickDivision(key_heads);
    heads_of_key_head = QuickDivision(key_heads > 0 ? heads / key_heads : 1);
  }
};
bool squares_take(int64_t head_dim);

template <typename T>
struct SquareForwardParams : SquareParams<T> {
  T* output = nullptr;   // [B*H*L, D]
  float* lse = nullptr;  // [B*H*L], -inf for a row without pairs
};
int launch_square_forward(const SquareForwardParams<Bf16>& params, Stream stream);  // a cudaError_t
int launch_square_forward(const SquareForwardParams<float>& params, Tf32 products, Stream stream);

// Backward: by queries (dq, what the pass by keys needs of each query, credit of squares and probes), then by
// keys (dk, dv).
template <typename T>
struct SquareBackwardParams : SquareParams<T> {
  HeadTensor<const T> grad_output;  // [B, H, L, D], rows aligned to 16 bytes
  const T* output = nullptr;        // [B*H*L, D]
  const float* lse = nullptr;       // [B*H*L]
  float* row_terms = nullptr;       // scratch [B*H, groups(L), 32]; see square_terms.cuh
  T* grad_query = nullptr;          // [B*H*L, D]
  T* grad_key = nullptr;            // [B*Hk*S, D]
  T* grad_value = nullptr;          // [B*Hk*S, D]
  SquareList squares_by_keys;       // rows (b*H + h) * groups(S) + J
  CreditRule rule = CreditRule::kNone;
  float* credit = nullptr;        // a number at the place of each square
  SquareList probes;              // without groups: none
  float* probe_credit = nullptr;  // the same of each probe
};
int launch_square_backward(const SquareBackwardParams<Bf16>& params, Stream stream);
int launch_square_backward(const SquareBackwardParams<float>& params, Tf32 products, Stream stream);

// The list by key groups. With room for all query groups in each, launch_transpose_squares writes everything.
// Without, launch_count_squares fills `count` first, and the running sums of the counts come in `begin`.
struct SquareTransposeParams {
  int64_t heads = 0;  // B*H
  int64_t query_groups = 0, key_groups = 0;
  bool has_room = false;  // `rows` and `places` have B*H*key_groups*query_groups places
  SquareList squares;
  int32_t* count = nullptr;   // [B*H*key_groups]
  int32_t* begin = nullptr;   // [B*H*key_groups] out: where the list of a key group begins; in, without room:
                              // where it ends
  int32_t* rows = nullptr;    // out: query groups, ascending for each key group
  int32_t* places = nullptr;  // out: where the square stands in squares.groups; null = not wanted
};
int launch_count_squares(const SquareTransposeParams& params, Stream stream);
int launch_transpose_squares(const SquareTransposeParams& params, Stream stream);

}  // namespace edgewise::kernels::cuda
