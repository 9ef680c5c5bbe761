// y = x W^T + b on CUDA. The products are torch's, with the bias added inside; the gradient of the bias, a
// sum over all tokens, is a kernel of our own, and that of the weight leaves its product in fp32.
#include <ATen/autocast_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "ops/layers/cuda_rows.h"
#include "ops/layers/row_tensors.h"

namespace edgewise::ops {
namespace {

using kernels::Bf16;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
namespace cuda = kernels::cuda;

// What the products read: bf16 under autocast, else fp32.
std::optional<at::ScalarType> product_type(const at::Tensor& x) {
  if (!at::autocast::is_autocast_enabled(at::kCUDA))
    return x.scalar_type() == at::kFloat ? std::optional(at::kFloat) : std::nullopt;
  const at::ScalarType type = at::autocast::get_autocast_dtype(at::kCUDA);
  const bool known = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  return type == at::kBFloat16 && known ? std::optional(type) : std::nullopt;
}

at::Tensor column_sum(const at::Tensor& x) {  // [rows, columns] -> fp32 [columns]
  const auto wide = x.options().dtype(at::kFloat);
  const at::Tensor parts = at::empty({cuda::kColumnParts, x.size(1)}, wide),
                   sum = at::empty({x.size(1)}, wide);
  const auto launch = [&]<typename T>(const T* from) {
    cuda::ColumnSumParams<T> params;
    params.rows = x.size(0), params.columns = x.size(1), params.x = from;
    params.parts = parts.mutable_data_ptr<float>(), params.sum = sum.mutable_data_ptr<float>();
    graph::check_launch("column_sum", cuda::launch_column_sum(params, graph::current_stream()));
  };
  x.scalar_type() == at::kBFloat16 ? launch(const_data<Bf16>(x)) : launch(const_data<float>(x));
  return sum;
}

struct Linear : torch::autograd::Function<Linear> {
  // x [rows, in]
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, at::ScalarType type) {
    const at::Tensor rows = x.to(type), products = weight.to(type);
    context->save_for_backward({rows, products});
    context->saved_data["x_type"] = x.scalar_type();
    return at::addmm(bias.to(type), rows, products.t());
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    check_first_derivative("linear");
    const auto saved = context->get_saved_variables();
    const at::Tensor &rows = saved[0], &products = saved[1];
    const c10::cuda::CUDAGuard device(rows.device());
    const at::Tensor y_grad = whole_rows(grads[0]);
    tensor_list result(4);
    if (context->needs_input_grad(0))
      result[0] = at::mm(y_grad, products).to(context->saved_data["x_type"].toScalarType());
    if (context->needs_input_grad(1))
      result[1] =
          rows.scalar_type() == at::kFloat ? at::mm(y_grad.t(), rows) : at::mm(y_grad.t(), rows, at::kFloat);
    if (context->needs_input_grad(2)) result[2] = column_sum(y_grad);
    return result;
  }
};

}  // namespace

bool cuda_takes_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return graph::is_hopper(x.device()) && x.dim() >= 2 && x.numel() > 0 && product_type(x) && bias.defined() &&
         weight.scalar_type() == at::kFloat && bias.scalar_type() == at::kFloat &&
         weight.device() == x.device() && bias.device() == x.device() && weight.size(0) > 0 &&
         weight.size(0) % 8 == 0;
}

at::Tensor cuda_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  // Shapes change outside: what a custom function returns as a view may not be changed in place.
  return Linear::apply(x.reshape({-1, x.size(-1)}), weight, bias, *product_type(x)).view(shape);
}

}  // namespace edgewise::ops
