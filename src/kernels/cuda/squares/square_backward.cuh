// Attention over squares, backward: its passes one after the other.
#pragma once

#include "kernels/cuda/squares/square_keys.cuh"
#include "kernels/cuda/squares/square_queries.cuh"

namespace edgewise::kernels::cuda {
namespace {

template <typename Products, int D>
cudaError_t start_backward(const SquareBackwardParams<typename Products::Stored>& p, cudaStream_t stream) {
  const uint32_t limit = dropout_limit(p.dropout_p);
  cudaError_t error = cudaSuccess;
  const auto start = [&]<typename Shape>(Shape, int64_t rows, auto* kernel, const auto&... arguments) {
    if (error != cudaSuccess || rows == 0) return;
    const unsigned threads = square_threads(rows, Shape::kThreads);
    error = launch_with_shared(kernel, square_blocks(rows, threads), threads,
                               threads / 32 * Shape::kWarpBytes, stream, p, arguments...);
  };
  const int64_t query_rows = p.batch * p.heads * square_groups(p.queries),
                key_rows = p.batch * p.key_heads * square_groups(p.keys);
  if (p.rule == CreditRule::kLeaveOneOut)
    start(QueryShape<Products, D, true>{}, query_rows, square_backward_by_queries<Products, D, true>, limit);
  else
    start(QueryShape<Products, D>{}, query_rows, square_backward_by_queries<Products, D, false>, limit);
  start(KeyShape<Products, D>{}, key_rows, square_backward_by_keys<Products, D>, limit);
  if (error != cudaSuccess) return error;
  return cudaGetLastError();
}

template <typename Products>
cudaError_t backward_of_dim(const SquareBackwardParams<typename Products::Stored>& p, cudaStream_t stream) {
  switch (p.head_dim) {
    case 16:
      return start_backward<Products, 16>(p, stream);
    case 32:
      return start_backward<Products, 32>(p, stream);
    case 64:
      return start_backward<Products, 64>(p, stream);
    case 128:
      return start_backward<Products, 128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace
}  // namespace edgewise::kernels::cuda
