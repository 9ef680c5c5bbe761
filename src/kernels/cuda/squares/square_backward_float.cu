// Attention over squares, backward, fp32 by tf32 products: see square_queries.cuh and square_keys.cuh.
#include "kernels/cuda/squares/square_backward.cuh"

namespace edgewise::kernels::cuda {

int launch_square_backward(const SquareBackwardParams<float>& params, Tf32 products, Stream stream) {
  return products == Tf32::kOnce
             ? backward_of_dim<Tf32Products<Tf32::kOnce>>(params, static_cast<cudaStream_t>(stream))
             : backward_of_dim<Tf32Products<Tf32::kThrice>>(params, static_cast<cudaStream_t>(stream));
}

}  // namespace edgewise::kernels::cuda
