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

constexpr EnumNames<EffectRule, 3> kRules{"effect rule",
                                          {{{"logit", EffectRule::kLogit},
                                            {"leave_one_out", EffectRule::kLeaveOneOut},
                                            {"suffix", EffectRule::kSuffix}}}};

using functional::Backend;
using ops::AttentionBackward;
using ops::AttentionForward;
using ops::AttentionInputs;
using ops::CreditRequest;

struct Call : torch::CustomClassHolder {
  AttentionInputs inputs;
  EffectRule rule = EffectRule::kLogit;
  at::Tensor order;
  Backend backend = Backend::kAuto;
  AttentionForward forward;  // without its output, which autograd holds
};

// g . (o - o before the edge), rows laid out by the order of their walk: [rows, longest walk + 1].
at::Tensor suffix_effects(const AttentionInputs& in, const at::Tensor& order, const at::Tensor& lse,
                          const at::Tensor& grad) {
  const EdgeSet& edges = in.edges;
  if (edges.edge_count() == 0) return at::zeros({0}, lse.options());
  const at::Tensor rows = edges.edge_rows(), places = order + 1;
  const int64_t width = places.max().item<int64_t>() + 1;
  const at::ScalarType dtype = in.accumulator();
  const at::Tensor weights =  // shares of the whole row; only their ratios matter
      (ops::edge_dot(edges, in.query, in.key).to(dtype) * in.scale - lse.reshape(-1).index_select(0, rows))
          .exp();
  const at::Tensor u = ops::edge_dot(edges, grad, in.value).to(dtype);
  const at::Tensor slots = rows * width + places;
  const auto running = [&](const at::Tensor& values) {  // sum of the row's edges at earlier places: [E]
    const at::Tensor laid = at::zeros({edges.shape().rows() * width}, values.options())
                                .index_add(0, slots, values)
                                .view({-1, width});
    return (laid.cumsum(1) - laid).view(-1).index_select(0, slots);
  };
  const at::Tensor total = running(weights);
  const at::Tensor before =
      at::where(total > 0, running(weights * u) / total.clamp_min(std::numeric_limits<float>::min()),
                at::zeros_like(total));
  const at::Tensor whole =
      at::zeros({edges.shape().rows()}, u.options()).index_add(0, rows, weights * u).index_select(0, rows);
  return whole - before;
}

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
    if (call->rule == EffectRule::kLogit) request.rule = kernels::CreditRule::kLogit;
    if (call->rule == EffectRule::kLeaveOneOut) request.rule = kernels::CreditRule::kLeaveOneOut;
    AttentionForward computed = call->forward;
    computed.output = saved[3];
    const AttentionBackward result =
        ops::run_backward(in, computed, grads[0].contiguous(), request, call->backend);
    const at::Tensor effects = call->rule == EffectRule::kSuffix
                                   ? suffix_effects(in, call->order, call->forward.lse, grads[0].contiguous())
                                   : result.credit;
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    return {result.query, result.key, result.value, effects.to(dtype), {}};
  }
};

}  // namespace

EffectRule parse_effect_rule(std::string_view name) {
  return kRules.parse(name);
}
std::string_view to_string(EffectRule rule) {
  return kRules.name(rule);
}

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
  if (effect.rule == EffectRule::kSuffix) {
    TORCH_CHECK_VALUE(effect.order.defined() && effect.order.sizes() == effect.values.sizes(),
                      "edge_attention: expected the order of every edge for the rule suffix; got ",
                      effect.order.defined() ? c10::str(effect.order.sizes()) : "none");
    TORCH_CHECK_VALUE(options.dropout_p == 0,
                      "edge_attention: expected no attention dropout with the rule suffix; got ",
                      options.dropout_p, ". Set it to 0 or use leave_one_out");
  }
  auto call = c10::make_intrusive<Call>();
  call->inputs = ops::attention_inputs(query.detach(), key.detach(), value.detach(), edges, options.scale);
  call->inputs.dropout_p = options.dropout_p;
  if (options.dropout_p > 0)
    call->inputs.head_keys = ops::stream_keys(options.random, kernels::Purpose::kDropout, edges.shape());
  call->backend = options.backend;
  // On a GPU only the plain versions give numbers per edge.
  if (!query.is_cpu() && call->backend != Backend::kDense) call->backend = Backend::kReference;
  call->rule = effect.rule;
  call->order = effect.order;
  return EffectFunction::apply(query, key, value, effect.values, call);
}

}  // namespace functional
}  // namespace edgewise
