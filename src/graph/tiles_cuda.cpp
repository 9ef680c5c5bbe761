// Bit tiles of CUDA tensors: tensors to raw pointers and a launch.
#include "graph/tiles_cuda.h"

#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "graph/cuda_launch.h"

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
  const at::Tensor degrees = cuda_tile_degrees(shape, tiles);
  at::Tensor offsets = at::zeros({shape.rows() + 1}, tiles.options().dtype(at::kLong));
  offsets.narrow(0, 1, shape.rows()).copy_(at::cumsum(degrees, 0, at::kLong));
  const int64_t edges = offsets.select(0, shape.rows()).item<int64_t>();
  at::Tensor columns = at::empty({edges}, tiles.options());
  check_launch("tiles_to_columns", kernels::cuda::launch_tiles_to_columns(
                                       tile_shape(shape), words_of(tiles), offsets.const_data_ptr<int64_t>(),
                                       columns.mutable_data_ptr<int32_t>(), current_stream()));
  return {offsets, columns};
}

void cuda_transpose_tiles(const EdgeShape& shape, const at::Tensor& tiles, at::Tensor& transposed) {
  const c10::cuda::CUDAGuard guard(tiles.device());
  check_launch("transpose_tiles",
               kernels::cuda::launch_transpose_tiles(tile_shape(shape), words_of(tiles), words_of(transposed),
                                                     current_stream()));
}

}  // namespace edgewise::graph
