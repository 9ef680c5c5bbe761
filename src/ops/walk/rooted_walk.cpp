#include "ops/walk/rooted_walk.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include <edgewise/ops/functional.h>

#include "kernels/cpu/walk/walk.h"

namespace edgewise::ops {
namespace {

struct Call : WalkCall {
  at::Tensor normaliser;
};

// Enough to keep threads busy, few enough that their sums stay small; never the number of threads.
constexpr int64_t kMostChunks = 8;

template <typename T>
kernels::RootedWalkParams<T> params_of(const WalkTensors& in, const Call& call, const at::Tensor& log_prob,
                                       const at::Tensor& entropy) {
  kernels::RootedWalkParams<T> p;
  call.fill_nodes<T>(p, in, log_prob, entropy);
  p.normaliser = call.normaliser.mutable_data_ptr<T>();
  return p;
}

struct WalkFunction : torch::autograd::Function<WalkFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query_nodes, const at::Tensor& key_nodes,
                                                const at::Tensor& weight_ih, const at::Tensor& weight_hh,
                                                const at::Tensor& bias, const at::Tensor& distance,
                                                const c10::intrusive_ptr<Call>& call) {
    const WalkTensors in = plain({query_nodes, key_nodes, weight_ih, weight_hh, bias, distance});
    const std::vector<int64_t> sizes = {query_nodes.size(0), query_nodes.size(1), query_nodes.size(2),
                                        call->rules.steps};
    const auto real = in.query_nodes.options();
    const at::Tensor log_prob = at::zeros(sizes, real), entropy = at::zeros(sizes, real);
    const at::Tensor states =
        call->rules.with_states
            ? at::zeros({sizes[0], sizes[1], sizes[2], sizes[3], query_nodes.size(3)}, real)
            : at::empty({0}, real);
    call->normaliser = at::zeros(sizes, real);
    call->make_actions(sizes, real);
    AT_DISPATCH_FLOATING_TYPES(in.query_nodes.scalar_type(), "rooted_walk", [&] {
      auto params = params_of<scalar_t>(in, *call, log_prob, entropy);
      if (call->rules.with_states) params.states = states.mutable_data_ptr<scalar_t>();
      const at::Tensor keys = transposed_nodes(in.key_nodes);
      const auto kernels = kernels::cpu::active_walk_kernels<scalar_t>();
      const int64_t units = params.batch * params.groups * kernels::cpu::walk_blocks(params.queries);
      at::parallel_for(0, units, 1, [&](int64_t begin, int64_t end) {
        kernels.forward(params, keys.const_data_ptr<scalar_t>(), begin, end);
      });
    });
    context->save_for_backward(
        {in.query_nodes, in.key_nodes, in.weight_ih, in.weight_hh, in.bias, in.distance, log_prob, entropy});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return {log_prob, entropy, states};
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
    const int64_t chunks = std::min(kMostChunks, std::max<int64_t>(kernels::cpu::walk_blocks(queries), 1));
    const auto real = in.query_nodes.options();
    const at::Tensor grad_log_prob = grads[0].contiguous(), grad_entropy = grads[1].contiguous(),
                     grad_states = grads[2].contiguous();
    const at::Tensor query_grad = at::zeros_like(in.query_nodes),
                     key_grad = at::zeros({batch, groups, chunks, width, kernels::padded_keys(keys)}, real),
                     ih_grad = at::zeros({batch, groups, chunks, width, 4 * width}, real),
                     hh_grad = at::zeros({batch, groups, chunks, width, 4 * width}, real),
                     bias_grad = at::zeros({batch, groups, chunks, 4 * width}, real);
    at::Tensor distance_grad;
    if (call->has_distance) distance_grad = at::zeros({batch, groups, chunks, queries + keys - 1}, real);
    AT_DISPATCH_FLOATING_TYPES(in.query_nodes.scalar_type(), "rooted_walk_backward", [&] {
      kernels::RootedWalkGradParams<scalar_t> params;
      params.walk = params_of<scalar_t>(in, *call, saved[6], saved[7]);
      params.chunks = chunks;
      params.grad_log_prob = grad_log_prob.const_data_ptr<scalar_t>();
      params.grad_entropy = grad_entropy.const_data_ptr<scalar_t>();
      if (call->rules.with_states) params.grad_states = grad_states.const_data_ptr<scalar_t>();
      params.grad_query_nodes = query_grad.mutable_data_ptr<scalar_t>();
      params.grad_key_nodes = key_grad.mutable_data_ptr<scalar_t>();
      params.grad_weight_ih = ih_grad.mutable_data_ptr<scalar_t>();
      params.grad_weight_hh = hh_grad.mutable_data_ptr<scalar_t>();
      params.grad_bias = bias_grad.mutable_data_ptr<scalar_t>();
      if (call->has_distance) params.grad_distance = distance_grad.mutable_data_ptr<scalar_t>();
      const at::Tensor transposed_keys = transposed_nodes(in.key_nodes);
      const auto kernels = kernels::cpu::active_walk_kernels<scalar_t>();
      at::parallel_for(0, batch * groups * chunks, 1, [&](int64_t begin, int64_t end) {
        kernels.backward(params, transposed_keys.const_data_ptr<scalar_t>(), begin, end);
      });
    });
    const at::Tensor key_sum = key_grad.sum(2).narrow(3, 0, keys).transpose(2, 3).contiguous();
    return {query_grad,
            key_sum,
            ih_grad.sum(0).sum(1),
            hh_grad.sum(0).sum(1),
            bias_grad.sum(0).sum(1),
            call->has_distance ? distance_grad.sum(0).sum(1) : at::Tensor(),
            {}};
  }
};

}  // namespace

RootedWalkActions rooted_walk(const WalkTensors& tensors, const WalkRules& rules) {
  TORCH_CHECK_VALUE(tensors.query_nodes.is_cpu(), "rooted_walk: expected tensors on the CPU; got ",
                    tensors.query_nodes.device());
  auto call = c10::make_intrusive<Call>();
  call->rules = rules;
  call->has_distance = tensors.distance.defined();
  const auto outputs = WalkFunction::apply(tensors.query_nodes, tensors.key_nodes, tensors.weight_ih,
                                           tensors.weight_hh, tensors.bias, distance_or_empty(tensors), call);
  return {call->destination, call->taken, call->chosen,
          outputs[0],        outputs[1],  rules.with_states ? outputs[2] : at::Tensor()};
}

}  // namespace edgewise::ops
