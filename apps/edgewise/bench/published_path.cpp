#include "bench/published_path.h"

#include <torch/autograd.h>
#include <torch/nn/functional/normalization.h>
#include <torch/types.h>

#include <cmath>

namespace edgewise::app {
namespace {

// Bernoulli(clamp(p + 0.01)); backward: hardtanh(M dM).
class StraightThrough : public torch::autograd::Function<StraightThrough> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& p) {
    const at::Tensor mask = at::bernoulli((p + 0.01).clamp(0, 1));
    context->save_for_backward({mask});
    return mask;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    return {at::hardtanh(context->get_saved_variables()[0] * grads[0])};
  }
};

}  // namespace

at::Tensor published_attention(const PublishedInputs& in) {
  const auto wide = [](const at::Tensor& x) { return x.to(at::kFloat); };
  const at::Tensor query = wide(in.query), key = wide(in.key);
  const at::Tensor p = wide(in.membership).matmul(wide(in.key_side).transpose(2, 3));
  const at::Tensor mask = StraightThrough::apply(p);
  const at::Tensor scores = query.matmul(key.transpose(2, 3)) / std::sqrt(static_cast<double>(query.size(3)));
  const at::Tensor weights = torch::nn::functional::normalize(
      at::softmax(scores, 3) * mask, torch::nn::functional::NormalizeFuncOptions().p(1).dim(3));
  return weights.matmul(wide(in.value)).to(in.value.scalar_type());
}

}  // namespace edgewise::app
