// Bit tiles of CUDA tensors. Without CUDA in the build these throw and say how to get it.
#pragma once

#include "graph/edge_windows.h"
#include "graph/tiles/tiles.h"

namespace edgewise::graph {

void cuda_tiles_from_csr(const EdgeShape& shape, const at::Tensor& row_offsets, const at::Tensor& col_indices,
                         at::Tensor& tiles);
at::Tensor cuda_tile_degrees(const EdgeShape& shape, const at::Tensor& tiles);  // [B*H*L] int32
std::pair<at::Tensor, at::Tensor> cuda_csr_from_tiles(const EdgeShape& shape, const at::Tensor& tiles);
// Those of the heads `without` are not written.
at::Tensor cuda_transposed_tiles(const EdgeShape& shape, const at::Tensor& tiles, const SparseHeads& without);
at::Tensor cuda_used_tiles(const EdgeShape& shape, const at::Tensor& tiles);
bool cuda_is_recording(at::Device device);  // a CUDA graph: nothing runs now
// Zeros where there is no square, but for the heads `without`.
void cuda_clear_outside(const EdgeShape& shape, const EdgeUnits& units, const SparseHeads& without,
                        at::Tensor& tiles);

}  // namespace edgewise::graph
