// The backward pass over bit tiles in fp32 for head dim 128.
#include "kernels/cuda/tiles/float_tile_backward.cuh"
#include "kernels/cuda/tiles/tile_backward_dims.h"

namespace edgewise::kernels::cuda {

int launch_float_tile_backward_128(const TileBackwardParams<float>& p, Tf32 products, Stream stream) {
  return launch_products<128>(p, products, static_cast<cudaStream_t>(stream));
}

}  // namespace edgewise::kernels::cuda
