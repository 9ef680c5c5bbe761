// Attention over squares: what a call must be.
#include "ops/squares/square_attention.h"

#include "graph/checks.h"
#include "ops/squares/square_kernels.h"

namespace edgewise::ops {
namespace {

void check_call(const char* function, const SquareCall& call) {
  const at::Tensor &query = call.query, &key = call.key, &value = call.value;
  for (const auto& [name, tensor] : {std::pair("query", &query), {"key", &key}, {"value", &value}}) {
    TORCH_CHECK_VALUE(tensor->dim() == 4, function, ": expected ", name, " [B, H, N, D]; got ",
                      tensor->sizes());
    TORCH_CHECK_TYPE(tensor->scalar_type() == query.scalar_type(), function, ": expected ", name,
                     " of dtype ", query.scalar_type(), " as query; got ", tensor->scalar_type());
    TORCH_CHECK_VALUE(tensor->device() == query.device(), function, ": expected ", name, " on ",
                      query.device(), " as query; got ", tensor->device());
  }
  const at::ScalarType dtype = query.scalar_type();
  TORCH_CHECK_TYPE(
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf, function,
      ": expected float32, float64, bfloat16 or float16; got ", dtype);
  const graph::Squares& squares = call.squares;
  const EdgeShape found{query.size(0), query.size(1), query.size(2), key.size(2)};
  TORCH_CHECK_VALUE(squares.shape == found, function, ": expected squares of shape ", to_string(found),
                    " to match query and key; got ", to_string(squares.shape));
  TORCH_CHECK_VALUE(key.size(0) == query.size(0) && key.size(3) == query.size(3), function,
                    ": expected key [", query.size(0), ", Hk, S, ", query.size(3), "] to match query ",
                    query.sizes(), "; got ", key.sizes());
  TORCH_CHECK_VALUE(value.sizes().slice(0, 3) == key.sizes().slice(0, 3), function,
                    ": expected value of as many heads and tokens as key ", key.sizes(), "; got ",
                    value.sizes());
  TORCH_CHECK_VALUE(key.size(1) > 0 ? query.size(1) % key.size(1) == 0 : query.size(1) == 0, function,
                    ": expected a number of key heads that divides the ", query.size(1), " query heads; got ",
                    key.size(1));
  // Numbers are looked at where that is for nothing beside attention itself.
  query.is_cpu() ? graph::check_squares(function, squares) : graph::check_square_sizes(function, squares);
  TORCH_CHECK_VALUE(squares.cols.device() == query.device(), function, ": expected squares on ",
                    query.device(), " as query; got ", squares.cols.device());
  if (call.key_bits.defined())
    TORCH_CHECK_VALUE(call.key_bits.sizes() == at::IntArrayRef({found.batch, squares.key_groups()}) &&
                          call.key_bits.scalar_type() == at::kInt && call.key_bits.device() == query.device(),
                      function, ": expected key_bits [", found.batch, ", ", squares.key_groups(),
                      "] of dtype int32 on ", query.device(), "; got ", call.key_bits.scalar_type(),
                      " of shape ", call.key_bits.sizes(), " on ", call.key_bits.device());
  TORCH_CHECK_VALUE(call.dropout_p >= 0 && call.dropout_p <= 1, function,
                    ": expected dropout_p in [0, 1]; got ", call.dropout_p);
  if (call.dropout_p > 0)
    TORCH_CHECK_VALUE(call.head_keys.defined() && call.head_keys.scalar_type() == at::kLong &&
                          call.head_keys.numel() == found.batch * found.heads,
                      function, ": expected head_keys [B*H] = [", found.batch * found.heads,
                      "] of dtype int64 for dropout; got ",
                      call.head_keys.defined()
                          ? c10::str(call.head_keys.scalar_type(), " of shape ", call.head_keys.sizes())
                          : std::string("none"));
}

void check_backward(const SquareCall& call, const SquareForward& forward, const at::Tensor& grad_output,
                    const SquareCredit& credit) {
  constexpr const char* kName = "square_backward";
  check_call(kName, call);
  const std::vector<int64_t> outputs = {call.query.size(0), call.query.size(1), call.query.size(2),
                                        call.value.size(3)};
  for (const auto& [name, tensor] : {std::pair("output", &forward.output), {"grad_output", &grad_output}})
    TORCH_CHECK_VALUE(tensor->sizes() == at::IntArrayRef(outputs) && tensor->device() == call.query.device(),
                      kName, ": expected ", name, " ", at::IntArrayRef(outputs), " on ", call.query.device(),
                      "; got ", tensor->sizes(), " on ", tensor->device());
  TORCH_CHECK_VALUE(forward.lse.sizes() == call.query.sizes().slice(0, 3), kName, ": expected lse ",
                    call.query.sizes().slice(0, 3), "; got ", forward.lse.sizes());
  if (!credit.probes) return;
  graph::check_same_shape(kName, call.squares.shape, credit.probes->shape);
  call.query.is_cpu() ? graph::check_squares(kName, *credit.probes)
                      : graph::check_square_sizes(kName, *credit.probes);
}

}  // namespace

SquareForward square_forward(const SquareCall& call, functional::Backend backend) {
  check_call("square_forward", call);
  return choose_square_kernel(call, backend).forward(call);
}

SquareBackward square_backward(const SquareCall& call, const SquareForward& forward,
                               const at::Tensor& grad_output, const SquareCredit& credit,
                               functional::Backend backend) {
  check_backward(call, forward, grad_output, credit);
  return choose_square_kernel(call, backend).backward(call, forward, grad_output, credit);
}

}  // namespace edgewise::ops
