// Attention whose backward pass gives each edge its effect on the loss (edgewise/ops/edge_effect.h).
#include <edgewise/ops/edge_effect.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "ops/attention/attention_impl.h"
#include "ops/enum_names.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

using functional::Backend;
using ops::AttentionBackward;
using ops::AttentionForward;
using ops::AttentionInputs;
using ops::CreditRequest;

struct Call : torch::CustomClassHolder {
  AttentionInputs inputs;
  EffectRule rule = EffectRule::kLogit;
  Backend backend = Backend::kAuto;
  AttentionForward forward;  // without its output, which autograd holds
};

struct EffectFunction : torch::autograd::Function<EffectFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value, const at::Tensor& values,
                            const c10::intrusive_ptr<Call>& call) {
    const AttentionForward result = ops::run_forward(call->inputs, call->backend);
    call->forward = result;
    call->forward.output = at::Tensor();
    call->inputs.query = call->inputs.key = call->inputs.value = at::Tensor();  // autograd holds them
    context->save_for_backward({query, key, value, result.output});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["dtype"] = static_cast<int64_t>(values.scalar_type());
    return result.output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const auto saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    AttentionInputs in = call->inputs;
    in.query = saved[0];
    in.key = saved[1];
    in.value = saved[2];
    CreditRequest request;
    request.rule =
        call->rule == EffectRule::kLogit ? kernels::CreditRule::kLogit : kernels::CreditRule::kLeaveOneOut;
    AttentionForward computed = call->forward;
    computed.output = saved[3];
    const AttentionBackward result =
        ops::run_backward(in, computed, grads[0].contiguous(), request, call->backend);
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    return {result.query, result.key, result.value, result.credit.to(dtype), {}};
  }
};

}  // namespace

namespace functional {

at::Tensor edge_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const EdgeSet& edges, const EdgeEffect& effect,
                          const EdgeAttentionOptions& options) {
  check_attention(query, key, value, edges, options);
  TORCH_CHECK_VALUE(!options.is_causal,
                    "edge_attention: with a learner, ask it for causal edges instead of is_causal");
  TORCH_CHECK_VALUE(effect.values.dim() == 1 && effect.values.size(0) == edges.edge_count(),
                    "edge_attention: expected one effect value per edge, [", edges.edge_count(), "]; got ",
                    effect.values.sizes());
  auto call = c10::make_intrusive<Call>();
  call->inputs = ops::attention_inputs(query.detach(), key.detach(), value.detach(), edges, options.scale);
  call->inputs.dropout_p = options.dropout_p;
  if (options.dropout_p > 0)
    call->inputs.head_keys = ops::stream_keys(options.random, kernels::Purpose::kDropout, edges.shape());
  call->backend = options.backend;
  // On a GPU only the plain versions give numbers per edge.
  if (!query.is_cpu() && call->backend != Backend::kDense) call->backend = Backend::kReference;
  call->rule = effect.rule;
  return EffectFunction::apply(query, key, value, effect.values, call);
}

}  // namespace functional
}  // namespace edgewise
