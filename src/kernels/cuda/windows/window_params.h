// Parameters of the CUDA kernels over windows: for 16 neighbouring queries (or keys), the keys (queries) that
// any of them has an edge with, and which of them do. Where edges are rare these are far fewer than all.
// Nothing here needs to be known on the host: a head goes by windows when it has few enough edges, as the
// device finds; the others are left to the tiles. Torch-free and CUDA-free.
#pragma once

#include <cstdint>

#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {

inline constexpr int kWindow = 16;        // "outer" tokens of a window
inline constexpr int kWindowBlock = 256;  // "inner" tokens of a part of its list

// The lists of all windows. Inner tokens are cut into blocks. An entry is (token of the block << 16 | bits);
// bits say which outer tokens of the window have an edge with it: by queries bit r is query r of the window,
// by keys bit window_bit_of_key(r) is key r. Each part is filled up to a multiple of 16 with entries without
// bits. Eight neighbours at places 8 n .. 8 n + 7 mostly differ in token % 8, so that rows of an odd number
// of 16-byte pieces are gathered from shared memory with few conflicts.
struct WindowLists {
  uint32_t* entries = nullptr;  // [B*H, windows, blocks, 256]
  uint8_t* turns = nullptr;     // [B*H, windows, blocks]: entries / 16

  static constexpr int64_t windows(int64_t outer) { return (outer + kWindow - 1) / kWindow; }
  static constexpr int64_t blocks(int64_t inner) { return (inner + kWindowBlock - 1) / kWindowBlock; }
};
constexpr int window_bit_of_key(int key) {  // what comes out of a bit tile with the fewest instructions
  return 8 * (key % 2) + 2 * (key % 8 / 2) + 1 - key / 8;
}

struct BuildWindowsParams {
  TileShape shape;
  const uint32_t* tiles = nullptr;
  FewEdges sparse;  // heads to list
  bool by_keys = false;
  WindowLists lists;  // out
};
int launch_build_windows(const BuildWindowsParams& params, Stream stream);

// Dropout on the weights of the listed pairs: the same pairs as TileDropoutParams has.
struct DropWindowsParams {
  TileShape shape;
  FewEdges sparse;  // heads of the lists
  bool by_keys = false;
  WindowLists lists;
  const uint64_t* stream_keys = nullptr;  // [B*H]
  double p = 0;
  uint16_t* dropped = nullptr;  // out, as the lists' entries: which bits of each are dropped
};
int launch_drop_windows(const DropWindowsParams& params, Stream stream);

struct WindowForwardParams {
  TileShape shape;
  int64_t head_dim = 0;  // 32 or 64
  float scale = 1;
  HeadTensor<const Bf16> query, key, value;
  FewEdges sparse;  // heads to compute
  WindowLists lists;
  const uint32_t* tiles = nullptr;        // the same edges
  const uint16_t* dropped = nullptr;      // of the lists' entries (DropWindowsParams); null = no dropout
  const uint64_t* stream_keys = nullptr;  // with dropout, as there
  double dropout_p = 0;
  float keep_scale = 1;  // 1 / (1 - p) with dropout
  HeadTensor<Bf16> output;
  float* lse = nullptr;  // [B*H*L]
};
constexpr bool window_forward_takes(int64_t head_dim) {
  return head_dim == 32 || head_dim == 64;
}
int launch_window_forward(const WindowForwardParams& params, Stream stream);

// The backward pass. Probes come in units (probe_units.h): squares of 16 x 16 pairs, whose flags are here by
// queries and by keys, [B*H, 4 ceil(L/64), 4 ceil(S/256)] and the reverse, a bit a square; which of a
// square's pairs are probes says the bit plane of `credit`.
struct WindowBackwardParams {
  TileShape shape;
  int64_t head_dim = 0;
  float scale = 1;
  HeadTensor<const Bf16> query, key, value, output, grad_output;
  const float* lse = nullptr;                                                // [B*H*L]
  FewEdges sparse;                                                           // heads to compute
  WindowLists by_queries, by_keys;                                           // of the same edges
  const uint16_t *dropped_by_queries = nullptr, *dropped_by_keys = nullptr;  // as forward; null = no dropout
  float keep_scale = 1;
  uint8_t *query_rows = nullptr,  // scratch: [B*H, 256 blocks(L), window_row_bytes]
      *key_rows = nullptr;        // and by blocks(S)
  HeadTensor<Bf16> query_grad, key_grad, value_grad;
  TileCreditParams<Bf16> credit;  // without transposed, fixed and discarded planes
  const uint8_t *units_by_queries = nullptr, *units_by_keys = nullptr;  // with credit.probes
};
constexpr bool window_backward_takes(int64_t head_dim, int64_t clusters) {
  return window_forward_takes(head_dim) &&
         (clusters == 0 || clusters == 32 || (clusters == 128 && head_dim == 32));
}
int64_t window_row_bytes(int64_t head_dim, int64_t clusters);
int launch_window_backward(const WindowBackwardParams& params, Stream stream);

}  // namespace edgewise::kernels::cuda
