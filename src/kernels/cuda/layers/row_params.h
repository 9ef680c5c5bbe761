// Parameters of the CUDA kernels over rows of states: what a model does around attention and products.
// Torch-free and CUDA-free. N rows of D numbers, contiguous.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {

// y = (x - mean) * rstd * weight + bias, mean and rstd = 1 / sqrt(variance + eps) of a row.
template <typename Out>  // float or Bf16
struct LayerNormParams {
  int64_t rows = 0, dim = 0;
  float eps = 1e-5f;
  const float* x = nullptr;  // [N, D]
  const float *weight = nullptr, *bias = nullptr;
  const uint8_t* mask = nullptr;  // [N]; where it is 0, y is 0 and x has no gradient. Null = nowhere
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
  const uint8_t* mask = nullptr;
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

// sum[c] = sum over rows of x[row, c], in an order that does not depend on the device.
inline constexpr int kColumnParts = 264;
template <typename T>  // float or Bf16
struct ColumnSumParams {
  int64_t rows = 0, columns = 0;  // columns a multiple of 8
  const T* x = nullptr;
  float* parts = nullptr;  // scratch [kColumnParts, columns]
  float* sum = nullptr;
};
template <typename T>
int launch_column_sum(const ColumnSumParams<T>& params, Stream stream);

// x[t] = dropout(table[ids[t]] + places[positions[t]]): what a model reads of its tokens. An id or a position
// out of range stops the kernel with a message.
struct EmbedParams {
  int64_t tokens = 0, length = 0, dim = 0;  // length: of a sequence; dim a multiple of 8
  int64_t vocabulary = 0, most_places = 0;
  const int64_t *ids = nullptr, *positions = nullptr;  // [tokens]; no positions: t % length
  const float *table = nullptr, *places = nullptr;     // [vocabulary, dim]; [most_places, dim] or null
  float* x = nullptr;
  uint32_t limit = 0;
  DropoutStream stream;
};
int launch_embed(const EmbedParams& params, Stream stream);

// result[v] = sum of x_grad[t] over the t with ids[t] = v, in the same order in every run. x_grad is that of
// the sum before dropout.
struct EmbedGradParams {
  int64_t tokens = 0, dim = 0, rows = 0;  // dim a multiple of 8
  const int64_t* ids = nullptr;           // out of [0, rows): added nowhere
  const float* x_grad = nullptr;          // [tokens, dim]
  int64_t parts = 0;                      // the tokens are dealt out to so many
  float* sums = nullptr;                  // scratch [parts, rows, dim]
  float* result = nullptr;                // [rows, dim]
};
int launch_embed_grad(const EmbedGradParams& params, Stream stream);

// result[n] = sum of x_grad[b, n] over the items b, n < length; rows from length on are left alone.
struct PlaceGradParams {
  int64_t items = 0, length = 0, dim = 0;  // dim a multiple of 4
  const float* x_grad = nullptr;           // [items, length, dim]
  float* result = nullptr;
};
int launch_place_grad(const PlaceGradParams& params, Stream stream);

}  // namespace edgewise::kernels::cuda
