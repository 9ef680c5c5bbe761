// Attention over squares on CPU: from tensors to the kernels of kernels/cpu/squares, and their work to
// threads.
//
// Kernels know fp32, fp64 and, where the CPU multiplies it, bf16; other types are widened to fp32 first. Head
// dims are filled up with zeros to a multiple of 16.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>

#include "kernels/cpu/squares/square_kernels.h"
#include "ops/attention/kernel_views.h"
#include "ops/cpu_level_variable.h"
#include "ops/squares/square_attention.h"

namespace edgewise::ops {
namespace {

using kernels::Accumulator;
using kernels::cpu::SquareList;

int64_t filled_up(int64_t width) {
  return graph::groups_of(width) * graph::kSquare;
}

// [B, H, N, W] as kernels take it: rows in one piece, W a multiple of 16, even strides for pairs of bf16.
at::Tensor for_kernels(const at::Tensor& tensor, at::ScalarType dtype) {
  const int64_t width = tensor.size(3);
  at::Tensor result = tensor.to(dtype);
  if (filled_up(width) != width) return at::constant_pad_nd(result, {0, filled_up(width) - width}, 0);
  result = with_contiguous_rows(result);
  const bool is_odd = (result.stride(0) | result.stride(1) | result.stride(2)) % 2 != 0;
  return dtype == at::kBFloat16 && is_odd ? result.contiguous() : result;
}

// Calls body with a value of the type that kernels compute `dtype` in.
template <typename Body>
void with_kernel_type(at::ScalarType dtype, const Body& body) {
  read_cpu_level_variable();
  if (dtype == at::kDouble) return body(double{});
  if (dtype == at::kBFloat16 && kernels::cpu::has_square_kernels<kernels::Bf16>())
    return body(kernels::Bf16{});
  return body(float{});
}
template <typename T>
at::ScalarType kernel_dtype() {
  return c10::CppTypeToScalarType<TorchType<T>>::value;
}
template <typename T>
at::TensorOptions accumulator_options() {
  return at::TensorOptions().dtype(c10::CppTypeToScalarType<Accumulator<T>>::value);
}

// A call whose tensors lie as kernels take them, which the parameters point to.
struct KernelCall {
  at::Tensor query, key, value, begin, count, cols, key_bits, head_keys;

  KernelCall(const SquareCall& call, at::ScalarType dtype)
      : query(for_kernels(call.query, dtype)),
        key(for_kernels(call.key, dtype)),
        value(for_kernels(call.value, dtype)),
        begin(call.squares.begin.contiguous()),
        count(call.squares.count.contiguous()),
        cols(call.squares.cols.contiguous()) {
    if (call.key_bits.defined()) key_bits = call.key_bits.contiguous();
    if (call.dropout_p > 0) head_keys = call.head_keys.cpu().contiguous();
  }

  template <typename T>
  void set(kernels::cpu::SquareParams<T>& params, const SquareCall& call) const {
    params.batch = query.size(0), params.heads = query.size(1), params.key_heads = key.size(1);
    params.queries = query.size(2), params.keys = key.size(2);
    params.head_dim = query.size(3), params.value_dim = value.size(3);
    params.scale = call.scale;
    params.query = head_view<T>(query), params.key = head_view<T>(key), params.value = head_view<T>(value);
    params.squares = {begin.const_data_ptr<int32_t>(), count.const_data_ptr<int32_t>(),
                      cols.const_data_ptr<int32_t>()};
    if (key_bits.defined()) params.key_bits = key_bits.const_data_ptr<int32_t>();
    params.is_causal = call.is_causal, params.query_offset = call.query_offset;
    if (call.dropout_p > 0)
      params.dropout = {call.dropout_p,
                        reinterpret_cast<const uint64_t*>(head_keys.const_data_ptr<int64_t>())};
  }
};

int64_t count_squares(const at::Tensor& count) {
  const int32_t* const counts = count.const_data_ptr<int32_t>();
  int64_t total = 0;
  for (int64_t row = 0; row < count.numel(); ++row) total += counts[row];
  return total;
}

// kernel(params, begin, end) over `rows`, in pieces that go to whichever thread is free. So much work in
// squares that another thread is worth calling, and so many pieces a thread.
template <typename Params>
void for_pieces(kernels::cpu::RangeKernel<Params> kernel, const Params& params, int64_t rows, int64_t squares,
                int64_t pieces_of_thread = 8) {
  constexpr int64_t kWorthAThread = 64;
  const int64_t threads = std::clamp<int64_t>((squares + rows / 4) / kWorthAThread, 1, at::get_num_threads());
  if (threads == 1) return kernel(params, 0, rows);
  const int64_t pieces = std::min(rows, threads * pieces_of_thread);
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t n = next++; n < pieces; n = next++)
      kernel(params, rows * n / pieces, rows * (n + 1) / pieces);
  });
}

// Whether key heads are worked on as a whole, one by one thread: that saves a second look at each square, two
// of seven products, but a thread without a head of its own waits, and sums of a long head are slow to reach.
bool in_whole_heads(int64_t heads, int64_t head_bytes) {
  constexpr double kSaved = 1.45;
  constexpr int64_t kNearBytes = int64_t{8} << 20;
  if (heads == 0 || head_bytes > kNearBytes) return false;
  const int64_t threads = at::get_num_threads(), turns = (heads + threads - 1) / threads;
  return static_cast<double>(turns * threads) <= kSaved * static_cast<double>(heads);
}

// The first `tokens` and `width` of sums that kernels left, in the type of the call.
at::Tensor gradient(const at::Tensor& sums, int64_t tokens, int64_t width, at::ScalarType dtype) {
  return sums.narrow(2, 0, tokens).narrow(3, 0, width).to(dtype).contiguous();
}

}  // namespace

SquareForward cpu_square_forward(const SquareCall& call) {
  SquareForward result;
  with_kernel_type(call.query.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const KernelCall in(call, kernel_dtype<T>());
    kernels::cpu::SquareForwardParams<T> params;
    in.set(params, call);
    at::Tensor output =
        at::empty({params.batch, params.heads, params.queries, params.value_dim}, in.query.options());
    result.lse = at::empty({params.batch, params.heads, params.queries}, accumulator_options<T>());
    params.output = data_of<T>(output);
    params.lse = result.lse.template mutable_data_ptr<Accumulator<T>>();
    for_pieces(kernels::cpu::active_square_kernels<T>().forward, params, call.squares.rows(),
               count_squares(in.count));
    result.output = gradient(output, params.queries, call.value.size(3), call.query.scalar_type());
  });
  return result;
}

SquareBackward cpu_square_backward(const SquareCall& call, const SquareForward& forward,
                                   const at::Tensor& grad_output, const SquareCredit& credit) {
  SquareBackward result;
  with_kernel_type(call.query.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const at::ScalarType dtype = kernel_dtype<T>();
    const auto options = accumulator_options<T>();
    const KernelCall in(call, dtype);
    const at::Tensor grad = for_kernels(grad_output, dtype),
                     output = for_kernels(forward.output, dtype).contiguous(), lse = forward.lse.contiguous();
    kernels::cpu::SquareBackwardParams<T> params;
    in.set(params, call);
    params.grad_output = head_view<T>(grad);
    params.output = const_data_of<T>(output);
    params.lse = lse.template const_data_ptr<Accumulator<T>>();
    const at::Tensor ubar = at::empty(lse.sizes(), options);
    at::Tensor grad_query = at::empty(in.query.sizes(), in.query.options());
    const int64_t padded_keys = call.squares.key_groups() * graph::kSquare;
    const auto sums = [&](int64_t width) {
      return at::empty({params.batch, params.key_heads, padded_keys, width}, options);
    };
    const at::Tensor grad_key = sums(params.head_dim), grad_value = sums(params.value_dim);
    const auto numbers = [](const at::Tensor& tensor) {
      return tensor.template mutable_data_ptr<Accumulator<T>>();
    };
    params.ubar = numbers(ubar), params.grad_query = data_of<T>(grad_query);
    params.grad_key = numbers(grad_key), params.grad_value = numbers(grad_value);
    params.rule = credit.rule;
    if (credit.rule != kernels::CreditRule::kNone) {
      result.credit = at::empty({in.cols.size(0)}, options);
      params.credit = numbers(result.credit);
    }
    at::Tensor probe_begin, probe_count, probe_cols;
    int64_t squares = count_squares(in.count);
    if (credit.probes) {
      probe_begin = credit.probes->begin.contiguous(), probe_count = credit.probes->count.contiguous();
      probe_cols = credit.probes->cols.contiguous();
      params.probes = {probe_begin.const_data_ptr<int32_t>(), probe_count.const_data_ptr<int32_t>(),
                       probe_cols.const_data_ptr<int32_t>()};
      result.probe_credit = at::empty({probe_cols.size(0)}, options);
      params.probe_credit = numbers(result.probe_credit);
      squares += count_squares(probe_count);
    }
    const auto kernels = kernels::cpu::active_square_kernels<T>();
    const int64_t key_heads = params.batch * params.key_heads;
    const int64_t head_bytes =
        padded_keys * (params.head_dim + params.value_dim) * static_cast<int64_t>(sizeof(Accumulator<T>));
    if (in_whole_heads(key_heads, head_bytes)) {
      for_pieces(kernels.whole_heads, params, key_heads, squares, key_heads);
    } else {
      const graph::TransposedSquares by_keys = graph::transposed(call.squares);
      params.squares_by_keys = {by_keys.begin.const_data_ptr<int32_t>(),
                                by_keys.count.const_data_ptr<int32_t>(),
                                by_keys.rows.const_data_ptr<int32_t>()};
      for_pieces(kernels.by_queries, params, call.squares.rows(), squares);
      for_pieces(kernels.by_keys, params, key_heads * call.squares.key_groups(), squares);
    }
    const at::ScalarType given = call.query.scalar_type();
    result.query = gradient(grad_query, params.queries, call.query.size(3), given);
    result.key = gradient(grad_key, params.keys, call.key.size(3), given);
    result.value = gradient(grad_value, params.keys, call.value.size(3), given);
  });
  return result;
}

}  // namespace edgewise::ops
