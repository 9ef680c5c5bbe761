// Unions and differences of squares by the CUDA kernels of kernels/cuda/squares/square_sets.cu, from tensors.
// Nothing waits and nothing is known on the host. Inline, so that tests run the same on kernels that are
// compiled for a CPU.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "graph/squares/transposed_squares.h"
#include "kernels/cuda/squares/square_set_params.h"

namespace edgewise::graph {

template <typename Check>
Squares joined_by_kernels(const Squares& a, const Squares& b, kernels::cuda::SquareSetOperation operation,
                          kernels::cuda::Stream stream, const Check& check) {
  const auto whole = [](const Squares& squares) {
    return Squares{squares.shape, squares.begin.contiguous(), squares.count.contiguous(),
                   squares.cols.contiguous()};
  };
  const Squares left = whole(a), right = whole(b);
  const auto int32s = left.cols.options();
  Squares result{a.shape, at::arange(a.rows(), int32s) * a.key_groups(), at::empty({a.rows()}, int32s),
                 at::empty({a.rows() * a.key_groups()}, int32s)};
  kernels::cuda::SquareSetParams params;
  params.rows = a.rows(), params.key_groups = a.key_groups();
  params.a = square_list(left.begin, left.count, left.cols);
  params.b = square_list(right.begin, right.count, right.cols);
  params.operation = operation;
  params.count = result.count.mutable_data_ptr<int32_t>();
  params.cols = result.cols.mutable_data_ptr<int32_t>();
  check("join_squares", kernels::cuda::launch_join_squares(params, stream));
  return result;
}

// values: [places of `squares`] fp32; numbers of squares that `others` has too become 0.
template <typename Check>
void clear_by_kernels(const at::Tensor& values, const Squares& squares, const Squares& others,
                      kernels::cuda::Stream stream, const Check& check) {
  const at::Tensor begin = squares.begin.contiguous(), count = squares.count.contiguous(),
                   cols = squares.cols.contiguous(), other_begin = others.begin.contiguous(),
                   other_count = others.count.contiguous(), other_cols = others.cols.contiguous();
  kernels::cuda::SquareClearParams params;
  params.rows = squares.rows();
  params.squares = square_list(begin, count, cols);
  params.others = square_list(other_begin, other_count, other_cols);
  params.values = values.mutable_data_ptr<float>();
  check("clear_squares", kernels::cuda::launch_clear_squares(params, stream));
}

}  // namespace edgewise::graph
