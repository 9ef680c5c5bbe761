// Tensors as the CUDA kernels of attention take them: raw pointers, aligned rows, what dropout removes, what
// a learner adds. Only files that are built with CUDA include this.
#pragma once

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "graph/cuda_launch.h"
#include "kernels/cuda/lists/gather_params.h"
#include "ops/attention/cuda_limits.h"
#include "ops/attention/kernel_table.h"
#include "ops/step_inputs.h"

namespace edgewise::ops {

template <typename T>
kernels::cuda::HeadTensor<const T> view(const at::Tensor& x) {
  return {reinterpret_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}
template <typename T>
kernels::cuda::HeadTensor<T> mutable_view(const at::Tensor& x) {
  return {reinterpret_cast<T*>(x.mutable_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

// The kernels read 16 bytes at a time along a row.
inline bool rows_aligned(const at::Tensor& x) {
  const int64_t step = 16 / x.element_size();
  return x.stride(3) == 1 && x.stride(2) % step == 0 && x.stride(1) % step == 0 && x.stride(0) % step == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}
inline at::Tensor aligned(const at::Tensor& x) {
  return rows_aligned(x) ? x : x.clone(at::MemoryFormat::Contiguous);
}

// As the kernels read them: rows aligned, keys of the dropout on the device.
inline AttentionInputs for_kernels(AttentionInputs in) {
  in.query = aligned(in.query);
  in.key = aligned(in.key);
  in.value = aligned(in.value);
  if (in.dropout_p > 0) in.head_keys = in.head_keys.to(in.query.device(), /*non_blocking=*/true);
  return in;
}
inline const uint64_t* stream_keys(const AttentionInputs& in) {
  return reinterpret_cast<const uint64_t*>(in.head_keys.const_data_ptr<int64_t>());
}
inline float keep_scale(const AttentionInputs& in) {
  return in.dropout_p < 1 ? static_cast<float>(1 / (1 - in.dropout_p)) : 0;
}

// Room for the results of a forward pass. The memory of the output is [B, L, H, D], so that joining the heads
// afterwards costs nothing.
inline AttentionForward empty_forward(const AttentionInputs& in) {
  const EdgeShape& shape = in.shape;
  AttentionForward result;
  result.output = at::empty({shape.batch, shape.queries, shape.heads, in.value_dim}, in.query.options())
                      .permute({0, 2, 1, 3});
  result.lse = at::empty({shape.batch, shape.heads, shape.queries}, in.query.options().dtype(at::kFloat));
  return result;
}

// What all forward passes take.
template <typename T, typename Params>
void fill_forward(Params& params, const AttentionInputs& in, const AttentionForward& result) {
  params.shape = graph::tile_shape(in.shape);
  params.head_dim = in.head_dim;
  params.scale = static_cast<float>(in.scale);
  params.query = view<T>(in.query);
  params.key = view<T>(in.key);
  params.value = view<T>(in.value);
  params.output = mutable_view<T>(result.output);
  params.lse = result.lse.mutable_data_ptr<float>();
}

// A backward pass as the kernels read it, and room for its results.
struct CudaBackward {
  AttentionInputs in;
  AttentionForward forward;
  at::Tensor grad, density_grad;
  AttentionBackward result;

  CudaBackward(const AttentionInputs& given, const AttentionForward& given_forward,
               const at::Tensor& grad_output, const at::Tensor& given_density_grad)
      : in(for_kernels(given)),
        forward(given_forward),
        grad(aligned(grad_output)),
        density_grad(given_density_grad) {
    forward.output = aligned(forward.output);
    forward.lse = forward.lse.contiguous();
    result.query = at::empty(in.query.sizes(), in.query.options());
    result.key = at::empty(in.key.sizes(), in.key.options());
    result.value = at::empty(in.value.sizes(), in.value.options());
  }
};

// What all backward passes take.
template <typename T, typename Params>
void fill_backward(Params& params, const CudaBackward& pass) {
  params.shape = graph::tile_shape(pass.in.shape);
  params.head_dim = pass.in.head_dim;
  params.scale = static_cast<float>(pass.in.scale);
  params.query = view<T>(pass.in.query);
  params.key = view<T>(pass.in.key);
  params.value = view<T>(pass.in.value);
  params.output = view<T>(pass.forward.output);
  params.grad_output = view<T>(pass.grad);
  params.lse = pass.forward.lse.const_data_ptr<float>();
  params.query_grad = mutable_view<T>(pass.result.query);
  params.key_grad = mutable_view<T>(pass.result.key);
  params.value_grad = mutable_view<T>(pass.result.value);
}

// What a learner with memberships adds to a backward pass that forms their gradients, as tensors that live
// until the launch.
struct LearnerTensors {
  at::Tensor query_membership, key_side;            // padded
  at::Tensor query_membership_grad, key_side_grad;  // [B, H, N, padded clusters] fp32
  at::Tensor density_grad, probe_rates;

  explicit LearnerTensors(const CudaBackward& pass) {
    const EdgeLearner& learner = *pass.in.learner;
    const auto members = [&](const at::Tensor& membership) {
      const int64_t missing = padded_clusters(membership.size(3)) - membership.size(3);
      const at::Tensor typed = membership.to(pass.in.dtype);
      return aligned(missing > 0 ? at::constant_pad_nd(typed, {0, missing}) : typed);
    };
    query_membership = members(learner.query_membership);
    key_side = members(learner.key_side);
    const auto fp32 = pass.in.query.options().dtype(at::kFloat);
    query_membership_grad = at::empty(query_membership.sizes(), fp32);
    key_side_grad = at::empty(key_side.sizes(), fp32);
    if (pass.density_grad.defined() && learner.pairs_per_head > 0)
      density_grad = over(pass.density_grad, pairs_per_head(learner)).to(at::kFloat).contiguous();
    if (learner.probes)
      probe_rates = on_device(pass.in.query.device(),
                              [rates = probe_rates_now(learner.probe_rates, learner.replayed)](
                                  const StreamShift&) { return at::tensor(rates(), at::kFloat); });
  }

  template <typename T, typename Params>
  void fill(Params& params, const EdgeLearner& learner) const {
    params.clusters = query_membership.size(3);
    params.query_membership = view<T>(query_membership);
    params.key_side = view<T>(key_side);
    params.paper = learner.rule == CreditRule::kPaper;
    params.clip = static_cast<float>(learner.gradient_clip);
    if (density_grad.defined()) params.density_grad = density_grad.const_data_ptr<float>();
    if (probe_rates.defined()) params.probe_rates = probe_rates.const_data_ptr<float>();
    params.query_membership_grad = mutable_view<float>(query_membership_grad);
    params.key_side_grad = mutable_view<float>(key_side_grad);
  }

  void give(AttentionBackward& result, int64_t clusters) const {
    result.query_membership = query_membership_grad.narrow(3, 0, clusters);
    result.key_side = key_side_grad.narrow(3, 0, clusters);
  }
};

}  // namespace edgewise::ops
