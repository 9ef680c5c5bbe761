// Parameters of the CUDA kernels that make lists of edges (CSR), for sequences that are too long for a bit a
// pair. A sampler runs twice: the first time it counts the edges of every row, the second time, with the sums
// of these counts as row offsets, it writes the columns, ascending. Torch-free and CUDA-free.
#pragma once

#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {

// Where a list goes; rows are (b*H + h)*L + i.
struct ListOutput {
  int32_t* degrees = nullptr;            // [B*H*L] out, if `columns` is null
  const int64_t* row_offsets = nullptr;  // [B*H*L + 1]
  int32_t* columns = nullptr;            // out
};

// SBM edges, the same as of launch_tile_sample with thinning.
inline constexpr int64_t kMostListKeys = (1 << 24) - 1;  // places on the keys have 31 bits, 7 below the point
struct ListSampleParams {
  // Shape, clusters (32, 64, 128 or 256), memberships, law, masks, stream keys, thin.limit and thin.key_tops.
  TileSampleParams draw;
  ListOutput edges;
};
int launch_list_sample(const ListSampleParams& params, Stream stream);  // a cudaError_t

// Probes in units (probe_units.h) among the pairs that are not edges.
struct ListProbeParams {
  TileShape shape;
  const int64_t* row_offsets = nullptr;  // the edges, columns of a row ascending
  const int32_t* columns = nullptr;
  const uint64_t* stream_keys = nullptr;  // [B*H]
  const double* rates = nullptr;          // [B]
  const uint8_t* query_mask = nullptr;    // [B, L], null = all valid
  const uint8_t* key_mask = nullptr;      // [B, S]
  bool is_causal = false;
  ListOutput probes;
};
int launch_list_probes(const ListProbeParams& params, Stream stream);

// The same edges by keys; keys are (b*H + h)*S + j. Columns outside [0, S) are left out.
inline constexpr int kWarpRows = 512;  // as many rows of a key a warp sorts
struct ListTransposeParams {
  TileShape shape;
  const int64_t* row_offsets = nullptr;  // [B*H*L + 1]
  const int32_t* columns = nullptr;      // [E]
  int32_t* counts = nullptr;             // [B*H*S], must be 0 before launch_count_keys
  const int64_t* key_offsets = nullptr;  // [B*H*S + 1], the sums of the counts
  int32_t* rows = nullptr;               // [E] out: the query within its head, ascending for every key
  int32_t* spare = nullptr;              // scratch [E]
  int64_t* long_keys = nullptr;          // scratch [E / kWarpRows + 1]
  int32_t* long_count = nullptr;         // scratch [1], must be 0 before launch_list_transpose
};
int launch_count_keys(const ListTransposeParams& params, Stream stream);      // fills `counts`
int launch_list_transpose(const ListTransposeParams& params, Stream stream);  // and leaves 0 in them

}  // namespace edgewise::kernels::cuda
