// Attention over squares, backward: its passes one after the other.
#pragma once

#include "kernels/cuda/squares/square_keys.cuh"
#include "kernels/cuda/squares/square_queries.cuh"

namespace edgewise::kernels::cuda {
namespace {

template <typename Products, int D>
cudaError_t start_backward(const SquareBackwardParams<typename Products::Stored>& p, cudaStream_t stream) {
  const uint32_t limit = dropout_limit(p.dropout_p);
  if (const int64_t rows = p.batch * p.heads * square_groups(p.queries); rows > 0) {
    const auto start = [&](auto* kernel, unsigned most, const auto&... arguments) {
      const unsigned threads = square_threads(rows, most);
      launch(kernel, square_blocks(rows, threads), threads, stream, p, arguments...);
    };
    if (p.rule == CreditRule::kLeaveOneOut)
      start(square_backward_by_queries<Products, D, true>, QueryShape<Products, D, true>::kThreads, limit);
    else
      start(square_backward_by_queries<Products, D, false>, QueryShape<Products, D>::kThreads, limit);
    if (p.probes.groups) start(square_probes<Products, D>, QueryShape<Products, D>::kThreads);
  }
  if (const int64_t rows = p.batch * p.key_heads * square_groups(p.keys); rows > 0) {
    const unsigned threads = square_threads(rows, KeyShape<Products, D>::kThreads);
    launch(square_backward_by_keys<Products, D>, square_blocks(rows, threads), threads, stream, p, limit);
  }
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
