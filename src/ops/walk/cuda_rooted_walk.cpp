// The rooted walk of SacEdges on CUDA: tensors to raw pointers, and the parts of the backward pass that are
// products of matrices.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <edgewise/ops/functional.h>

#include "ops/walk/cuda_walk_parts.h"

namespace edgewise::ops {
namespace {

using namespace cuda_walks;

struct RootedCall : torch::CustomClassHolder {
  CudaWalkRules rules;
  at::Tensor before;  // open_before()
  at::Tensor limits;
  CudaWalkActions actions;
  at::Tensor levels, states;
};

cuda::RootedParams params_of(const Inputs& in, const RootedCall& call) {
  const CudaWalkRules& rules = call.rules;
  const CudaWalkActions& out = call.actions;
  cuda::RootedParams p;
  p.batch = small(in.batch());
  p.groups = small(in.groups());
  p.queries = small(in.queries());
  p.keys = small(in.keys());
  p.steps = small(rules.steps);
  p.query_nodes = data_of(in.query_nodes);
  p.key_nodes = data_of(in.key_nodes);
  p.lstm = in.lstm();
  p.distance = data_of(in.distance);
  p.span = span_of(rules, call.before);
  p.limit = p.steps;
  if (call.limits.defined()) p.limits = call.limits.const_data_ptr<int64_t>();
  p.duplicates = rules.duplicates;
  p.choice = rules.choice;
  p.stream = stream_of(rules.random);
  p.sorted = out.sorted.mutable_data_ptr<int32_t>();
  if (out.destination.defined()) {
    p.order = out.order.mutable_data_ptr<int64_t>();
    p.destination = out.destination.mutable_data_ptr<int64_t>();
    p.taken = out.taken.mutable_data_ptr<bool>();
    p.chosen = out.chosen.mutable_data_ptr<bool>();
  }
  if (out.log_prob.defined()) {
    p.log_prob = out.log_prob.mutable_data_ptr<float>();
    p.entropy = out.entropy.mutable_data_ptr<float>();
    p.levels = call.levels.mutable_data_ptr<float>();
    p.states = call.states.mutable_data_ptr<float>();
  }
  return p;
}

void run_rooted(const Inputs& in, RootedCall& call) {
  const c10::cuda::CUDAGuard guard(in.query_nodes.device());
  const std::vector<int64_t> sizes = {in.batch(), in.groups(), in.queries(), call.rules.steps};
  const auto real = in.query_nodes.options();
  call.before = open_before(call.rules.key_mask);
  if (call.rules.limits.defined()) call.limits = call.rules.limits.contiguous();
  CudaWalkActions& out = call.actions;
  out.sorted = at::empty(sizes, real.dtype(at::kInt));
  if (call.rules.with_actions || call.rules.learns) {
    out.order = at::empty(sizes, real.dtype(at::kLong));
    out.destination = at::empty(sizes, real.dtype(at::kLong));
    out.taken = at::empty(sizes, real.dtype(at::kBool));
    out.chosen = at::empty(sizes, real.dtype(at::kBool));
  }
  if (call.rules.learns) {
    out.log_prob = at::empty(sizes, real);
    out.entropy = at::empty(sizes, real);
    call.levels = at::empty({sizes[0], sizes[1], sizes[2], sizes[3], 2}, real);
    call.states = at::empty({sizes[0], sizes[1], sizes[2], sizes[3], kWidth}, real);
  }
  check_launch("rooted_walk", cuda::launch_rooted_walk(params_of(in, call), current_stream()));
}

struct PredictionGrads {
  at::Tensor states, nodes;  // [B, G, L, T, P], [B, G, S, P]
  at::Tensor distance;       // undefined where there is none
};

PredictionGrads prediction_grads(const Inputs& in, const RootedCall& call, const at::Tensor& grad_log_prob,
                                 const at::Tensor& grad_entropy) {
  const cuda::RootedParams walk = params_of(in, call);
  PredictionGrads result{at::empty_like(call.states), at::empty_like(in.key_nodes), {}};
  std::optional<WholeNumbers> distance;
  cuda::PredictionGradParams p;
  if (walk.distance) {
    distance.emplace(in.distance.sizes(), largest_slope(grad_log_prob, grad_entropy));
    p.grad_distance = distance->sum();
  }
  p.batch = walk.batch;
  p.groups = walk.groups;
  p.queries = walk.queries;
  p.predictions = walk.queries * walk.steps;
  p.nodes = walk.keys;
  p.run = walk.steps;
  p.states = walk.states;
  p.node_values = walk.key_nodes;
  p.distance = walk.distance;
  p.chosen = walk.destination;
  p.acts = walk.chosen;
  p.levels = walk.levels;
  p.grad_log_prob = data_of(grad_log_prob);
  p.grad_entropy = data_of(grad_entropy);
  p.span = walk.span;
  p.duplicates = walk.duplicates;
  p.grad_states = result.states.mutable_data_ptr<float>();
  p.grad_nodes = result.nodes.mutable_data_ptr<float>();
  check_launch("prediction_grads", cuda::launch_prediction_grads(p, current_stream()));
  if (distance) result.distance = distance->values();
  return result;
}

struct RootedFunction : torch::autograd::Function<RootedFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query_nodes, const at::Tensor& key_nodes,
                                                const at::Tensor& weight_ih, const at::Tensor& weight_hh,
                                                const at::Tensor& bias, const at::Tensor& distance,
                                                const c10::intrusive_ptr<RootedCall>& call) {
    const Inputs in{plain(query_nodes), plain(key_nodes), plain(weight_ih),
                    plain(weight_hh),   plain(bias),      plain(distance)};
    run_rooted(in, *call);
    context->save_for_backward({in.query_nodes, in.key_nodes, in.weight_ih, in.weight_hh, in.bias,
                                in.distance, call->actions.log_prob, call->actions.entropy, call->states});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    const at::Tensor log_prob = call->actions.log_prob, entropy = call->actions.entropy,
                     states = call->states;
    // The outputs hold this node: the call must not hold the outputs.
    call->actions.log_prob = call->actions.entropy = call->states = at::Tensor();
    return {log_prob, entropy, states};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<RootedCall>(context->saved_data["call"].toCapsule());
    const Inputs in{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]};
    const c10::cuda::CUDAGuard guard(in.query_nodes.device());
    RootedCall again = *call;
    again.actions.log_prob = saved[6];
    again.actions.entropy = saved[7];
    again.states = saved[8];
    const at::Tensor grad_log_prob = grads[0].contiguous(), grad_entropy = grads[1].contiguous();
    const PredictionGrads predictions = prediction_grads(in, again, grad_log_prob, grad_entropy);
    // The input of a step: the query, then the keys it chose.
    const at::Tensor &destination = call->actions.destination, &acts = call->actions.chosen;
    const int64_t steps = call->rules.steps;
    const at::Tensor earlier = destination.narrow(3, 0, steps - 1);
    const at::Tensor inputs = at::cat({in.query_nodes.unsqueeze(3), rows_of(in.key_nodes, earlier)}, 3);
    const LstmGrads lstm = lstm_grads(in, inputs, again.states, acts, predictions.states + grads[2]);
    const at::Tensor index = earlier.masked_fill(acts.narrow(3, 1, steps - 1).logical_not(), -1).flatten(2);
    const at::Tensor key_grad =
        predictions.nodes + scattered(index, lstm.inputs.narrow(3, 1, steps - 1).flatten(2, 3), in.keys());
    return {lstm.inputs.select(3, 0), key_grad, lstm.weight_ih, lstm.weight_hh, lstm.bias,
            predictions.distance,     {}};
  }
};

}  // namespace

std::string cuda_walk_refusal(const at::Tensor& bias, const EdgeShape& shape, int64_t steps) {
  if (std::string refusal = common_refusal(bias, shape); !refusal.empty()) return refusal;
  const char* refusal = cuda::rooted_walk_refusal(shape.keys, steps);
  return refusal ? refusal : "";
}

CudaWalkActions cuda_rooted_walk(const WalkTensors& tensors, const CudaWalkRules& rules) {
  auto call = c10::make_intrusive<RootedCall>();
  call->rules = rules;
  const Inputs in = padded(tensors);
  if (!rules.learns || rules.steps == 0) {
    const at::NoGradGuard guard;
    run_rooted(plain(in), *call);
    return call->actions;
  }
  const auto outputs = RootedFunction::apply(in.query_nodes, in.key_nodes, in.weight_ih, in.weight_hh,
                                             in.bias, in.distance, call);
  CudaWalkActions result = call->actions;
  result.log_prob = outputs[0];
  result.entropy = outputs[1];
  result.states = outputs[2].narrow(4, 0, tensors.query_nodes.size(3));  // without the kernels' padding
  return result;
}

}  // namespace edgewise::ops
