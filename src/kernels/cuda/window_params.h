// Parameters of the CUDA kernels over windows: for 16 neighbouring queries, the keys that any of them has an
// edge with, and which of them do. Where edges are rare these are far fewer than all keys. Nothing here needs
// to be known on the host: a head goes by windows when it has few enough edges, as the device finds; the
// others are left to the tiles. Torch-free and CUDA-free.
#pragma once

#include <cstdint>

#include "kernels/cuda/tile_params.h"

namespace edgewise::kernels::cuda {

inline constexpr int kWindow = 16;

// The lists of all windows. Keys are cut into blocks of `block_keys`. The list of a window has the keys of
// block 0, then those of block 1, ...: entry n is (place << 16 | bits), key 8 place + n % 8 of its block, and
// bit r for an edge of query r of the window. So any eight neighbours lie in different banks of shared
// memory. Each block's part is filled up to a multiple of 16 with entries without bits.
struct WindowLists {
  uint32_t* entries = nullptr;  // [B*H, windows, blocks, block_keys], in use up to `ends`
  uint16_t* ends = nullptr;     // [B*H, windows, blocks]: entries / 16 up to the end of a block
  int block_keys = 0;           // a multiple of 64

  static constexpr int64_t windows(int64_t queries) { return (queries + kWindow - 1) / kWindow; }
  constexpr int64_t blocks(int64_t keys) const { return (keys + block_keys - 1) / block_keys; }
};
inline constexpr int64_t kMostWindowKeys = 524288;  // `ends` counts to 65,535

struct BuildWindowsParams {
  TileShape shape;
  const uint32_t* tiles = nullptr;
  const uint64_t* edge_counts = nullptr;  // [B*H]
  double most_edges = 0;                  // of a head that goes by windows
  uint8_t* by_windows = nullptr;          // out [B*H]: whether it does
  WindowLists lists;                      // out
};
int launch_build_windows(const BuildWindowsParams& params, Stream stream);

struct WindowForwardParams {
  TileShape shape;
  int64_t head_dim = 0;  // 32 or 64
  float scale = 1;
  HeadTensor<const Bf16> query, key, value;
  const uint8_t* by_windows = nullptr;  // [B*H] heads to compute
  WindowLists lists;
  const uint32_t* tiles = nullptr;  // the same edges
  HeadTensor<Bf16> output;
  float* lse = nullptr;  // [B*H*L]
};
bool windows_take(int64_t head_dim);
int window_block_keys(int64_t head_dim);  // what the kernel wants of the lists
int launch_window_forward(const WindowForwardParams& params, Stream stream);

}  // namespace edgewise::kernels::cuda
