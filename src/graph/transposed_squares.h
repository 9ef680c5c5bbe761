// The squares by key group by the CUDA kernels of kernels/cuda/squares/square_transpose.cu, from tensors.
// Nothing waits and nothing is known on the host: `rows` and `places` have as many places as squares.cols.
// Inline, so that tests run the same on kernels that are compiled for a CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>

#include "graph/squares.h"
#include "kernels/cuda/squares/square_params.h"

namespace edgewise::graph {

inline kernels::cuda::SquareList square_list(const at::Tensor& begin, const at::Tensor& count,
                                             const at::Tensor& groups) {
  return {begin.const_data_ptr<int32_t>(), count.const_data_ptr<int32_t>(), groups.const_data_ptr<int32_t>()};
}

// check(kernel, error) is called after each launch. Without places those of the result are undefined.
template <typename Check>
TransposedSquares transposed_by_kernels(const Squares& squares, bool with_places,
                                        kernels::cuda::Stream stream, const Check& check) {
  const at::Tensor begin = squares.begin.contiguous(), count = squares.count.contiguous(),
                   cols = squares.cols.contiguous();
  const int64_t columns = squares.shape.batch * squares.shape.heads * squares.key_groups();
  const auto int32s = [&](int64_t size) { return at::empty({size}, cols.options()); };
  TransposedSquares result;
  result.count = int32s(columns);
  result.rows = int32s(cols.size(0));
  kernels::cuda::SquareTransposeParams params;
  params.heads = squares.shape.batch * squares.shape.heads;
  params.query_groups = squares.query_groups(), params.key_groups = squares.key_groups();
  params.squares = square_list(begin, count, cols);
  params.count = result.count.mutable_data_ptr<int32_t>();
  check("count_squares", kernels::cuda::launch_count_squares(params, stream));
  result.begin = at::cumsum(result.count, 0, at::kInt);
  params.begin = result.begin.mutable_data_ptr<int32_t>();
  params.rows = result.rows.mutable_data_ptr<int32_t>();
  if (with_places) {
    result.places = int32s(cols.size(0));
    params.places = result.places.mutable_data_ptr<int32_t>();
  }
  check("transpose_squares", kernels::cuda::launch_transpose_squares(params, stream));
  return result;
}

}  // namespace edgewise::graph
