// Parameters of the CUDA kernels over edge lists (CSR and its transpose), for graphs too sparse for tiles.
// Torch-free and CUDA-free.
#pragma once

#include <cstdint>

#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/params.h"

namespace edgewise::kernels::cuda {

// The edges of B*H heads by outer tokens: token o of head h has offsets[h*outer + o] .. offsets[h*outer + o +
// 1].
struct EdgeList {
  const int64_t* offsets = nullptr;
  const int32_t* indices = nullptr;  // inner token within the head
};

// Dropout on the attention weights (pair_dropout.cuh); without keys there is none.
struct GatherDropout {
  const uint64_t* stream_keys = nullptr;  // [B*H]
  double p = 0;
  float keep_scale = 1;  // 1 / (1 - p)
};

// T: Bf16 or float.
template <typename T>
struct GatherForwardParams {
  TileShape shape;
  int64_t head_dim = 0;  // 16, 32, 64 or 128
  float scale = 1;
  HeadTensor<const T> query, key, value;
  EdgeList edges;  // by queries; indices outside [0, S) are skipped
  GatherDropout dropout;
  HeadTensor<T> output;
  float* lse = nullptr;  // [B*H*L]
};
template <typename T>
int launch_gather_forward(const GatherForwardParams<T>& params, Stream stream);

template <typename T>
struct GatherBackwardParams {
  TileShape shape;
  int64_t head_dim = 0;
  float scale = 1;
  HeadTensor<const T> query, key, value, output, grad_output;
  const float* lse = nullptr;   // [B*H*L]
  float* row_values = nullptr;  // scratch [2, B*H*L]
  EdgeList edges, edges_by_keys;
  GatherDropout dropout;  // as in the forward pass
  HeadTensor<T> query_grad, key_grad, value_grad;
  // A number per edge and per probe, in the order of `edges` and `probes`; then without clusters.
  CreditRule rule = CreditRule::kNone;
  float* edge_credit = nullptr;   // [E] out, with a rule
  float* probe_credit = nullptr;  // [probes] out, with a rule and probes; not divided by rates
  // Credit for the learner, as in TileCreditParams, whose product with memberships is formed here.
  int64_t clusters = 0;  // 0, 32 or 128
  HeadTensor<const T> query_membership, key_side;
  bool paper = false;
  float clip = 0;
  const float* density_grad = nullptr;
  EdgeList probes, probes_by_keys;
  const float* probe_rates = nullptr;
  HeadTensor<float> query_membership_grad, key_side_grad;
};
template <typename T>
int launch_gather_backward(const GatherBackwardParams<T>& params, Stream stream);

constexpr bool gather_takes(int64_t head_dim, int64_t clusters) {
  return (head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128) &&
         (clusters == 0 || clusters == 32 || clusters == 128);
}

}  // namespace edgewise::kernels::cuda
