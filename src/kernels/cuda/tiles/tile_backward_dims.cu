// The backward pass over bit tiles (tile_backward.cuh, float_tile_backward.cuh): which head dim.
#include <cuda_runtime_api.h>

#include "kernels/cuda/tiles/tile_backward_dims.h"

namespace edgewise::kernels::cuda {

int launch_tile_backward(const TileBackwardParams<Bf16>& p, Stream stream) {
  switch (p.head_dim) {
    case 16:
      return launch_tile_backward_16(p, stream);
    case 32:
      return launch_tile_backward_32(p, stream);
    case 64:
      return launch_tile_backward_64(p, stream);
    case 128:
      return launch_tile_backward_128(p, stream);
  }
  return cudaErrorInvalidValue;
}

int launch_float_tile_backward(const TileBackwardParams<float>& p, Tf32 products, Stream stream) {
  switch (p.head_dim) {
    case 16:
      return launch_float_tile_backward_16(p, products, stream);
    case 32:
      return launch_float_tile_backward_32(p, products, stream);
    case 64:
      return launch_float_tile_backward_64(p, products, stream);
    case 128:
      return launch_float_tile_backward_128(p, products, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace edgewise::kernels::cuda
