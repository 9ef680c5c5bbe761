// Attention over squares by the CUDA kernels of kernels/cuda/squares: from tensors to launches. Nothing waits
// for the device, so that a step can be recorded. Inline, so that tests run the same on kernels that are
// compiled for a CPU.
//
// Kernels know head dims 16, 32, 64 and 128, the same for keys and values: zeros fill others up, which adds
// nothing to a product.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "graph/squares/transposed_squares.h"
#include "ops/squares/square_attention.h"

namespace edgewise::ops {

// The head dim that kernels compute a call in; 0: none.
inline int64_t square_kernel_dim(const SquareCall& call) {
  const int64_t wanted = std::max(call.query.size(3), call.value.size(3));
  for (const int64_t dim : {16, 32, 64, 128})
    if (wanted <= dim) return dim;
  return 0;
}

// [B, H, N, dim] with rows as kernels read them, 16 bytes at a time.
inline at::Tensor square_rows(const at::Tensor& x, int64_t dim) {
  if (x.size(3) != dim) return at::constant_pad_nd(x, {0, dim - x.size(3)}, 0).contiguous();
  const int64_t step = 16 / x.element_size();
  const bool aligned = x.stride(3) == 1 && (x.stride(0) | x.stride(1) | x.stride(2)) % step == 0 &&
                       x.size(2) * x.stride(2) * x.element_size() <= kernels::cuda::kMostSquareBytes &&
                       reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  return aligned ? x : x.clone(at::MemoryFormat::Contiguous);
}

template <typename T>
kernels::cuda::HeadTensor<const T> square_view(const at::Tensor& x) {
  return {static_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

// A call whose tensors lie as kernels take them, which the parameters point to.
struct SquareKernelCall {
  int64_t dim;
  at::Tensor query, key, value, begin, count, cols, key_bits, head_keys, taken;

  SquareKernelCall(const SquareCall& call, int passes)
      : dim(square_kernel_dim(call)),
        query(square_rows(call.query, dim)),
        key(square_rows(call.key, dim)),
        value(square_rows(call.value, dim)),
        begin(call.squares.begin.contiguous()),
        count(call.squares.count.contiguous()),
        cols(call.squares.cols.contiguous()),
        taken(at::zeros({passes, kernels::cuda::kMostSquareBlocks}, cols.options())) {
    if (call.key_bits.defined()) key_bits = call.key_bits.contiguous();
    if (call.dropout_p > 0) head_keys = call.head_keys.to(query.device(), /*non_blocking=*/true).contiguous();
  }

  template <typename T>
  void set(kernels::cuda::SquareParams<T>& params, const SquareCall& call) const {
    params.batch = query.size(0), params.heads = query.size(1), params.key_heads = key.size(1);
    params.queries = query.size(2), params.keys = key.size(2);
    params.head_dim = dim;
    params.set_divisions();
    params.scale = static_cast<float>(call.scale);
    params.query = square_view<T>(query), params.key = square_view<T>(key);
    params.value = square_view<T>(value);
    params.squares = graph::square_list(begin, count, cols);
    params.taken = taken.mutable_data_ptr<int32_t>();
    if (key_bits.defined()) params.key_bits = key_bits.const_data_ptr<int32_t>();
    params.is_causal = call.is_causal, params.query_offset = call.query_offset;
    if (call.dropout_p > 0) {
      params.stream_keys = reinterpret_cast<const uint64_t*>(head_keys.const_data_ptr<int64_t>());
      params.dropout_p = call.dropout_p;
      params.keep_scale = call.dropout_p < 1 ? static_cast<float>(1 / (1 - call.dropout_p)) : 0;
    }
  }
};

// Calls body(type, products) with the kernels' type and, of fp32, with how products are formed.
template <typename Body>
void with_square_type(at::ScalarType dtype, kernels::cuda::Tf32 products, const Body& body) {
  if (dtype == at::kBFloat16)
    body(kernels::Bf16{});
  else
    body(float{}, products);
}

template <typename Check>
SquareForward square_forward_by_kernels(const SquareCall& call, kernels::cuda::Tf32 products,
                                        kernels::cuda::Stream stream, const Check& check) {
  const SquareKernelCall in(call, kernels::cuda::kForwardPasses);
  const at::Tensor output =
      at::empty({call.query.size(0), call.query.size(1), call.query.size(2), in.dim}, call.query.options());
  SquareForward result{output.narrow(3, 0, call.value.size(3)),
                       at::empty(output.sizes().slice(0, 3), output.options().dtype(at::kFloat))};
  with_square_type(call.query.scalar_type(), products, [&]<typename T>(T, auto... how) {
    kernels::cuda::SquareForwardParams<T> params;
    in.set(params, call);
    params.output = static_cast<T*>(output.mutable_data_ptr());
    params.lse = result.lse.template mutable_data_ptr<float>();
    check("square_forward", kernels::cuda::launch_square_forward(params, how..., stream));
  });
  result.output = result.output.contiguous();
  return result;
}

template <typename Check>
SquareBackward square_backward_by_kernels(const SquareCall& call, const SquareForward& forward,
                                          const at::Tensor& grad_output, const SquareCredit& credit,
                                          kernels::cuda::Tf32 products, kernels::cuda::Stream stream,
                                          const Check& check) {
  const SquareKernelCall in(call, kernels::cuda::kBackwardPasses);
  const at::Tensor output = square_rows(forward.output, in.dim).contiguous(),
                   grad = square_rows(grad_output, in.dim), lse = forward.lse.contiguous();
  const auto floats = lse.options();
  const bool has_learner = credit.rule != kernels::CreditRule::kNone;
  const graph::TransposedSquares by_keys =
      graph::transposed_by_kernels(call.squares, /*with_places=*/has_learner, stream, check);
  const auto like = [&](const at::Tensor& x) {
    return at::empty({x.size(0), x.size(1), x.size(2), in.dim}, x.options());
  };
  const at::Tensor query = like(in.query), key = like(in.key), value = like(in.value);
  const at::Tensor row_terms = at::empty({call.squares.rows(), 32}, floats);
  SquareBackward result;
  if (has_learner) result.by_keys = by_keys;
  at::Tensor probe_begin, probe_count, probe_cols;
  with_square_type(call.query.scalar_type(), products, [&]<typename T>(T, auto... how) {
    kernels::cuda::SquareBackwardParams<T> params;
    in.set(params, call);
    params.grad_output = square_view<T>(grad);
    params.output = static_cast<const T*>(output.const_data_ptr());
    params.lse = lse.template const_data_ptr<float>();
    params.row_terms = row_terms.template mutable_data_ptr<float>();
    params.grad_query = static_cast<T*>(query.mutable_data_ptr());
    params.grad_key = static_cast<T*>(key.mutable_data_ptr());
    params.grad_value = static_cast<T*>(value.mutable_data_ptr());
    params.squares_by_keys = graph::square_list(by_keys.begin, by_keys.count, by_keys.rows);
    params.rule = credit.rule;
    if (credit.rule != kernels::CreditRule::kNone) {
      result.credit = at::empty({in.cols.size(0)}, floats);
      params.credit = result.credit.template mutable_data_ptr<float>();
    }
    if (credit.probes) {
      probe_begin = credit.probes->begin.contiguous(), probe_count = credit.probes->count.contiguous();
      probe_cols = credit.probes->cols.contiguous();
      params.probes = graph::square_list(probe_begin, probe_count, probe_cols);
      result.probe_credit = at::empty({probe_cols.size(0)}, floats);
      params.probe_credit = result.probe_credit.template mutable_data_ptr<float>();
    }
    check("square_backward", kernels::cuda::launch_square_backward(params, how..., stream));
  });
  const auto narrowed = [](const at::Tensor& x, int64_t width) { return x.narrow(3, 0, width).contiguous(); };
  result.query = narrowed(query, call.query.size(3));
  result.key = narrowed(key, call.key.size(3));
  result.value = narrowed(value, call.value.size(3));
  return result;
}

}  // namespace edgewise::ops
