// Attention over squares, forward, fp32 by tf32 products: see square_forward.cuh.
#include "kernels/cuda/squares/square_forward.cuh"

namespace edgewise::kernels::cuda {

int launch_square_forward(const SquareForwardParams<float>& params, Tf32 products, Stream stream) {
  return products == Tf32::kOnce
             ? forward_of_dim<Tf32Products<Tf32::kOnce>>(params, static_cast<cudaStream_t>(stream))
             : forward_of_dim<Tf32Products<Tf32::kThrice>>(params, static_cast<cudaStream_t>(stream));
}

}  // namespace edgewise::kernels::cuda
