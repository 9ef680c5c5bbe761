// The rooted walks of SacEdges on CUDA: tensors to raw pointers, and the parts of the backward pass that are
// products of matrices.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
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
  at::Tensor means;   // [B, G, N, P]
  at::Tensor limits;
  CudaWalkActions actions;
  at::Tensor levels, states;

  bool in_blocks() const { return rules.block > 0; }
  int64_t block() const { return in_blocks() ? rules.block : cuda::kWalkTile; }
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
  p.block = small(call.block());
  p.blocks = (p.keys + p.block - 1) / p.block;
  p.query_nodes = data_of(in.query_nodes);
  p.key_nodes = data_of(in.key_nodes);
  p.means = data_of(call.means);
  p.lstm = in.lstm();
  p.distance = data_of(in.distance);
  p.block_distance = data_of(in.block_distance);
  if (p.block_distance) p.block_distances = small(in.block_distance.size(1));
  p.block_farthest = small(rules.farthest);
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

bool packed_takes(int64_t keys, int64_t block) {
  return keys > 0 && block <= cuda::kPackedBlock && keys <= block * cuda::kPackedBlocks;
}
void run_packed(cuda::PackedWalkParams& p, const at::TensorOptions& on) {
  const at::Tensor workspace = at::empty({cuda::packed_walk_bytes(p)}, on.dtype(at::kByte));
  p.workspace = workspace.mutable_data_ptr();
  check_launch("packed_walk", cuda::launch_packed_walk(p, current_stream()));
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
    call.levels = at::empty({sizes[0], sizes[1], sizes[2], sizes[3], 4}, real);
    call.states = at::empty({sizes[0], sizes[1], sizes[2], sizes[3], kWidth}, real);
  }
  const bool packed = call.in_blocks() && packed_takes(in.keys(), call.block());
  if (call.in_blocks() && (!packed || call.rules.learns)) {
    const int64_t blocks = (in.keys() + call.block() - 1) / call.block();
    call.means = at::empty({in.batch(), in.groups(), blocks, kWidth}, real);
  }
  if (packed) {
    cuda::PackedWalkParams p;
    p.walk = params_of(in, call);
    p.terms = call.rules.rounded ? 1 : 2;
    p.distance.values = p.walk.distance;
    if (p.walk.distance) p.distance.count = small(in.distance.size(1));
    p.block_distance.values = p.walk.block_distance;
    p.block_distance.count = p.walk.block_distances;
    run_packed(p, real);
    return;
  }
  if (call.in_blocks()) {
    const int64_t blocks = call.means.size(2);
    cuda::BlockMeanParams means;
    means.batch = small(in.batch());
    means.groups = small(in.groups());
    means.keys = small(in.keys());
    means.block = small(call.block());
    means.blocks = small(blocks);
    means.key_nodes = data_of(in.key_nodes);
    if (call.before.defined()) means.open_before = call.before.const_data_ptr<int32_t>();
    means.means = call.means.mutable_data_ptr<float>();
    check_launch("block_means", cuda::launch_block_means(means, current_stream()));
  }
  if (call.in_blocks())
    check_launch("block_walk", cuda::launch_block_walk(params_of(in, call), current_stream()));
  else
    check_launch("rooted_walk", cuda::launch_rooted_walk(params_of(in, call), current_stream()));
}

struct PredictionGrads {
  at::Tensor states, nodes;             // [B, G, L, T, P], [B, G, S, P]
  at::Tensor distance, block_distance;  // undefined where there is none
};

PredictionGrads prediction_grads(const Inputs& in, const RootedCall& call, const at::Tensor& grad_log_prob,
                                 const at::Tensor& grad_entropy) {
  const cuda::RootedParams walk = params_of(in, call);
  PredictionGrads result{at::empty_like(call.states), at::empty_like(in.key_nodes), {}, {}};
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
  p.level_stride = 4;
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

PredictionGrads block_grads(const Inputs& in, const RootedCall& call, const at::Tensor& grad_log_prob,
                            const at::Tensor& grad_entropy) {
  const auto real = in.key_nodes.options();
  const int64_t units = in.units(), predictions = in.queries() * call.rules.steps, block = call.block(),
                blocks = call.means.size(2), padded = (block + 31) / 32 * 32;
  PredictionGrads result{at::empty_like(call.states), {}, {}, {}};
  const at::Tensor of_blocks = at::empty({units, predictions, blocks}, real),
                   of_keys = at::empty({units, predictions, padded}, real);
  at::Tensor partial_means, partial_grads;
  if (call.rules.is_causal || call.rules.window >= 0 || call.rules.no_self) {
    partial_means = at::empty({units, in.queries(), cuda::kMostPartialBlocks, kWidth}, real);
    partial_grads = at::empty_like(partial_means);
  }
  cuda::BlockGradParams p;
  p.walk = params_of(in, call);
  std::optional<WholeNumbers> distance, block_distance;
  if (p.walk.distance) {
    const at::Tensor most = largest_slope(grad_log_prob, grad_entropy);
    distance.emplace(in.distance.sizes(), most);
    block_distance.emplace(in.block_distance.sizes(), most);
    p.grad_distance = distance->sum();
    p.grad_block_distance = block_distance->sum();
  }
  p.grad_log_prob = data_of(grad_log_prob);
  p.grad_entropy = data_of(grad_entropy);
  if (partial_means.defined()) {
    p.partial_means = partial_means.mutable_data_ptr<float>();
    p.partial_grads = partial_grads.mutable_data_ptr<float>();
  }
  p.grad_states = result.states.mutable_data_ptr<float>();
  p.block_grads = of_blocks.mutable_data_ptr<float>();
  p.key_grads = of_keys.mutable_data_ptr<float>();
  check_launch("block_grads", cuda::launch_block_grads(p, current_stream()));

  // Means that rows share: each key of a block has its part.
  const at::Tensor of_means =
      at::matmul(of_blocks.transpose(1, 2), call.states.view({units, predictions, kWidth}));  // [U, N, P]
  const at::Tensor edges = (at::arange(blocks + 1, real.dtype(at::kLong)) * block).clamp_max(in.keys());
  const at::Tensor counts =
      call.before.defined() ? call.before.index_select(1, edges).diff() : edges.diff().unsqueeze(0);
  const at::Tensor shares = of_means.view({in.batch(), in.groups(), blocks, kWidth}) /
                            counts.clamp_min(1).to(at::kFloat).view({-1, 1, blocks, 1});
  result.nodes = shares.repeat_interleave(block, 2).narrow(2, 0, in.keys()).contiguous();
  if (call.rules.key_mask)
    result.nodes.mul_(call.rules.key_mask->to(at::kFloat).view({in.batch(), 1, in.keys(), 1}));

  // Keys of the blocks that were chosen, and partial means.
  const at::Tensor block_of = call.actions.destination.div(block, "floor")
                                  .masked_fill(call.actions.chosen.logical_not(), blocks)
                                  .view({units, predictions});
  const auto [sorted_blocks, order] = at::sort(block_of, /*stable=*/true, 1, false);
  const at::Tensor wanted =
      at::arange(blocks + 1, block_of.options()).expand({units, blocks + 1}).contiguous();
  const at::Tensor offsets = at::searchsorted(sorted_blocks.contiguous(), wanted).contiguous(),
                   by_block = order.contiguous();
  cuda::BlockNodeGradParams n;
  n.walk = p.walk;
  n.sorted = by_block.const_data_ptr<int64_t>();
  n.offsets = offsets.const_data_ptr<int64_t>();
  n.key_grads = p.key_grads;
  n.partial_grads = p.partial_grads;
  n.grad_nodes = result.nodes.mutable_data_ptr<float>();
  check_launch("block_node_grads", cuda::launch_block_node_grads(n, current_stream()));
  if (distance) {
    result.distance = distance->values();
    result.block_distance = block_distance->values();
  }
  return result;
}

struct RootedFunction : torch::autograd::Function<RootedFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query_nodes, const at::Tensor& key_nodes,
                                                const at::Tensor& weight_ih, const at::Tensor& weight_hh,
                                                const at::Tensor& bias, const at::Tensor& distance,
                                                const at::Tensor& block_distance,
                                                const c10::intrusive_ptr<RootedCall>& call) {
    const Inputs in{plain(query_nodes), plain(key_nodes), plain(weight_ih),     plain(weight_hh),
                    plain(bias),        plain(distance),  plain(block_distance)};
    run_rooted(in, *call);
    context->save_for_backward({in.query_nodes, in.key_nodes, in.weight_ih, in.weight_hh, in.bias,
                                in.distance, in.block_distance, call->actions.log_prob,
                                call->actions.entropy});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    const at::Tensor log_prob = call->actions.log_prob, entropy = call->actions.entropy;
    // The outputs hold this node: the call must not hold the outputs.
    call->actions.log_prob = call->actions.entropy = at::Tensor();
    return {log_prob, entropy};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<RootedCall>(context->saved_data["call"].toCapsule());
    const Inputs in{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6]};
    const c10::cuda::CUDAGuard guard(in.query_nodes.device());
    RootedCall again = *call;
    again.actions.log_prob = saved[7];
    again.actions.entropy = saved[8];
    const at::Tensor grad_log_prob = grads[0].contiguous(), grad_entropy = grads[1].contiguous();
    const PredictionGrads predictions = call->in_blocks()
                                            ? block_grads(in, again, grad_log_prob, grad_entropy)
                                            : prediction_grads(in, again, grad_log_prob, grad_entropy);
    // The input of a step: the query, then the keys it chose.
    const at::Tensor &destination = call->actions.destination, &acts = call->actions.chosen;
    const int64_t steps = call->rules.steps;
    const at::Tensor earlier = destination.narrow(3, 0, steps - 1);
    const at::Tensor inputs = at::cat({in.query_nodes.unsqueeze(3), rows_of(in.key_nodes, earlier)}, 3);
    const LstmGrads lstm = lstm_grads(in, inputs, call->states, acts, predictions.states);
    const at::Tensor index = earlier.masked_fill(acts.narrow(3, 1, steps - 1).logical_not(), -1).flatten(2);
    const at::Tensor key_grad =
        predictions.nodes + scattered(index, lstm.inputs.narrow(3, 1, steps - 1).flatten(2, 3), in.keys());
    return {
        lstm.inputs.select(3, 0),   key_grad, lstm.weight_ih, lstm.weight_hh, lstm.bias, predictions.distance,
        predictions.block_distance, {}};
  }
};

}  // namespace

std::string cuda_walk_refusal(const at::Tensor& bias, const EdgeShape& shape, int64_t block, int64_t steps) {
  if (std::string refusal = common_refusal(bias, shape); !refusal.empty()) return refusal;
  const char* refusal = block > 0 ? cuda::block_walk_refusal(shape.keys, block, steps)
                                  : cuda::rooted_walk_refusal(shape.keys, steps);
  return refusal ? refusal : "";
}

CudaWalkActions cuda_rooted_walk(const WalkTensors& tensors, const CudaWalkRules& rules) {
  auto call = c10::make_intrusive<RootedCall>();
  call->rules = rules;
  const Inputs in = padded(tensors, rules.block_distance);
  if (!rules.learns || rules.steps == 0) {
    const at::NoGradGuard guard;
    run_rooted(plain(in), *call);
    return call->actions;
  }
  const auto outputs = RootedFunction::apply(in.query_nodes, in.key_nodes, in.weight_ih, in.weight_hh,
                                             in.bias, in.distance, in.block_distance, call);
  CudaWalkActions result = call->actions;
  result.log_prob = outputs[0];
  result.entropy = outputs[1];
  return result;
}

bool cuda_token_walk_takes(const TokenWalk& walk, int64_t block) {
  const at::Tensor &tokens = walk.tokens, &weight = walk.node_weight;
  const bool plain_types = weight.scalar_type() == at::kFloat && tokens.is_cuda() &&
                           weight.device() == tokens.device() &&
                           (tokens.scalar_type() == at::kFloat || tokens.scalar_type() == at::kBFloat16);
  return plain_types && tokens.numel() > 0 && tokens.size(2) == weight.size(1) && weight.size(1) % 4 == 0 &&
         weight.size(2) == kWidth && packed_takes(tokens.size(1), block);
}

at::Tensor cuda_token_walk(const TokenWalk& given, const CudaWalkRules& rules) {
  const at::NoGradGuard guard;
  const c10::cuda::CUDAGuard device(given.tokens.device());
  // Read 16 bytes at a time: a view may begin anywhere.
  const auto whole = [](const at::Tensor& x) {
    if (!x.defined()) return x;
    const at::Tensor here = x.contiguous();
    return reinterpret_cast<uintptr_t>(here.const_data_ptr()) % 16 == 0 ? here : here.clone();
  };
  const at::Tensor tokens = whole(given.tokens), weight = whole(given.node_weight),
                   bias = whole(given.node_bias), weight_ih = whole(given.weight_ih),
                   weight_hh = whole(given.weight_hh), lstm_bias = whole(given.bias),
                   distance = whole(given.distance), block_distance = whole(given.block_distance);
  cuda::PackedWalkParams p;
  cuda::RootedParams& walk = p.walk;
  walk.batch = small(tokens.size(0));
  walk.groups = small(weight.size(0));
  walk.queries = walk.keys = small(tokens.size(1));
  walk.steps = walk.limit = small(rules.steps);
  walk.block = small(rules.block);
  walk.blocks = (walk.keys + walk.block - 1) / walk.block;
  walk.lstm = {data_of(weight_ih), data_of(weight_hh), data_of(lstm_bias)};
  walk.block_farthest = small(rules.farthest);
  walk.span = span_of(rules, {});
  walk.choice = rules.choice;
  walk.stream = stream_of(rules.random);
  p.terms = rules.rounded ? 1 : 2;
  if (tokens.scalar_type() == at::kFloat)
    p.source.tokens = tokens.const_data_ptr<float>();
  else
    p.source.bf16_tokens = reinterpret_cast<const uint16_t*>(tokens.const_data_ptr<at::BFloat16>());
  p.source.weight = data_of(weight);
  p.source.bias = data_of(bias);
  p.source.embed = small(tokens.size(2));
  const auto fill = [](cuda::DistanceSource& source, const at::Tensor& table, const at::Tensor& buckets) {
    if (!table.defined()) return;
    source.table = data_of(table);
    source.buckets = small(table.size(1));
    source.bucket = buckets.const_data_ptr<int64_t>();
    source.count = small(buckets.size(0));
  };
  fill(p.distance, distance, given.buckets);
  fill(p.block_distance, block_distance, given.block_buckets);
  const auto real = weight.options().requires_grad(false);
  const at::Tensor sorted =
      at::empty({walk.batch, walk.groups, walk.queries, walk.steps}, real.dtype(at::kInt));
  walk.sorted = sorted.mutable_data_ptr<int32_t>();
  run_packed(p, real);
  return sorted;
}

}  // namespace edgewise::ops
