// Parameters of the CUDA kernels over rows of states: what a layer does between its products. Torch-free and
// CUDA-free. N rows of D numbers, contiguous.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/tile_params.h"

namespace edgewise::kernels::cuda {

// y = (x - mean) * rstd * weight + bias, mean and rstd = 1 / sqrt(variance + eps) of a row.
template <typename Out>  // float or Bf16
struct LayerNormParams {
  int64_t rows = 0, dim = 0;
  float eps = 1e-5f;
  const float* x = nullptr;  // [N, D]
  const float *weight = nullptr, *bias = nullptr;
  Out* y = nullptr;
  float *mean = nullptr, *rstd = nullptr;  // [N]
};
template <typename Out>
int launch_layer_norm(const LayerNormParams<Out>& params, Stream stream);

// Blocks of rows whose sums for weight and bias are formed apart; always so many, so that a sum is the same
// on any device.
inline constexpr int kLayerNormParts = 528;
template <typename Grad>  // float or Bf16
struct LayerNormGradParams {
  int64_t rows = 0, dim = 0;
  const float* x = nullptr;
  const float* weight = nullptr;
  const float *mean = nullptr, *rstd = nullptr;
  const Grad* y_grad = nullptr;
  float* x_grad = nullptr;
  float* parts = nullptr;                              // scratch [kLayerNormParts, 2, D]
  float *weight_grad = nullptr, *bias_grad = nullptr;  // [D]
};
template <typename Grad>
int launch_layer_norm_grad(const LayerNormGradParams<Grad>& params, Stream stream);

bool layer_norm_takes(int64_t dim);

// Where torch's generator stands. In a CUDA graph it is known only at the replay: then the seed is read from
// memory, and what stands there is added to the offset.
struct DropoutStream {
  uint64_t seed = 0, offset = 0;
  const int64_t *seed_at = nullptr, *offset_at = nullptr;
};

// y = x + update * keep / (1 - p): keep is 0 with probability p, a number of 16 bits for each element from
// Philox(seed, offset).
template <typename Update>
struct DroppedAddParams {
  int64_t elements = 0;
  const float* x = nullptr;
  const Update* update = nullptr;
  float* y = nullptr;
  uint32_t limit = 0;  // dropped where the number is below it; p = limit / 65536
  DropoutStream stream;
};
template <typename Update>
int launch_dropped_add(const DroppedAddParams<Update>& params, Stream stream);

// Its gradient for the update, with the same numbers drawn again; that for x is y_grad.
template <typename Update>
struct DroppedGradParams {
  int64_t elements = 0;
  const float* y_grad = nullptr;
  Update* update_grad = nullptr;
  uint32_t limit = 0;
  DropoutStream stream;
};
template <typename Update>
int launch_dropped_grad(const DroppedGradParams<Update>& params, Stream stream);

}  // namespace edgewise::kernels::cuda
