// Attention over squares, forward, bf16: see square_forward.cuh.
#include "kernels/cuda/squares/square_forward.cuh"

namespace edgewise::kernels::cuda {

bool squares_take(int64_t head_dim) {
  return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128;
}

int launch_square_forward(const SquareForwardParams<Bf16>& params, Stream stream) {
  return forward_of_dim<Bf16Products>(params, static_cast<cudaStream_t>(stream));
}

}  // namespace edgewise::kernels::cuda
