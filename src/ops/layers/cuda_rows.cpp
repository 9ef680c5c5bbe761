// Layer norm and residual sums on CUDA: autograd around the kernels over rows.
#include "ops/layers/cuda_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "graph/bool_bytes.h"
#include "ops/layers/row_tensors.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using kernels::Bf16;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
namespace cuda = kernels::cuda;

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& mask, double eps,
                            bool narrow) {
    const c10::cuda::CUDAGuard device(x.device());
    const int64_t dim = x.size(-1), rows = x.numel() / dim;
    const at::Tensor y = at::empty(x.sizes(), x.options().dtype(narrow ? at::kBFloat16 : at::kFloat)),
                     mean = at::empty({rows}, x.options()), rstd = at::empty({rows}, x.options());
    const auto launch = [&]<typename Out>(Out* out) {
      cuda::LayerNormParams<Out> params;
      params.rows = rows, params.dim = dim, params.eps = static_cast<float>(eps);
      params.x = x.const_data_ptr<float>(), params.weight = weight.const_data_ptr<float>();
      params.bias = bias.const_data_ptr<float>(), params.y = out;
      params.mask = graph::bool_bytes(mask);
      params.mean = mean.mutable_data_ptr<float>(), params.rstd = rstd.mutable_data_ptr<float>();
      check_launch("layer_norm", cuda::launch_layer_norm(params, current_stream()));
    };
    narrow ? launch(data<Bf16>(y)) : launch(data<float>(y));
    context->save_for_backward({x, weight, mean, rstd, mask.value_or(at::Tensor())});
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    check_first_derivative("layer_norm");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const c10::cuda::CUDAGuard device(x.device());
    const at::Tensor y_grad = whole_rows(grads[0]);
    const int64_t dim = x.size(-1);
    const at::Tensor x_grad = at::empty_like(x), weight_grad = at::empty_like(weight),
                     bias_grad = at::empty_like(weight),
                     parts = at::empty({cuda::kLayerNormParts, 2, dim}, x.options());
    if (x.numel() == 0) return {x_grad, weight_grad.zero_(), bias_grad.zero_(), {}, {}, {}};
    const auto launch = [&]<typename Grad>(const Grad* grad) {
      cuda::LayerNormGradParams<Grad> params;
      params.rows = x.numel() / dim, params.dim = dim;
      params.x = x.const_data_ptr<float>(), params.weight = weight.const_data_ptr<float>();
      params.mean = saved[2].const_data_ptr<float>(), params.rstd = saved[3].const_data_ptr<float>();
      params.mask = graph::bool_bytes(saved[4]);
      params.y_grad = grad, params.x_grad = x_grad.mutable_data_ptr<float>();
      params.parts = parts.mutable_data_ptr<float>();
      params.weight_grad = weight_grad.mutable_data_ptr<float>();
      params.bias_grad = bias_grad.mutable_data_ptr<float>();
      check_launch("layer_norm_grad", cuda::launch_layer_norm_grad(params, current_stream()));
    };
    y_grad.scalar_type() == at::kBFloat16 ? launch(const_data<Bf16>(y_grad))
                                          : launch(const_data<float>(y_grad));
    return {x_grad, weight_grad, bias_grad, {}, {}, {}};
  }
};

struct DroppedAdd : torch::autograd::Function<DroppedAdd> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& update,
                            const c10::intrusive_ptr<Dropped>& dropped) {
    const c10::cuda::CUDAGuard device(x.device());
    const at::Tensor y = at::empty_like(x);
    const auto launch = [&]<typename Update>(const Update* from) {
      cuda::DroppedAddParams<Update> params;
      params.elements = x.numel(), params.x = x.const_data_ptr<float>(), params.update = from;
      params.y = y.mutable_data_ptr<float>(), params.limit = dropped->limit;
      params.stream = dropped->stream;
      check_launch("dropped_add", cuda::launch_dropped_add(params, current_stream()));
    };
    update.scalar_type() == at::kBFloat16 ? launch(const_data<Bf16>(update))
                                          : launch(const_data<float>(update));
    context->saved_data["dropped"] = c10::IValue::make_capsule(dropped);
    context->saved_data["narrow"] = update.scalar_type() == at::kBFloat16;
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    check_first_derivative("add_dropped");
    const at::Tensor y_grad = whole_rows(grads[0]);
    const c10::cuda::CUDAGuard device(y_grad.device());
    const bool narrow = context->saved_data["narrow"].toBool();
    const auto dropped =
        c10::static_intrusive_pointer_cast<Dropped>(context->saved_data["dropped"].toCapsule());
    const at::Tensor update_grad =
        at::empty(y_grad.sizes(), y_grad.options().dtype(narrow ? at::kBFloat16 : at::kFloat));
    narrow ? launch_dropped_grad(y_grad, *dropped, data<Bf16>(update_grad))
           : launch_dropped_grad(y_grad, *dropped, data<float>(update_grad));
    return {y_grad, update_grad, {}};
  }
};

}  // namespace

bool cuda_takes_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.device() == x.device() && tensor.scalar_type() == at::kFloat &&
           is_whole_row_tensor(tensor);
  };
  return graph::is_hopper(x.device()) && x.dim() > 0 && fits(x) && fits(weight) && fits(bias) &&
         cuda::layer_norm_takes(x.size(-1)) && weight.numel() == x.size(-1) && bias.numel() == x.size(-1);
}

at::Tensor cuda_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                           at::ScalarType output, const at::Tensor& mask) {
  const at::IntArrayRef lead = x.sizes().slice(0, x.sizes().size() - 1);
  TORCH_CHECK_VALUE(!mask.defined() || (mask.device() == x.device() && mask.scalar_type() == at::kBool &&
                                        mask.sizes() == lead),
                    "layer_norm: expected a bool mask of ", lead, " on ", x.device(),
                    ", one for each row of x; got ", mask.toString(), " of ", mask.sizes());
  const auto rows = mask.defined() ? std::optional(mask.contiguous()) : std::nullopt;
  return LayerNorm::apply(x, weight, bias, rows, eps, output == at::kBFloat16);
}

bool cuda_takes_add(const at::Tensor& x, const at::Tensor& update) {
  return graph::is_hopper(x.device()) && update.device() == x.device() && x.sizes() == update.sizes() &&
         x.scalar_type() == at::kFloat &&
         (update.scalar_type() == at::kFloat || update.scalar_type() == at::kBFloat16) &&
         is_whole_row_tensor(x) && is_whole_row_tensor(update);
}

at::Tensor cuda_add_dropped(const at::Tensor& x, const at::Tensor& update, double p) {
  return DroppedAdd::apply(x, update, draw_dropped("add_dropped", x.device(), p));
}

}  // namespace edgewise::ops
