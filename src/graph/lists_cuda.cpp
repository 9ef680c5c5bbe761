// Lists of edges of CUDA tensors: tensors to raw pointers and a launch.
#include "graph/lists_cuda.h"

#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "graph/cuda_launch.h"
#include "graph/squares/joined_squares.h"
#include "kernels/cuda/lists/list_params.h"

namespace edgewise::graph {

at::Tensor cuda_offsets(const at::Tensor& counts) {
  at::Tensor offsets = at::zeros({counts.size(0) + 1}, counts.options().dtype(at::kLong));
  offsets.narrow(0, 1, counts.size(0)).copy_(at::cumsum(counts, 0, at::kLong));
  return offsets;
}

std::optional<TransposedEdges> cuda_transposed_lists(const EdgeShape& shape, const at::Tensor& row_offsets,
                                                     const at::Tensor& col_indices) {
  if (at::cuda::getDeviceProperties(col_indices.get_device())->major != 9) return std::nullopt;
  const c10::cuda::CUDAGuard guard(col_indices.device());
  const auto int32 = col_indices.options();
  const int64_t edges = col_indices.size(0);
  kernels::cuda::ListTransposeParams params;
  params.shape = tile_shape(shape);
  params.row_offsets = row_offsets.const_data_ptr<int64_t>();
  params.columns = col_indices.const_data_ptr<int32_t>();
  const at::Tensor counts = at::zeros({shape.columns()}, int32);
  params.counts = counts.mutable_data_ptr<int32_t>();
  check_launch("count_keys", kernels::cuda::launch_count_keys(params, current_stream()));
  TransposedEdges result;
  result.column_offsets = cuda_offsets(counts);
  result.row_indices = at::empty({edges}, int32);
  params.key_offsets = result.column_offsets.const_data_ptr<int64_t>();
  params.rows = result.row_indices.mutable_data_ptr<int32_t>();
  const at::Tensor spare = at::empty({edges}, int32),
                   long_keys = at::empty({edges / kernels::cuda::kWarpRows + 1}, int32.dtype(at::kLong)),
                   long_count = at::zeros({1}, int32);
  params.spare = spare.mutable_data_ptr<int32_t>();
  params.long_keys = long_keys.mutable_data_ptr<int64_t>();
  params.long_count = long_count.mutable_data_ptr<int32_t>();
  check_launch("list_transpose", kernels::cuda::launch_list_transpose(params, current_stream()));
  return result;
}

std::optional<TransposedSquares> cuda_transposed_squares(const Squares& squares) {
  if (!is_hopper(squares.cols.device())) return std::nullopt;
  const c10::cuda::CUDAGuard guard(squares.cols.device());
  return transposed_by_kernels(squares, /*with_places=*/true, current_stream(), check_launch);
}

namespace {

std::optional<Squares> joined(const Squares& a, const Squares& b,
                              kernels::cuda::SquareSetOperation operation) {
  if (!a.cols.is_cuda() || b.cols.device() != a.cols.device() || !is_hopper(a.cols.device()) ||
      a.rows() * a.key_groups() > std::numeric_limits<int32_t>::max())
    return std::nullopt;
  const c10::cuda::CUDAGuard guard(a.cols.device());
  return joined_by_kernels(a, b, operation, current_stream(), check_launch);
}

}  // namespace

std::optional<Squares> cuda_united_squares(const Squares& a, const Squares& b) {
  return joined(a, b, kernels::cuda::SquareSetOperation::kUnion);
}
std::optional<Squares> cuda_squares_without(const Squares& a, const Squares& b) {
  return joined(a, b, kernels::cuda::SquareSetOperation::kDifference);
}

std::optional<at::Tensor> cuda_pairs_per_head(const Squares& squares, const SquarePairs& pairs) {
  if (!is_hopper(squares.cols.device())) return std::nullopt;
  const c10::cuda::CUDAGuard guard(squares.cols.device());
  return pairs_per_head_by_kernels(squares, pairs, current_stream(), check_launch);
}

}  // namespace edgewise::graph
