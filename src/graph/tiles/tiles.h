// Bit tiles of an EdgeSet (layout: kernels/bit_tiles.h) as tensors: int32 [B*H, ceil(L/64), ceil(S/64), 128],
// on any device.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <utility>

namespace edgewise::graph {

at::Tensor tiles_from_csr(const EdgeShape& shape, const at::Tensor& row_offsets,
                          const at::Tensor& col_indices);
std::pair<at::Tensor, at::Tensor> csr_from_tiles(const EdgeShape& shape,
                                                 const at::Tensor& tiles);  // offsets, columns
// Edges of every row: [B*H*L] int64.
at::Tensor tile_degrees(const EdgeShape& shape, const at::Tensor& tiles);
// Tiles of the transposed graphs: [B*H, ceil(S/64), ceil(L/64), 128].
at::Tensor transposed_tiles(const EdgeShape& shape, const at::Tensor& tiles);
at::Tensor empty_tiles(const EdgeShape& shape, at::Device device, bool zeroed);

}  // namespace edgewise::graph
