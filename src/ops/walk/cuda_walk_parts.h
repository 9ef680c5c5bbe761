// What the walks of SacEdges on CUDA share on the side of tensors: inputs of the kernels' width, sums that do
// not depend on the order of threads, and the backward pass of the LSTM. Only files that are built with CUDA
// include this.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "graph/cuda_launch.h"
#include "kernels/cuda/walk/cuda_walk_params.h"
#include "ops/walk/cuda_walk.h"

namespace edgewise::ops::cuda_walks {

using graph::check_launch;
using graph::current_stream;
namespace cuda = kernels::cuda;

inline constexpr int64_t kWidth = cuda::kWalkWidth;

inline int small(int64_t x) {
  return static_cast<int>(x);
}
inline at::Tensor plain(const at::Tensor& t) {
  return t.defined() ? t.detach().contiguous() : t;
}
inline const float* data_of(const at::Tensor& t) {
  return t.defined() && t.numel() > 0 ? t.const_data_ptr<float>() : nullptr;
}

// Differentiable inputs, of width kWidth. distance: empty = nothing is added.
struct Inputs {
  at::Tensor query_nodes;  // [B, G, L, P]
  at::Tensor key_nodes;    // [B, G, S, P]
  at::Tensor weight_ih;    // [G, P, 4P]
  at::Tensor weight_hh;    // [G, P, 4P]
  at::Tensor bias;         // [G, 4P]
  at::Tensor distance;     // [G, L + S - 1]

  int64_t batch() const { return query_nodes.size(0); }
  int64_t groups() const { return query_nodes.size(1); }
  int64_t units() const { return batch() * groups(); }
  int64_t queries() const { return query_nodes.size(2); }
  int64_t keys() const { return key_nodes.size(2); }
  cuda::LstmTensors lstm() const { return {data_of(weight_ih), data_of(weight_hh), data_of(bias)}; }
};
// Padded to the kernels' width; differentiable.
Inputs padded(const WalkTensors& tensors);
// The same without a history, contiguous.
Inputs plain(const Inputs& in);

// Keys before j that the mask allows: [B, S + 1] int32.
at::Tensor open_before(const std::optional<at::Tensor>& mask);
cuda::WalkSpan span_of(const CudaWalkRules& rules, const at::Tensor& before);
cuda::WalkStream stream_of(const RandomStream& random);

// Sums whose terms meet in any order (OrderlessSum). `most` bounds the size of a term; a few million of them
// fit.
class WholeNumbers {
 public:
  WholeNumbers(at::IntArrayRef sizes, const at::Tensor& most);
  cuda::OrderlessSum sum() const {
    return {reinterpret_cast<long long*>(sums_.mutable_data_ptr<int64_t>()), scale_.const_data_ptr<float>()};
  }
  at::Tensor values() const;

 private:
  at::Tensor sums_, scale_;
};
// A bound of the gradient of a score: dlogp and an entropy's terms.
at::Tensor largest_slope(const at::Tensor& grad_log_prob, const at::Tensor& grad_entropy);

// Rows `index` [B, G, ..] of nodes [B, G, N, P].
at::Tensor rows_of(const at::Tensor& nodes, const at::Tensor& index);
// sums[b, g, index] += values, [B, G, N, P] from index [B, G, R] (-1: none) and values [B, G, R, P].
at::Tensor scattered(const at::Tensor& index, const at::Tensor& values, int64_t targets);

struct LstmGrads {
  at::Tensor inputs;  // [B, G, R, T, P]
  at::Tensor weight_ih, weight_hh, bias;
};
// Chains [B, G, R, T, ..] whose inputs and states are known. acts [B, G, R, T].
LstmGrads lstm_grads(const Inputs& in, const at::Tensor& inputs, const at::Tensor& states,
                     const at::Tensor& acts, const at::Tensor& grad_states);

// Why no walk with these sizes runs; empty when it may.
std::string common_refusal(const at::Tensor& bias, const EdgeShape& shape);

}  // namespace edgewise::ops::cuda_walks
