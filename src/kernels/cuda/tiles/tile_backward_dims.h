// The backward pass over bit tiles, a translation unit for each head dim: each takes a minute to compile.
#pragma once

#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {

int launch_tile_backward_16(const TileBackwardParams<Bf16>& params, Stream stream);
int launch_tile_backward_32(const TileBackwardParams<Bf16>& params, Stream stream);
int launch_tile_backward_64(const TileBackwardParams<Bf16>& params, Stream stream);
int launch_tile_backward_128(const TileBackwardParams<Bf16>& params, Stream stream);

int launch_float_tile_backward_16(const TileBackwardParams<float>& params, Tf32 products, Stream stream);
int launch_float_tile_backward_32(const TileBackwardParams<float>& params, Tf32 products, Stream stream);
int launch_float_tile_backward_64(const TileBackwardParams<float>& params, Tf32 products, Stream stream);
int launch_float_tile_backward_128(const TileBackwardParams<float>& params, Tf32 products, Stream stream);

}  // namespace edgewise::kernels::cuda
