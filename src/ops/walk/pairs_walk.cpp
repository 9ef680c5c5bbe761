#include "ops/walk/pairs_walk.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <edgewise/ops/functional.h>

#include "graph/bool_bytes.h"
#include "kernels/cpu/walk/walk.h"

namespace edgewise::ops {
namespace {

struct Call : WalkCall {
  at::Tensor source, normaliser, entropies;
};

template <typename T>
kernels::PairsWalkParams<T> params_of(const WalkTensors& in, const at::Tensor& start, const Call& call,
                                      const at::Tensor& log_prob, const at::Tensor& entropy) {
  kernels::PairsWalkParams<T> p;
  call.fill_nodes<T>(p, in, log_prob, entropy);
  p.start = start.const_data_ptr<T>();
  p.query_mask = graph::bool_bytes(call.rules.query_mask);
  p.source = call.source.mutable_data_ptr<int64_t>();
  p.normaliser = call.normaliser.mutable_data_ptr<T>();
  p.entropies = call.entropies.mutable_data_ptr<T>();
  return p;
}

struct WalkFunction : torch::autograd::Function<WalkFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query_nodes, const at::Tensor& key_nodes,
                                                const at::Tensor& weight_ih, const at::Tensor& weight_hh,
                                                const at::Tensor& bias, const at::Tensor& distance,
                                                const at::Tensor& start,
                                                const c10::intrusive_ptr<Call>& call) {
    const WalkTensors in = plain({query_nodes, key_nodes, weight_ih, weight_hh, bias, distance});
    const at::Tensor first_input = start.detach().contiguous();
    const int64_t batch = query_nodes.size(0), groups = query_nodes.size(1), steps = call->rules.steps;
    const auto real = in.query_nodes.options();
    const at::Tensor log_prob = at::zeros({batch, groups, steps}, real), entropy = at::zeros_like(log_prob);
    call->normaliser = at::zeros({batch, groups, steps, 2}, real);
    call->entropies = at::zeros_like(call->normaliser);
    call->make_actions({batch, groups, steps}, real);
    call->source = at::zeros_like(call->destination);
    AT_DISPATCH_FLOATING_TYPES(real.dtype().toScalarType(), "pairs_walk", [&] {
      const auto params = params_of<scalar_t>(in, first_input, *call, log_prob, entropy);
      const at::Tensor queries = transposed_nodes(in.query_nodes), keys = transposed_nodes(in.key_nodes);
      const auto kernels = kernels::cpu::active_pairs_walk_kernels<scalar_t>();
      at::parallel_for(0, batch * groups, 1, [&](int64_t begin, int64_t end) {
        kernels.forward(params, queries.const_data_ptr<scalar_t>(), keys.const_data_ptr<scalar_t>(), begin,
                        end);
      });
    });
    context->save_for_backward({in.query_nodes, in.key_nodes, in.weight_ih, in.weight_hh, in.bias,
                                in.distance, first_input, log_prob, entropy});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return {log_prob, entropy};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const auto saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    const WalkTensors in{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]};
    const int64_t batch = in.query_nodes.size(0), groups = in.query_nodes.size(1),
                  queries = in.query_nodes.size(2), keys = in.key_nodes.size(2),
                  width = in.query_nodes.size(3);
    const auto real = in.query_nodes.options();
    const at::Tensor grad_log_prob = grads[0].contiguous(), grad_entropy = grads[1].contiguous();
    const at::Tensor query_grad = at::zeros({batch, groups, width, kernels::padded_keys(queries)}, real),
                     key_grad = at::zeros({batch, groups, width, kernels::padded_keys(keys)}, real),
                     ih_grad = at::zeros({batch, groups, width, 4 * width}, real),
                     hh_grad = at::zeros_like(ih_grad),
                     bias_grad = at::zeros({batch, groups, 4 * width}, real),
                     start_grad = at::zeros({batch, groups, width}, real);
    at::Tensor distance_grad;
    if (call->has_distance) distance_grad = at::zeros({batch, groups, queries + keys - 1}, real);
    AT_DISPATCH_FLOATING_TYPES(real.dtype().toScalarType(), "pairs_walk_backward", [&] {
      kernels::PairsWalkGradParams<scalar_t> params;
      params.walk = params_of<scalar_t>(in, saved[6], *call, saved[7], saved[8]);
      params.grad_log_prob = grad_log_prob.const_data_ptr<scalar_t>();
      params.grad_entropy = grad_entropy.const_data_ptr<scalar_t>();
      params.grad_query_nodes = query_grad.mutable_data_ptr<scalar_t>();
      params.grad_key_nodes = key_grad.mutable_data_ptr<scalar_t>();
      params.grad_weight_ih = ih_grad.mutable_data_ptr<scalar_t>();
      params.grad_weight_hh = hh_grad.mutable_data_ptr<scalar_t>();
      params.grad_bias = bias_grad.mutable_data_ptr<scalar_t>();
      params.grad_start = start_grad.mutable_data_ptr<scalar_t>();
      if (call->has_distance) params.grad_distance = distance_grad.mutable_data_ptr<scalar_t>();
      const at::Tensor query_side = transposed_nodes(in.query_nodes),
                       key_side = transposed_nodes(in.key_nodes);
      const auto kernels = kernels::cpu::active_pairs_walk_kernels<scalar_t>();
      at::parallel_for(0, batch * groups, 1, [&](int64_t begin, int64_t end) {
        kernels.backward(params, query_side.const_data_ptr<scalar_t>(), key_side.const_data_ptr<scalar_t>(),
                         begin, end);
      });
    });
    return {query_grad.narrow(3, 0, queries).transpose(2, 3),
            key_grad.narrow(3, 0, keys).transpose(2, 3),
            ih_grad.sum(0),
            hh_grad.sum(0),
            bias_grad.sum(0),
            call->has_distance ? distance_grad.sum(0) : at::Tensor(),
            start_grad.sum(0),
            {}};
  }
};

}  // namespace

PairsWalkActions pairs_walk(const WalkTensors& tensors, const at::Tensor& start, const WalkRules& rules) {
  TORCH_CHECK_VALUE(tensors.query_nodes.is_cpu(), "pairs_walk: expected tensors on the CPU; got ",
                    tensors.query_nodes.device());
  auto call = c10::make_intrusive<Call>();
  call->rules = rules;
  call->has_distance = tensors.distance.defined();
  const auto outputs =
      WalkFunction::apply(tensors.query_nodes, tensors.key_nodes, tensors.weight_ih, tensors.weight_hh,
                          tensors.bias, distance_or_empty(tensors), start, call);
  return {call->source, call->destination, call->taken, call->chosen, outputs[0], outputs[1]};
}

}  // namespace edgewise::ops
