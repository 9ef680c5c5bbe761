// Attention over squares, backward, bf16: see square_queries.cuh and square_keys.cuh.
#include "kernels/cuda/squares/square_backward.cuh"

namespace edgewise::kernels::cuda {

int launch_square_backward(const SquareBackwardParams<Bf16>& params, Stream stream) {
  return backward_of_dim<Bf16Products>(params, static_cast<cudaStream_t>(stream));
}

}  // namespace edgewise::kernels::cuda
