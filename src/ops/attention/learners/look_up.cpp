#include "ops/attention/learners/look_up.h"

#include <edgewise/ops/functional.h>

#include <ATen/ops/embedding.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

namespace edgewise::ops {
namespace {

// On CUDA index_put that accumulates sorts the ids first and adds up each run of them in order.
struct LookUp : torch::autograd::Function<LookUp> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& values,
                            const at::Tensor& ids) {
    context->save_for_backward({ids});
    context->saved_data["rows"] = values.size(0);
    return values.index_select(0, ids);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const at::Tensor ids = context->get_saved_variables()[0], &grad = grads[0];
    at::Tensor sums = at::zeros({context->saved_data["rows"].toInt(), grad.size(1)}, grad.options());
    sums.index_put_({ids}, grad, /*accumulate=*/true);
    return {sums, {}};
  }
};

}  // namespace

at::Tensor looked_up(const at::Tensor& values, const at::Tensor& ids) {
  if (!values.is_cuda()) return at::embedding(values, ids);
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.push_back(values.size(1));
  return LookUp::apply(values, ids.flatten()).view(shape);
}

}  // namespace edgewise::ops
