#include "ops/rooted_walk.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include <edgewise/ops/functional.h>

#include "kernels/cpu/walk.h"

namespace edgewise::ops {
namespace {

// Everything but the differentiable inputs.
struct Call : torch::CustomClassHolder {
  RootedWalkRules rules;
  at::Tensor destination, taken, chosen, normaliser;
  bool has_distance = false;
};

// Enough to keep threads busy, few enough that their sums stay small; never the number of threads.
constexpr int64_t kMostChunks = 8;

template <typename T>
kernels::RootedWalkParams<T> params_of(const RootedWalkTensors& in, const Call& call,
                                       const at::Tensor& log_prob, const at::Tensor& entropy) {
  kernels::RootedWalkParams<T> p;
  p.batch = in.query_nodes.size(0);
  p.groups = in.query_nodes.size(1);
  p.queries = in.query_nodes.size(2);
  p.keys = in.key_nodes.size(2);
  p.width = in.query_nodes.size(3);
  p.steps = call.rules.steps;
  p.query_nodes = in.query_nodes.const_data_ptr<T>();
  p.key_nodes = in.key_nodes.const_data_ptr<T>();
  p.weight_ih = in.weight_ih.const_data_ptr<T>();
  p.weight_hh = in.weight_hh.const_data_ptr<T>();
  p.bias = in.bias.const_data_ptr<T>();
  if (call.has_distance) p.distance = in.distance.const_data_ptr<T>();
  p.first = call.rules.first.const_data_ptr<int64_t>();
  p.last = call.rules.last.const_data_ptr<int64_t>();
  p.excluded = call.rules.excluded.const_data_ptr<int64_t>();
  if (call.rules.key_mask) p.key_mask = call.rules.key_mask->const_data_ptr<bool>();
  p.limits = call.rules.limits.const_data_ptr<int64_t>();
  p.duplicates = call.rules.duplicates;
  p.choice = call.rules.choice;
  if (call.rules.stream_keys.defined()) p.stream_keys = call.rules.stream_keys.const_data_ptr<int64_t>();
  p.destination = call.destination.mutable_data_ptr<int64_t>();
  p.taken = call.taken.mutable_data_ptr<bool>();
  p.chosen = call.chosen.mutable_data_ptr<bool>();
  p.log_prob = log_prob.mutable_data_ptr<T>();
  p.entropy = entropy.mutable_data_ptr<T>();
  p.normaliser = call.normaliser.mutable_data_ptr<T>();
  return p;
}

template <typename T>
at::Tensor transposed(const at::Tensor& nodes) {
  const int64_t units = nodes.size(0) * nodes.size(1), keys = nodes.size(2), width = nodes.size(3);
  const at::Tensor out =
      at::empty({units, width, kernels::padded_keys(keys)}, nodes.options().requires_grad(false));
  const T* from = nodes.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  at::parallel_for(0, units, 1, [&](int64_t begin, int64_t end) {
    kernels::cpu::transpose_nodes<T>(from, keys, width, to, begin, end);
  });
  return out;
}

RootedWalkTensors contiguous(const RootedWalkTensors& in) {
  const auto plain = [](const at::Tensor& t) { return t.defined() ? t.detach().contiguous() : t; };
  return {plain(in.query_nodes), plain(in.key_nodes), plain(in.weight_ih),
          plain(in.weight_hh),   plain(in.bias),      plain(in.distance)};
}

struct WalkFunction : torch::autograd::Function<WalkFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query_nodes, const at::Tensor& key_nodes,
                                                const at::Tensor& weight_ih, const at::Tensor& weight_hh,
                                                const at::Tensor& bias, const at::Tensor& distance,
                                                const c10::intrusive_ptr<Call>& call) {
    const RootedWalkTensors in = contiguous({query_nodes, key_nodes, weight_ih, weight_hh, bias, distance});
    const std::vector<int64_t> sizes = {query_nodes.size(0), query_nodes.size(1), query_nodes.size(2),
                                        call->rules.steps};
    const auto real = in.query_nodes.options();
    const at::Tensor log_prob = at::zeros(sizes, real), entropy = at::zeros(sizes, real);
    call->normaliser = at::zeros(sizes, real);
    call->taken = at::zeros(sizes, real.dtype(at::kBool));
    call->chosen = at::zeros(sizes, real.dtype(at::kBool));
    call->destination = at::zeros(sizes, real.dtype(at::kLong));
    AT_DISPATCH_FLOATING_TYPES(in.query_nodes.scalar_type(), "rooted_walk", [&] {
      const auto params = params_of<scalar_t>(in, *call, log_prob, entropy);
      const at::Tensor keys = transposed<scalar_t>(in.key_nodes);
      const auto kernels = kernels::cpu::active_walk_kernels<scalar_t>();
      const int64_t units = params.batch * params.groups * kernels::cpu::walk_blocks(params.queries);
      at::parallel_for(0, units, 1, [&](int64_t begin, int64_t end) {
        kernels.forward(params, keys.const_data_ptr<scalar_t>(), begin, end);
      });
    });
    context->save_for_backward(
        {in.query_nodes, in.key_nodes, in.weight_ih, in.weight_hh, in.bias, in.distance, log_prob, entropy});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return {log_prob, entropy};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const auto saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    const RootedWalkTensors in{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]};
    const int64_t batch = in.query_nodes.size(0), groups = in.query_nodes.size(1),
                  queries = in.query_nodes.size(2), keys = in.key_nodes.size(2),
                  width = in.query_nodes.size(3);
    const int64_t chunks = std::min(kMostChunks, std::max<int64_t>(kernels::cpu::walk_blocks(queries), 1));
    const auto real = in.query_nodes.options();
    const at::Tensor grad_log_prob = grads[0].contiguous(), grad_entropy = grads[1].contiguous();
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
      params.grad_query_nodes = query_grad.mutable_data_ptr<scalar_t>();
      params.grad_key_nodes = key_grad.mutable_data_ptr<scalar_t>();
      params.grad_weight_ih = ih_grad.mutable_data_ptr<scalar_t>();
      params.grad_weight_hh = hh_grad.mutable_data_ptr<scalar_t>();
      params.grad_bias = bias_grad.mutable_data_ptr<scalar_t>();
      if (call->has_distance) params.grad_distance = distance_grad.mutable_data_ptr<scalar_t>();
      const at::Tensor transposed_keys = transposed<scalar_t>(in.key_nodes);
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

RootedWalkActions rooted_walk(const RootedWalkTensors& tensors, const RootedWalkRules& rules) {
  TORCH_CHECK_VALUE(tensors.query_nodes.is_cpu(), "rooted_walk: expected tensors on the CPU; got ",
                    tensors.query_nodes.device());
  auto call = c10::make_intrusive<Call>();
  call->rules = rules;
  call->has_distance = tensors.distance.defined();
  // Without distances an empty tensor stands for them: autograd wants defined inputs.
  const at::Tensor distance = call->has_distance ? tensors.distance : at::empty({0}, tensors.bias.options());
  const auto outputs = WalkFunction::apply(tensors.query_nodes, tensors.key_nodes, tensors.weight_ih,
                                           tensors.weight_hh, tensors.bias, distance, call);
  return {call->destination, call->taken, call->chosen, outputs[0], outputs[1]};
}

}  // namespace edgewise::ops
