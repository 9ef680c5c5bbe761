// Layer norm and residual sums on CUDA: autograd around the kernels over rows.
#include "ops/cuda_rows.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "graph/cuda_launch.h"
#include "kernels/cuda/row_params.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using kernels::Bf16;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
namespace cuda = kernels::cuda;

bool is_whole_row_tensor(const at::Tensor& x) {
  return x.is_contiguous() && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

template <typename T>
T* data(const at::Tensor& x) {
  return reinterpret_cast<T*>(x.mutable_data_ptr());
}
template <typename T>
const T* const_data(const at::Tensor& x) {
  return reinterpret_cast<const T*>(x.const_data_ptr());
}

// The kernels give first derivatives only; with torch's operations one gets the second.
void check_first_derivative(const char* what, const at::Tensor& grad) {
  TORCH_CHECK_NOT_IMPLEMENTED(!(at::GradMode::is_enabled() && grad.requires_grad()), what,
                              ": expected one backward pass on CUDA; got a request for second derivatives, "
                              "which the kernel does not have. Compute them on a CPU.");
}

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, double eps, bool narrow) {
    const c10::cuda::CUDAGuard device(x.device());
    const int64_t dim = x.size(-1), rows = x.numel() / dim;
    const at::Tensor y = at::empty(x.sizes(), x.options().dtype(narrow ? at::kBFloat16 : at::kFloat)),
                     mean = at::empty({rows}, x.options()), rstd = at::empty({rows}, x.options());
    const auto launch = [&]<typename Out>(Out* out) {
      cuda::LayerNormParams<Out> params;
      params.rows = rows, params.dim = dim, params.eps = static_cast<float>(eps);
      params.x = x.const_data_ptr<float>(), params.weight = weight.const_data_ptr<float>();
      params.bias = bias.const_data_ptr<float>(), params.y = out;
      params.mean = mean.mutable_data_ptr<float>(), params.rstd = rstd.mutable_data_ptr<float>();
      check_launch("layer_norm", cuda::launch_layer_norm(params, current_stream()));
    };
    narrow ? launch(data<Bf16>(y)) : launch(data<float>(y));
    context->save_for_backward({x, weight, mean, rstd});
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    check_first_derivative("layer_norm", grads[0]);
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const c10::cuda::CUDAGuard device(x.device());
    at::Tensor y_grad = grads[0].contiguous();
    if (!is_whole_row_tensor(y_grad)) y_grad = y_grad.clone(at::MemoryFormat::Contiguous);
    const int64_t dim = x.size(-1);
    const at::Tensor x_grad = at::empty_like(x), weight_grad = at::empty_like(weight),
                     bias_grad = at::empty_like(weight),
                     parts = at::empty({cuda::kLayerNormParts, 2, dim}, x.options());
    if (x.numel() == 0) return {x_grad, weight_grad.zero_(), bias_grad.zero_(), {}, {}};
    const auto launch = [&]<typename Grad>(const Grad* grad) {
      cuda::LayerNormGradParams<Grad> params;
      params.rows = x.numel() / dim, params.dim = dim;
      params.x = x.const_data_ptr<float>(), params.weight = weight.const_data_ptr<float>();
      params.mean = saved[2].const_data_ptr<float>(), params.rstd = saved[3].const_data_ptr<float>();
      params.y_grad = grad, params.x_grad = x_grad.mutable_data_ptr<float>();
      params.parts = parts.mutable_data_ptr<float>();
      params.weight_grad = weight_grad.mutable_data_ptr<float>();
      params.bias_grad = bias_grad.mutable_data_ptr<float>();
      check_launch("layer_norm_grad", cuda::launch_layer_norm_grad(params, current_stream()));
    };
    y_grad.scalar_type() == at::kBFloat16 ? launch(const_data<Bf16>(y_grad))
                                          : launch(const_data<float>(y_grad));
    return {x_grad, weight_grad, bias_grad, {}, {}};
  }
};

// Where the generator stood.
struct Numbers : torch::CustomClassHolder {
  cuda::DropoutStream stream;
};

struct DroppedAdd : torch::autograd::Function<DroppedAdd> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& update,
                            int64_t limit, const c10::intrusive_ptr<Numbers>& numbers) {
    const c10::cuda::CUDAGuard device(x.device());
    const at::Tensor y = at::empty_like(x);
    const auto launch = [&]<typename Update>(const Update* from) {
      cuda::DroppedAddParams<Update> params;
      params.elements = x.numel(), params.x = x.const_data_ptr<float>(), params.update = from;
      params.y = y.mutable_data_ptr<float>(), params.limit = static_cast<uint32_t>(limit);
      params.stream = numbers->stream;
      check_launch("dropped_add", cuda::launch_dropped_add(params, current_stream()));
    };
    update.scalar_type() == at::kBFloat16 ? launch(const_data<Bf16>(update))
                                          : launch(const_data<float>(update));
    context->saved_data["limit"] = limit;
    context->saved_data["numbers"] = c10::IValue::make_capsule(numbers);
    context->saved_data["narrow"] = update.scalar_type() == at::kBFloat16;
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    check_first_derivative("add_dropped", grads[0]);
    at::Tensor y_grad = grads[0].contiguous();
    if (!is_whole_row_tensor(y_grad)) y_grad = y_grad.clone(at::MemoryFormat::Contiguous);
    const c10::cuda::CUDAGuard device(y_grad.device());
    const bool narrow = context->saved_data["narrow"].toBool();
    const auto numbers =
        c10::static_intrusive_pointer_cast<Numbers>(context->saved_data["numbers"].toCapsule());
    const at::Tensor update_grad =
        at::empty(y_grad.sizes(), y_grad.options().dtype(narrow ? at::kBFloat16 : at::kFloat));
    const auto launch = [&]<typename Update>(Update* to) {
      cuda::DroppedGradParams<Update> params;
      params.elements = y_grad.numel(), params.y_grad = y_grad.const_data_ptr<float>();
      params.update_grad = to, params.limit = static_cast<uint32_t>(context->saved_data["limit"].toInt());
      params.stream = numbers->stream;
      check_launch("dropped_grad", cuda::launch_dropped_grad(params, current_stream()));
    };
    narrow ? launch(data<Bf16>(update_grad)) : launch(data<float>(update_grad));
    return {y_grad, update_grad, {}, {}};
  }
};

}  // namespace

bool cuda_takes_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.device() == x.device() && tensor.scalar_type() == at::kFloat &&
           is_whole_row_tensor(tensor);
  };
  return x.is_cuda() && x.dim() > 0 && fits(x) && fits(weight) && fits(bias) &&
         cuda::layer_norm_takes(x.size(-1)) && weight.numel() == x.size(-1) && bias.numel() == x.size(-1);
}

at::Tensor cuda_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                           at::ScalarType output) {
  return LayerNorm::apply(x, weight, bias, eps, output == at::kBFloat16);
}

bool cuda_takes_add(const at::Tensor& x, const at::Tensor& update) {
  return x.is_cuda() && update.device() == x.device() && x.sizes() == update.sizes() &&
         x.scalar_type() == at::kFloat &&
         (update.scalar_type() == at::kFloat || update.scalar_type() == at::kBFloat16) &&
         is_whole_row_tensor(x) && is_whole_row_tensor(update);
}

at::Tensor cuda_add_dropped(const at::Tensor& x, const at::Tensor& update, double p) {
  TORCH_CHECK_VALUE(p >= 0 && p < 1, "add_dropped: expected a probability in [0, 1); got ", p);
  const auto limit = std::min<int64_t>(std::llround(p * 65536), 65535);
  auto numbers = c10::make_intrusive<Numbers>();
  if (limit > 0) {
    // A number of the generator belongs to this call alone, as if torch had drawn here.
    at::Generator generator = at::globalContext().defaultGenerator(x.device());
    const std::lock_guard lock(generator.mutex());
    const at::PhiloxCudaState state =
        at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(4);
    cuda::DropoutStream& stream = numbers->stream;
    if (state.captured_) {
      stream.seed_at = state.seed_.ptr, stream.offset_at = state.offset_.ptr;
      stream.offset = state.offset_intragraph_;
    } else {
      stream.seed = state.seed_.val, stream.offset = state.offset_.val;
    }
  }
  return DroppedAdd::apply(x, update, limit, numbers);
}

}  // namespace edgewise::ops
