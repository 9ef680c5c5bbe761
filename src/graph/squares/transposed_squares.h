// The squares by key group by the CUDA kernels of kernels/cuda/squares/square_transpose.cu, from tensors.
// Nothing waits and nothing is known on the host: `rows` and `places` have as many places as squares.cols.
// Inline, so that tests run the same on kernels that are compiled for a CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>

#include "graph/bool_bytes.h"
#include "graph/squares/squares.h"
#include "kernels/cuda/squares/square_choice_params.h"

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
  // A list that has room for everything has it by key groups too; others are counted.
  params.has_room = cols.size(0) >= columns * params.query_groups;
  if (params.has_room) {
    result.begin = int32s(columns);
  } else {
    check("count_squares", kernels::cuda::launch_count_squares(params, stream));
    result.begin = at::cumsum(result.count, 0, at::kInt);
  }
  params.begin = result.begin.mutable_data_ptr<int32_t>();
  params.rows = result.rows.mutable_data_ptr<int32_t>();
  if (with_places) {
    result.places = int32s(cols.size(0));
    params.places = result.places.mutable_data_ptr<int32_t>();
  }
  check("transpose_squares", kernels::cuda::launch_transpose_squares(params, stream));
  return result;
}

// [B, H] int64: pairs of the squares of each head.
template <typename Check>
at::Tensor pairs_per_head_by_kernels(const Squares& squares, const SquarePairs& pairs,
                                     kernels::cuda::Stream stream, const Check& check) {
  const at::Tensor begin = squares.begin.contiguous(), count = squares.count.contiguous(),
                   cols = squares.cols.contiguous();
  const at::Tensor per_row = at::empty({squares.rows()}, cols.options());
  at::Tensor key_bits, query_mask;
  kernels::cuda::SquareCountParams params;
  params.batch = squares.shape.batch, params.heads = squares.shape.heads;
  params.queries = squares.shape.queries, params.keys = squares.shape.keys;
  params.squares = square_list(begin, count, cols);
  if (pairs.key_bits.defined()) {
    key_bits = pairs.key_bits.contiguous();
    params.key_bits = key_bits.const_data_ptr<int32_t>();
  }
  if (pairs.query_mask.defined()) query_mask = pairs.query_mask.contiguous();
  params.query_mask = bool_bytes(query_mask);
  params.is_causal = pairs.is_causal, params.query_offset = pairs.query_offset;
  params.pairs = per_row.mutable_data_ptr<int32_t>();
  check("count_square_pairs", kernels::cuda::launch_count_square_pairs(params, stream));
  return per_row.view({squares.shape.batch, squares.shape.heads, squares.query_groups()})
      .sum(2, false, at::kLong);
}

}  // namespace edgewise::graph
