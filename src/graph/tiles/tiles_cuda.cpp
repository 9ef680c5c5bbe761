// Bit tiles of CUDA tensors: tensors to raw pointers and a launch.
#include "graph/tiles/tiles_cuda.h"

#include <ATen/ops/empty.h>

#include "graph/cuda_launch.h"
#include "graph/edge_windows.h"
#include "graph/lists_cuda.h"

namespace edgewise::graph {

void cuda_tiles_from_csr(const EdgeShape& shape, const at::Tensor& row_offsets, const at::Tensor& col_indices,
                         at::Tensor& tiles) {
  const c10::cuda::CUDAGuard guard(tiles.device());
  check_launch("csr_to_tiles",
               kernels::cuda::launch_csr_to_tiles(tile_shape(shape), row_offsets.const_data_ptr<int64_t>(),
                                                  col_indices.const_data_ptr<int32_t>(), words_of(tiles),
                                                  nullptr, current_stream()));
}

at::Tensor cuda_tile_degrees(const EdgeShape& shape, const at::Tensor& tiles) {
  const c10::cuda::CUDAGuard guard(tiles.device());
  at::Tensor degrees = at::empty({shape.rows()}, tiles.options());
  check_launch("tile_degrees",
               kernels::cuda::launch_tile_degrees(tile_shape(shape), words_of(tiles),
                                                  degrees.mutable_data_ptr<int32_t>(), current_stream()));
  return degrees;
}

std::pair<at::Tensor, at::Tensor> cuda_csr_from_tiles(const EdgeShape& shape, const at::Tensor& tiles) {
  const c10::cuda::CUDAGuard guard(tiles.device());
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_capturing(),
      "EdgeSet: a list of edges has as many places as there are edges, which the host must wait for; a CUDA "
      "graph cannot be captured then. Kernels that read tiles need no list; edgewise doctor --explain says "
      "what takes "
      "a call and why");
  const at::Tensor degrees = cuda_tile_degrees(shape, tiles);
  at::Tensor offsets = cuda_offsets(degrees);
  const int64_t edges = offsets.select(0, shape.rows()).item<int64_t>();
  at::Tensor columns = at::empty({edges}, tiles.options());
  check_launch("tiles_to_columns", kernels::cuda::launch_tiles_to_columns(
                                       tile_shape(shape), words_of(tiles), offsets.const_data_ptr<int64_t>(),
                                       columns.mutable_data_ptr<int32_t>(), current_stream()));
  return {offsets, columns};
}

at::Tensor cuda_transposed_tiles(const EdgeShape& shape, const at::Tensor& tiles,
                                 const SparseHeads& without) {
  const c10::cuda::CUDAGuard guard(tiles.device());
  at::Tensor transposed = empty_tiles({shape.batch, shape.heads, shape.keys, shape.queries}, tiles.device(),
                                      /*zeroed=*/false);
  check_launch("transpose_tiles",
               kernels::cuda::launch_transpose_tiles(tile_shape(shape), words_of(tiles), words_of(transposed),
                                                     few_edges(without), current_stream()));
  return transposed;
}

bool cuda_is_recording(at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  return is_capturing();
}

void cuda_clear_outside(const EdgeShape& shape, const EdgeUnits& units, const SparseHeads& without,
                        at::Tensor& tiles) {
  const c10::cuda::CUDAGuard guard(tiles.device());
  check_launch("clear_unchosen", kernels::cuda::launch_clear_unchosen(
                                     tile_shape(shape), units.by_queries.const_data_ptr<uint8_t>(),
                                     words_of(tiles), few_edges(without), current_stream()));
}

at::Tensor cuda_used_tiles(const EdgeShape& shape, const at::Tensor& tiles) {
  const c10::cuda::CUDAGuard guard(tiles.device());
  at::Tensor flags =
      at::empty({tiles.size(0), tiles.size(1), tiles.size(2)}, tiles.options().dtype(at::kByte));
  check_launch("mark_used_tiles",
               kernels::cuda::launch_mark_used_tiles(tile_shape(shape), words_of(tiles),
                                                     flags.mutable_data_ptr<uint8_t>(), current_stream()));
  return flags;
}

EdgeWindows edge_windows(const EdgeShape& shape, const at::Tensor& tiles, const SparseHeads& heads,
                         bool by_keys) {
  const c10::cuda::CUDAGuard guard(tiles.device());
  const int64_t outer = by_keys ? shape.keys : shape.queries, inner = by_keys ? shape.queries : shape.keys;
  const int64_t windows = kernels::cuda::WindowLists::windows(outer),
                blocks = kernels::cuda::WindowLists::blocks(inner), count = shape.batch * shape.heads;
  EdgeWindows result;
  result.entries = at::empty({count, windows, blocks, kernels::cuda::kWindowBlock}, tiles.options());
  result.turns = at::empty({count, windows, blocks}, tiles.options().dtype(at::kByte));
  result.heads = heads;
  kernels::cuda::BuildWindowsParams params;
  params.shape = tile_shape(shape);
  params.tiles = words_of(tiles);
  params.sparse = few_edges(heads);
  params.by_keys = by_keys;
  params.lists = window_lists(result);
  check_launch("build_windows", kernels::cuda::launch_build_windows(params, current_stream()));
  return result;
}

}  // namespace edgewise::graph
