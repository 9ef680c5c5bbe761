// Parameters of the CUDA kernels over bit tiles. Torch-free and CUDA-free, so that any layer above can fill
// them in. B batch, H heads, L queries, S keys, D head dim, C clusters; a row is (b*H + h)*L + i.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {

using Stream = void*;  // cudaStream_t

// A [B, H, N, width] tensor whose last dimension is contiguous.
template <typename T>
struct HeadTensor {
  T* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

  constexpr T* head(int64_t b, int64_t h) const { return data + b * batch_stride + h * head_stride; }
};

// Bit tiles of B*H heads: [B*H, ceil(L/64), ceil(S/64), 128] words; layout in bit_tiles.cuh.
struct TileShape {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0;

  constexpr int64_t row_tiles() const { return (queries + 63) / 64; }
  constexpr int64_t column_tiles() const { return (keys + 63) / 64; }
  constexpr int64_t words() const { return batch * heads * row_tiles() * column_tiles() * 128; }
};

// The heads with at most so many edges, as the device counted them; without counts none.
struct FewEdges {
  const uint64_t* edge_counts = nullptr;  // [B*H]
  double most_edges = 0;

  constexpr bool has(int64_t head) const {
    return edge_counts && static_cast<double>(edge_counts[head]) <= most_edges;
  }
};

// Which tiles hold an edge, so that the others are passed over. Null = all are visited: right for edges
// without structure, where looking costs a few per cent and finds nothing.
inline constexpr int64_t kMostListedTiles = 1024;  // of one side of a head
struct UsedTiles {
  const uint8_t* flags = nullptr;  // [B*H, ceil(L/64), ceil(S/64)], or the same by keys
  int64_t head_stride = 0, outer_stride = 0, inner_stride = 0;

  constexpr UsedTiles by_keys() const { return {flags, head_stride, inner_stride, outer_stride}; }
};

// T: Bf16, or float for the kernels whose operands are tf32 (Tf32).
template <typename T>
struct TileForwardParams {
  TileShape shape;
  int64_t head_dim = 0;  // D of query, key and value: 16, 32, 64 or 128
  float scale = 1;
  HeadTensor<const T> query, key, value;  // [B, H, L or S, D], rows aligned to 16 bytes
  const uint32_t* tiles = nullptr;        // edges
  const uint32_t* dropped =
      nullptr;           // edges whose weight dropout removes (TileDropoutParams); null = no dropout
  float keep_scale = 1;  // 1 / (1 - p) with dropout
  UsedTiles used;        // without dropout
  FewEdges left_out;     // heads that others compute (window_params.h)
  HeadTensor<T> output;  // [B, H, L, D]
  float* lse = nullptr;  // [B*H*L] log-sum-exp of a row's logits, -inf for a row with no edge
};
constexpr bool tile_forward_takes(int64_t head_dim) {
  return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128;
}
inline constexpr int64_t kMostTileHeads = 65535;                                // B*H of a launch
int launch_tile_forward(const TileForwardParams<Bf16>& params, Stream stream);  // a cudaError_t

// How a product of fp32 numbers is formed on tensor cores: each operand rounded to tf32, or each the sum of
// two tf32 numbers, of whose four products three count.
enum class Tf32 { kOnce, kThrice };
int launch_float_tile_forward(const TileForwardParams<float>& params, Tf32 products, Stream stream);

// Per-edge credit G = dL/dp of the learner, from the gradient d = a (u - ubar) that attention sends to a
// logit:
//   present edge  clip(rule(d) + density_grad[h]),  rule: d, or d s (kPaper)
//   probe edge    d / (1 + a) / probe_rate[b]       (what adding it would have done)
template <typename T>
struct TileCreditParams {
  int64_t clusters = 0;                         // C; 0 = no learner
  HeadTensor<const T> query_membership;         // [B, H, L, C]
  HeadTensor<const T> key_side;                 // [B, H, S, C]
  bool paper = false;                           // rule d s instead of d
  float clip = 0;                               // 0 = none
  const float* density_grad = nullptr;          // [H], added to every present edge; null = 0
  const uint32_t* probes = nullptr;             // second bit plane, disjoint from the edges; null = none
  const uint32_t* probes_transposed = nullptr;  // the same by keys
  const float* probe_rates = nullptr;           // [B]
  // Planes that few learners have: edges without credit because the learner did not decide them, and pairs
  // that it drew but attention did not visit, whose credit is clip(density_grad[h]). Null = none.
  const uint32_t *fixed = nullptr, *fixed_transposed = nullptr;
  const uint32_t *discarded = nullptr, *discarded_transposed = nullptr;
  HeadTensor<float> query_membership_grad;  // [B, H, L, C]
  HeadTensor<float> key_side_grad;          // [B, H, S, C]
};

template <typename T>
struct TileBackwardParams {
  TileShape shape;
  int64_t head_dim = 0;
  float scale = 1;
  HeadTensor<const T> query, key, value;       // as in the forward pass
  HeadTensor<const T> output, grad_output;     // [B, H, L, D]
  const float* lse = nullptr;                  // [B*H*L]
  const uint32_t* tiles = nullptr;             // edges
  const uint32_t* tiles_transposed = nullptr;  // the same edges by keys: [B*H, ceil(S/64), ceil(L/64), 128]
  const uint32_t* dropped = nullptr;           // as in the forward pass
  const uint32_t* dropped_transposed = nullptr;
  float keep_scale = 1;
  UsedTiles used;               // without dropout and probes
  FewEdges left_out;            // heads that others compute (window_params.h)
  float* row_values = nullptr;  // scratch [2, B*H*L]: lse log2(e), and ubar = grad_output . output
  HeadTensor<T> query_grad, key_grad, value_grad;
  TileCreditParams<T> credit;
};
constexpr bool tile_backward_takes(int64_t head_dim, int64_t clusters) {
  return tile_forward_takes(head_dim) && (clusters == 0 || clusters == 32 || clusters == 128);
}
int launch_tile_backward(const TileBackwardParams<Bf16>& params, Stream stream);
int launch_float_tile_backward(const TileBackwardParams<float>& params, Tf32 products, Stream stream);

// What probes that come in units (probe_units.h) add to the gradients of the memberships, after
// launch_tile_backward with the same tensors, row_values among them, and without probes.
struct UnitCreditParams {
  TileShape shape;
  int64_t head_dim = 0;
  float scale = 1;
  HeadTensor<const Bf16> query, key, value, grad_output;
  const float* row_values = nullptr;                        // as launch_tile_backward left them
  FewEdges left_out;                                        // as there
  const uint8_t *by_queries = nullptr, *by_keys = nullptr;  // flags (UnitProbeParams)
  TileCreditParams<Bf16> credit;                            // clusters, memberships, probes, rates, gradients
};
constexpr bool unit_credit_takes(int64_t clusters) {
  return clusters == 32;
}
int launch_unit_credit(const UnitCreditParams& params, Stream stream);

// Dropout on the attention weights: the edges to drop, as a bit plane. Pair (row, column) is dropped when its
// number, word column % 4 of the Philox block (row, column / 4), is below p 2^32.
struct TileDropoutParams {
  TileShape shape;
  const uint32_t* tiles = nullptr;
  const uint64_t* stream_keys = nullptr;  // [B*H]
  double p = 0;
  FewEdges left_out;            // heads whose words are not written
  uint32_t* dropped = nullptr;  // out
};
int launch_tile_dropout(const TileDropoutParams& params, Stream stream);

// ---- sampling ----

// Rows whose edges are rare are drawn by thinning (thin_sample.cu) first, at a cost that follows their
// number; blocks of 128 rows decide on the device. All null = every row by products.
inline constexpr int kThinRows = 128;
struct ThinParams {
  float limit = 0;                    // a block thins when the mean of its rows' bounds is at most this
  float* key_tops = nullptr;          // scratch [B*H, C], must be 0 before
  uint8_t* blocks = nullptr;          // out [B*H, ceil(L/128)]: whether a block thinned
  uint32_t* direct_blocks = nullptr;  // out [B*H], must be 0 before: blocks that did not
};

// Edges by the law from p_ij = query_membership_i . key_side_j + exploration, every pair visited on tensor
// cores: bit for bit what the direct sampler on CPU draws.
struct TileSampleParams {
  TileShape shape;
  int64_t clusters = 0;  // C: 16, 32, 64, 128 or 256
  // [B, H, L or S, C], rows aligned to 16 bytes; either these or those are set.
  HeadTensor<const Bf16> query_membership, key_side;
  HeadTensor<const float> exact_query_membership, exact_key_side;
  bool poisson = false;
  float exploration = 0;
  const uint8_t* query_mask = nullptr;  // [B, L], null = all valid
  const uint8_t* key_mask = nullptr;    // [B, S]
  bool is_causal = false;
  const uint64_t* edge_keys = nullptr;  // [B*H] stream keys
  uint32_t* tiles = nullptr;            // out
  uint64_t* edge_counts = nullptr;      // [B*H] out, must be 0 before
  uint32_t* column_words = nullptr;     // scratch [B, ceil(S/64), 4]
  // Scratch [B*H, ceil(L/64) or ceil(S/64), 64, C or, if fp32, 2 C]: memberships in the order of the kernel;
  // those of the queries only if fp32.
  Bf16 *query_tiles = nullptr, *key_tiles = nullptr;
  uint64_t* open_pairs = nullptr;  // scratch [open_capacity]: pairs that the products leave undecided
  int64_t open_capacity = 0;
  unsigned long long* open_count = nullptr;  // scratch [1], must be 0 before
  ThinParams thin;
};
bool tile_sample_takes(int64_t clusters);
int launch_tile_sample(const TileSampleParams& params, Stream stream);  // with thinning where `thin` is set
bool thin_sample_takes(int64_t clusters);
int launch_thin_sample(const TileSampleParams& params, Stream stream);  // the thinning alone

// Probes: absent pairs, each with a probability that its item has.
struct TileProbeParams {
  TileShape shape;
  const uint32_t* tiles = nullptr;        // the edges
  const uint64_t* stream_keys = nullptr;  // [B*H]
  const CoinLaw* laws = nullptr;          // [B] of each item's rate
  const uint8_t* query_mask = nullptr;    // [B, L], null = all valid
  const uint8_t* key_mask = nullptr;      // [B, S]
  bool is_causal = false;
  uint32_t* column_words = nullptr;  // scratch [B, ceil(S/64), 4]
  uint32_t* probes = nullptr;        // out
};
int launch_tile_probes(const TileProbeParams& params, Stream stream);

// The same in units (probe_units.h), with flags of the chosen ones (graph/edge_windows.h).
struct UnitProbeParams {
  TileShape shape;
  const uint32_t* tiles = nullptr;
  const uint64_t* stream_keys = nullptr;  // [B*H]
  const double* rates = nullptr;          // [B]
  const uint8_t* query_mask = nullptr;
  const uint8_t* key_mask = nullptr;
  bool is_causal = false;
  uint32_t* column_words = nullptr;  // scratch [B, ceil(S/64), 4]
  // Out; only the rows of squares (16 x 64 pairs, 32 words) with a chosen one are written.
  uint32_t* probes = nullptr;
  // Out, must be 0 before: a byte a tile, 4 ceil(S/256) (4 ceil(L/256)) bytes a row.
  uint8_t *by_queries = nullptr, *by_keys = nullptr;
};
int launch_unit_probes(const UnitProbeParams& params, Stream stream);
// Writes zeros to what that leaves unwritten, but for the heads `without`.
int launch_clear_unchosen(const TileShape& shape, const uint8_t* by_queries, uint32_t* probes,
                          const FewEdges& without, Stream stream);

// ---- conversions ----

// [B*H, ceil(L/64), ceil(S/64)] tiles -> the tiles of the transposed graphs, [B*H, ceil(S/64), ceil(L/64)].
// Those of the heads `without` are not written.
int launch_transpose_tiles(const TileShape& shape, const uint32_t* tiles, uint32_t* transposed,
                           const FewEdges& without, Stream stream);
// Whether a tile holds an edge: [B*H, ceil(L/64), ceil(S/64)].
int launch_mark_used_tiles(const TileShape& shape, const uint32_t* tiles, uint8_t* flags, Stream stream);
// CSR -> tiles, which must be 0 before. Columns outside [0, S) are left out and counted in *bad (may be
// null).
int launch_csr_to_tiles(const TileShape& shape, const int64_t* row_offsets, const int32_t* col_indices,
                        uint32_t* tiles, int32_t* bad, Stream stream);
// Edges of every row [B*H*L], from tiles.
int launch_tile_degrees(const TileShape& shape, const uint32_t* tiles, int32_t* degrees, Stream stream);
// Columns of every row, ascending, from tiles; row_offsets [B*H*L + 1] are the sums of the degrees.
int launch_tiles_to_columns(const TileShape& shape, const uint32_t* tiles, const int64_t* row_offsets,
                            int32_t* columns, Stream stream);

}  // namespace edgewise::kernels::cuda
