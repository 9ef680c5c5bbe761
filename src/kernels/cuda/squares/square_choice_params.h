// Parameters of the CUDA kernels by which a block model chooses squares and learns from them. Its nodes are
// groups of 16 tokens: Q^ [B, H, groups(L), C] and T [B, H, groups(S), C] (docs/math.md, "Squares"). T: Bf16
// or float. Torch-free and CUDA-free.
//
// Nothing is counted on the host: every row of groups has room for all key groups, and how much of it is used
// stands beside it.
#pragma once

#include "kernels/cuda/squares/square_params.h"

namespace edgewise::kernels::cuda {

inline constexpr int64_t kMostChoiceClusters = 256;
// Rows are read 16 bytes at a time.
bool square_choice_takes(int64_t clusters, int64_t bytes_of_number);

// Squares of a law with p_IJ = Q^_I . T_J + exploration, and absent squares as probes.
template <typename T>
struct SquareSampleParams {
  int64_t batch = 0, heads = 0;
  int64_t query_groups = 0, key_groups = 0, clusters = 0;
  HeadTensor<const T> query_membership, key_side;  // rows aligned to 16 bytes
  const uint8_t* query_mask = nullptr;             // [B, query_groups], 0 = gets no square; null: all do
  const uint8_t* key_mask = nullptr;               // [B, key_groups]
  bool is_causal = false;   // query group I may have key groups J <= I + first_row only
  int64_t first_row = 0;    // query group I draws the numbers of row I + first_row
  bool is_poisson = false;  // P = 1 - exp(-min(p, 1)) instead of min(p, 1)
  float exploration = 0;
  const uint64_t* edge_keys = nullptr;                    // [B*H]
  const uint64_t* probe_keys = nullptr;                   // [B*H]; null: no probes
  const double* probe_rates = nullptr;                    // [B]
  int32_t *count = nullptr, *cols = nullptr;              // [rows], [rows, key_groups]
  int32_t *probe_count = nullptr, *probe_cols = nullptr;  // the same of probes
};
int launch_sample_squares(const SquareSampleParams<Bf16>& params, Stream stream);
int launch_sample_squares(const SquareSampleParams<float>& params, Stream stream);

// Pairs of the squares of each row that take part.
struct SquareCountParams {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0;
  SquareList squares;
  const int32_t* key_bits = nullptr;    // as in SquareParams
  const uint8_t* query_mask = nullptr;  // [B, L], 0 = takes no part; null: all do
  bool is_causal = false;
  int64_t query_offset = 0;
  int32_t* pairs = nullptr;  // [B*H*groups(L)]
};
int launch_count_square_pairs(const SquareCountParams& params, Stream stream);

// A list of squares with a number for each: the row's other groups, and where the numbers stand.
struct WeightedSquares {
  SquareList squares;               // without groups: there are none
  const int32_t* places = nullptr;  // of the squares in `values`; null: where the groups stand
  const float* values = nullptr;    // G
  const double* rates = nullptr;    // [B] numbers are divided by them; null: by 1
};
// out_I = sum_J G_IJ other_J over both lists, of two sides in one launch: dQ^ = G T by query groups and
// dT = G^T Q^ by key groups.
template <typename T>
struct SquareSumSide {
  int64_t groups = 0;  // rows of a head
  WeightedSquares present, probes;
  HeadTensor<const T> other;  // T, or Q^
  T* out = nullptr;           // [B*H*groups, C]
};
template <typename T>
struct SquareSumParams {
  int64_t batch = 0, heads = 0, clusters = 0;
  SquareSumSide<T> sides[2];
  float clip = 0;  // |G| of present squares is cut at this; 0 = no cut
};
int launch_sum_squares(const SquareSumParams<Bf16>& params, Stream stream);
int launch_sum_squares(const SquareSumParams<float>& params, Stream stream);

// Means over the tokens of each group: [B, H, N, D] -> [B*H*groups(N), D], and the way back, where the mean's
// gradient is shared among its tokens and added to what else the rows get. Both sides in one launch.
template <typename T>
struct SquareMeanParams {
  int64_t batch = 0, heads = 0, dim = 0;
  int64_t tokens[2] = {};        // queries, keys
  const uint8_t* masks[2] = {};  // [B, N], 0 = does not count; null: all do
  HeadTensor<const T> rows[2];   // backward: their other gradients, or null
  T* means[2] = {};              // forward: out
  const T* mean_grads[2] = {};   // backward
  T* row_grads[2] = {};          // backward: out, [B*H*N, D]
};
int launch_square_means(const SquareMeanParams<Bf16>& params, Stream stream);
int launch_square_means(const SquareMeanParams<float>& params, Stream stream);
int launch_square_mean_grads(const SquareMeanParams<Bf16>& params, Stream stream);
int launch_square_mean_grads(const SquareMeanParams<float>& params, Stream stream);

}  // namespace edgewise::kernels::cuda
