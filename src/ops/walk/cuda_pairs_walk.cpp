// The walk of pairs of SacEdges on CUDA: tensors to raw pointers, and the parts of the backward pass that are
// products of matrices.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <edgewise/ops/functional.h>

#include "graph/bool_bytes.h"
#include "ops/walk/cuda_walk_parts.h"

namespace edgewise::ops {
namespace {

using namespace cuda_walks;

struct PairsCall : torch::CustomClassHolder {
  CudaWalkRules rules;
  at::Tensor before, limits, query_mask;
  CudaWalkActions actions;
  at::Tensor levels, states, open;  // [2, B, G, T, 2], [2, B, G, T, P], [2, B, G, T, W]
};

cuda::PairsParams params_of(const Inputs& in, const PairsCall& call) {
  const CudaWalkActions& out = call.actions;
  cuda::PairsParams p;
  p.batch = small(in.batch());
  p.groups = small(in.groups());
  p.queries = small(in.queries());
  p.keys = small(in.keys());
  p.steps = small(call.rules.steps);
  p.query_nodes = data_of(in.query_nodes);
  p.key_nodes = data_of(in.key_nodes);
  p.lstm = in.lstm();
  p.start = data_of(in.start);
  p.distance = data_of(in.distance);
  p.span = span_of(call.rules, call.before);
  p.query_mask = graph::bool_bytes(call.query_mask);
  p.limits = call.limits.const_data_ptr<int64_t>();
  p.duplicates = call.rules.duplicates;
  p.choice = call.rules.choice;
  p.stream = stream_of(call.rules.random);
  p.source = out.source.mutable_data_ptr<int64_t>();
  p.destination = out.destination.mutable_data_ptr<int64_t>();
  p.taken = out.taken.mutable_data_ptr<bool>();
  p.chosen = out.chosen.mutable_data_ptr<bool>();
  if (out.log_prob.defined()) {
    p.log_prob = out.log_prob.mutable_data_ptr<float>();
    p.entropy = out.entropy.mutable_data_ptr<float>();
  }
  if (call.states.defined()) {
    p.levels = call.levels.mutable_data_ptr<float>();
    p.states = call.states.mutable_data_ptr<float>();
    p.open = reinterpret_cast<uint32_t*>(call.open.mutable_data_ptr<int32_t>());
  }
  return p;
}

void run_pairs(const Inputs& in, PairsCall& call) {
  const c10::cuda::CUDAGuard guard(in.query_nodes.device());
  const std::vector<int64_t> sizes = {in.batch(), in.groups(), call.rules.steps};
  const auto real = in.query_nodes.options();
  call.before = open_before(call.rules.key_mask);
  call.limits = call.rules.limits.contiguous();
  if (call.rules.query_mask) call.query_mask = call.rules.query_mask->contiguous();
  CudaWalkActions& out = call.actions;
  out.source = at::empty(sizes, real.dtype(at::kLong));
  out.destination = at::empty(sizes, real.dtype(at::kLong));
  out.taken = at::empty(sizes, real.dtype(at::kBool));
  out.chosen = at::empty(sizes, real.dtype(at::kBool));
  out.log_prob = at::empty(sizes, real);
  out.entropy = at::empty(sizes, real);
  if (call.rules.learns) {
    const int64_t words = (std::max(in.queries(), in.keys()) + 31) / 32;
    call.levels = at::empty({2, sizes[0], sizes[1], sizes[2], 2}, real);
    call.states = at::empty({2, sizes[0], sizes[1], sizes[2], kWidth}, real);
    call.open = at::empty({2, sizes[0], sizes[1], sizes[2], words}, real.dtype(at::kInt));
  }
  const at::Tensor made = at::zeros({in.units(), in.queries(), (in.keys() + 31) / 32}, real.dtype(at::kInt));
  cuda::PairsParams params = params_of(in, call);
  params.made = reinterpret_cast<uint32_t*>(made.mutable_data_ptr<int32_t>());
  check_launch("pairs_walk", cuda::launch_pairs_walk(params, current_stream()));
}

struct PairsFunction : torch::autograd::Function<PairsFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query_nodes, const at::Tensor& key_nodes,
                                                const at::Tensor& weight_ih, const at::Tensor& weight_hh,
                                                const at::Tensor& bias, const at::Tensor& distance,
                                                const at::Tensor& start,
                                                const c10::intrusive_ptr<PairsCall>& call) {
    const Inputs in{plain(query_nodes),
                    plain(key_nodes),
                    plain(weight_ih),
                    plain(weight_hh),
                    plain(bias),
                    plain(distance),
                    {},
                    plain(start)};
    run_pairs(in, *call);
    context->save_for_backward(
        {in.query_nodes, in.key_nodes, in.weight_ih, in.weight_hh, in.bias, in.distance, in.start});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    const at::Tensor log_prob = call->actions.log_prob, entropy = call->actions.entropy;
    call->actions.log_prob = call->actions.entropy = at::Tensor();  // as in RootedFunction
    return {log_prob, entropy};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<PairsCall>(context->saved_data["call"].toCapsule());
    const Inputs in{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], {}, saved[6]};
    const c10::cuda::CUDAGuard guard(in.query_nodes.device());
    const int64_t batch = in.batch(), groups = in.groups(), steps = call->rules.steps;
    const at::Tensor grad_log_prob = grads[0].contiguous(), grad_entropy = grads[1].contiguous();
    const at::Tensor &source = call->actions.source, &destination = call->actions.destination,
                     &acts = call->actions.chosen;
    std::optional<WholeNumbers> distance;
    const at::Tensor grad_states = at::empty_like(call->states);  // [2, B, G, T, P]
    at::Tensor node_grads[2];
    for (int64_t side = 0; side < 2; ++side) {
      const Inputs& all = in;
      const at::Tensor& nodes = side == 0 ? all.query_nodes : all.key_nodes;
      node_grads[side] = at::zeros_like(nodes);
      cuda::PredictionGradParams p;
      p.batch = small(batch);
      p.groups = small(groups);
      p.queries = small(in.queries());
      p.predictions = small(steps);
      p.nodes = small(nodes.size(2));
      p.states = call->states.select(0, side).const_data_ptr<float>();
      p.node_values = nodes.const_data_ptr<float>();
      p.chosen = (side == 0 ? source : destination).const_data_ptr<int64_t>();
      p.acts = acts.const_data_ptr<bool>();
      p.levels = call->levels.select(0, side).const_data_ptr<float>();
      p.grad_log_prob = data_of(grad_log_prob);
      p.grad_entropy = data_of(grad_entropy);
      p.open = reinterpret_cast<const uint32_t*>(call->open.select(0, side).const_data_ptr<int32_t>());
      p.open_words = small(call->open.size(4));
      p.query_of = source.const_data_ptr<int64_t>();
      if (side == 1 && in.distance.numel() > 0) {
        p.distance = data_of(in.distance);
        distance.emplace(in.distance.sizes(), largest_slope(grad_log_prob, grad_entropy));
        p.grad_distance = distance->sum();
      }
      p.grad_states = grad_states.select(0, side).mutable_data_ptr<float>();
      p.grad_nodes = node_grads[side].mutable_data_ptr<float>();
      check_launch("prediction_grads", cuda::launch_prediction_grads(p, current_stream()));
    }
    // One chain a unit: the start, a source, its destination, a source, ...
    const auto chain = [&](const at::Tensor& first,
                           const at::Tensor& second) {  // [B, G, T, ..] -> [B, G, 1, 2T, ..]
      return at::stack({first, second}, 3).flatten(2, 3).unsqueeze(2);
    };
    const at::Tensor earlier = destination.narrow(2, 0, steps - 1);
    const at::Tensor begin = in.start.view({1, groups, 1, kWidth}).expand({batch, groups, 1, kWidth});
    const at::Tensor inputs =
        chain(at::cat({begin, rows_of(in.key_nodes, earlier)}, 2), rows_of(in.query_nodes, source));
    const LstmGrads lstm =
        lstm_grads(in, inputs, chain(call->states.select(0, 0), call->states.select(0, 1)).contiguous(),
                   chain(acts, acts), chain(grad_states.select(0, 0), grad_states.select(0, 1)));
    const at::Tensor by_step = lstm.inputs.view({batch, groups, steps, 2, kWidth});
    const at::Tensor from_start = by_step.select(3, 0), from_source = by_step.select(3, 1);  // [B, G, T, P]
    const at::Tensor query_grad =
        node_grads[0] + scattered(source.masked_fill(acts.logical_not(), -1), from_source, in.queries());
    const at::Tensor key_grad =
        node_grads[1] + scattered(earlier.masked_fill(acts.narrow(2, 1, steps - 1).logical_not(), -1),
                                  from_start.narrow(2, 1, steps - 1), in.keys());
    return {query_grad,
            key_grad,
            lstm.weight_ih,
            lstm.weight_hh,
            lstm.bias,
            distance ? distance->values() : at::Tensor(),
            from_start.select(2, 0).sum(0),
            {}};
  }
};

}  // namespace

std::string cuda_pairs_refusal(const at::Tensor& bias, const EdgeShape& shape) {
  if (std::string refusal = common_refusal(bias, shape); !refusal.empty()) return refusal;
  return cuda::pairs_walk_takes(std::max(shape.queries, shape.keys))
             ? ""
             : "more than 4,096 tokens in a walk of pairs";
}

CudaWalkActions cuda_pairs_walk(const WalkTensors& tensors, const at::Tensor& start,
                                const CudaWalkRules& rules) {
  auto call = c10::make_intrusive<PairsCall>();
  call->rules = rules;
  const Inputs in = padded(tensors, {}, start);
  if (!rules.learns || rules.steps == 0) {
    const at::NoGradGuard guard;
    run_pairs(plain(in), *call);
    return call->actions;
  }
  const auto outputs = PairsFunction::apply(in.query_nodes, in.key_nodes, in.weight_ih, in.weight_hh, in.bias,
                                            in.distance, in.start, call);
  CudaWalkActions result = call->actions;
  result.log_prob = outputs[0];
  result.entropy = outputs[1];
  return result;
}

}  // namespace edgewise::ops
