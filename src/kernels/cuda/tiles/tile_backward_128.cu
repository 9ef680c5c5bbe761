// The backward pass over bit tiles for head dim 128.
#include "kernels/cuda/tiles/tile_backward.cuh"
#include "kernels/cuda/tiles/tile_backward_dims.h"

namespace edgewise::kernels::cuda {

int launch_tile_backward_128(const TileBackwardParams<Bf16>& p, Stream stream) {
  return launch_clusters<128>(p, static_cast<cudaStream_t>(stream));
}

}  // namespace edgewise::kernels::cuda
