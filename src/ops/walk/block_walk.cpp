#include "ops/walk/block_walk.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>

#include <edgewise/ops/functional.h>

#include "kernels/cpu/walk/block_walk_kernels.h"

namespace edgewise::ops {
namespace {

struct Call : WalkCall {
  int64_t block = 0;
  at::Tensor block_start;
  at::Tensor levels;
};

// What the kernels differentiate with respect to, widths padded to kernels::kWalkLanes.
struct Inputs {
  at::Tensor query_gates;     // [B, G, L, 4P]
  at::Tensor key_gates;       // [B, G, S, 4P]
  at::Tensor key_nodes;       // [B, G, S, P]
  at::Tensor means;           // [B, G, N, P]
  at::Tensor weight_hh;       // [G, P, 4P]
  at::Tensor distance;        // [G, L + S - 1]
  at::Tensor block_distance;  // [G, D]
};

// Enough to keep threads busy, few enough that their sums stay small; never the number of threads.
int64_t chunks_of(int64_t units, int64_t queries) {
  return std::clamp<int64_t>(16 / std::max<int64_t>(units, 1), 1,
                             std::clamp<int64_t>(kernels::cpu::walk_blocks(queries), 1, 8));
}

at::Tensor padded_last(const at::Tensor& values, int64_t size) {
  const int64_t missing = size - values.size(-1);
  return missing == 0 ? values : at::constant_pad_nd(values, {0, missing});
}
at::Tensor padded_rows(const at::Tensor& values, int64_t size) {
  const int64_t missing = size - values.size(-2);
  return missing == 0 ? values : at::constant_pad_nd(values, {0, 0, 0, missing});
}
// The four gates in the last dimension, each padded: [.., 4P] -> [.., 4P'].
at::Tensor padded_gates(const at::Tensor& gates, int64_t width) {
  const int64_t padded = kernels::padded_lanes(width);
  if (padded == width) return gates;
  return padded_last(gates.unflatten(-1, {4, width}), padded).flatten(-2);
}

// The layouts that only the kernels read.
struct Transposed {
  at::Tensor keys;    // [B, G, N, P, M']
  at::Tensor means;   // [B, G, P, N']
  at::Tensor weight;  // [G, 4P, P]
};
template <typename T>
Transposed transposed(const Inputs& in, int64_t block) {
  const int64_t units = in.key_nodes.size(0) * in.key_nodes.size(1), keys = in.key_nodes.size(2),
                width = in.key_nodes.size(3), blocks = in.means.size(2),
                padded = kernels::padded_lanes(block);
  const at::Tensor transposed_keys = at::empty({units, blocks, width, padded}, in.key_nodes.options());
  const T* from = in.key_nodes.const_data_ptr<T>();
  T* to = transposed_keys.mutable_data_ptr<T>();
  at::parallel_for(0, units * blocks, 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t first = n % blocks * block, size = std::min(block, keys - first);
      const T* nodes = from + (n / blocks * keys + first) * width;
      for (int64_t p = 0; p < width; ++p) {
        T* row = to + (n * width + p) * padded;
        for (int64_t k = 0; k < size; ++k) row[k] = nodes[k * width + p];
        std::fill(row + size, row + padded, T{0});
      }
    }
  });
  return {transposed_keys, padded_last(in.means.transpose(2, 3), kernels::padded_lanes(blocks)).contiguous(),
          in.weight_hh.transpose(1, 2).contiguous()};
}

template <typename T>
kernels::BlockWalkParams<T> params_of(const Inputs& in, const Transposed& layouts, const Call& call,
                                      const at::Tensor& log_prob, const at::Tensor& entropy) {
  kernels::BlockWalkParams<T> p;
  call.fill(p, in.query_gates, in.key_nodes);
  p.block = call.block;
  p.blocks = in.means.size(2);
  p.query_gates = in.query_gates.const_data_ptr<T>();
  p.key_gates = in.key_gates.const_data_ptr<T>();
  p.key_nodes = in.key_nodes.const_data_ptr<T>();
  p.transposed_keys = layouts.keys.const_data_ptr<T>();
  p.means = in.means.const_data_ptr<T>();
  p.transposed_means = layouts.means.const_data_ptr<T>();
  p.weight_hh = in.weight_hh.const_data_ptr<T>();
  p.transposed_weight = layouts.weight.const_data_ptr<T>();
  if (call.has_distance) {
    p.distance = in.distance.const_data_ptr<T>();
    p.block_distance = in.block_distance.const_data_ptr<T>();
    p.block_distances = in.block_distance.size(1);
  }
  p.block_start = call.block_start.const_data_ptr<int64_t>();
  if (call.rules.learns) {
    p.log_prob = log_prob.mutable_data_ptr<T>();
    p.entropy = entropy.mutable_data_ptr<T>();
    p.levels = call.levels.mutable_data_ptr<T>();
  }
  return p;
}

struct WalkFunction : torch::autograd::Function<WalkFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& query_gates, const at::Tensor& key_gates,
                                                const at::Tensor& key_nodes, const at::Tensor& means,
                                                const at::Tensor& weight_hh, const at::Tensor& distance,
                                                const at::Tensor& block_distance,
                                                const c10::intrusive_ptr<Call>& call) {
    const auto plain = [](const at::Tensor& t) { return t.detach().contiguous(); };
    const Inputs in{plain(query_gates), plain(key_gates), plain(key_nodes),     plain(means),
                    plain(weight_hh),   plain(distance),  plain(block_distance)};
    const std::vector<int64_t> sizes = {query_gates.size(0), query_gates.size(1), query_gates.size(2),
                                        call->rules.steps};
    const auto real = in.key_nodes.options();
    const at::Tensor log_prob = at::zeros(sizes, real), entropy = at::zeros(sizes, real);
    if (call->rules.learns) call->levels = at::empty({sizes[0], sizes[1], sizes[2], sizes[3], 4}, real);
    call->make_actions(sizes, real);
    AT_DISPATCH_FLOATING_TYPES(in.key_nodes.scalar_type(), "block_walk", [&] {
      const Transposed layouts = transposed<scalar_t>(in, call->block);
      const auto params = params_of<scalar_t>(in, layouts, *call, log_prob, entropy);
      const auto kernels = kernels::cpu::active_block_walk_kernels<scalar_t>();
      const int64_t units = params.batch * params.groups * kernels::cpu::walk_blocks(params.queries);
      // Threads take the next few units as they finish, fewer towards the end: a core that is held up holds
      // up nothing else. Each call sets its rows up once.
      const int64_t threads = at::get_num_threads();
      std::atomic<int64_t> next{0};
      at::parallel_for(0, std::min(threads, units), 1, [&](int64_t, int64_t) {
        for (int64_t begin = next; begin < units;) {
          const int64_t taken = std::clamp<int64_t>((units - begin) / (4 * threads), 4, 32);
          if (!next.compare_exchange_weak(begin, begin + taken)) continue;
          kernels.forward(params, begin, std::min(begin + taken, units));
          begin = next;
        }
      });
    });
    context->save_for_backward({in.query_gates, in.key_gates, in.key_nodes, in.means, in.weight_hh,
                                in.distance, in.block_distance, log_prob, entropy});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return {log_prob, entropy};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const auto saved = context->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    const Inputs in{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6]};
    const int64_t batch = in.query_gates.size(0), groups = in.query_gates.size(1),
                  queries = in.query_gates.size(2), keys = in.key_nodes.size(2), width = in.key_nodes.size(3),
                  blocks = in.means.size(2);
    const int64_t chunks = chunks_of(batch * groups, queries);
    const at::Tensor grad_log_prob = grads[0].contiguous(), grad_entropy = grads[1].contiguous();
    const auto sums = [&](at::IntArrayRef sizes) {  // one a chunk
      std::vector<int64_t> all = {batch, groups, chunks};
      all.insert(all.end(), sizes.begin(), sizes.end());
      return at::zeros(all, in.key_nodes.options());
    };
    const at::Tensor query_grad = at::zeros_like(in.query_gates), gate_grad = sums({keys, 4 * width}),
                     key_grad = sums({keys, width}), mean_grad = sums({blocks, width}),
                     weight_grad = sums({width, 4 * width});
    at::Tensor distance_grad, block_grad;
    if (call->has_distance) {
      distance_grad = sums({queries + keys - 1});
      block_grad = sums({in.block_distance.size(1)});
    }
    AT_DISPATCH_FLOATING_TYPES(in.key_nodes.scalar_type(), "block_walk_backward", [&] {
      const Transposed layouts = transposed<scalar_t>(in, call->block);
      kernels::BlockWalkGradParams<scalar_t> params;
      params.walk = params_of<scalar_t>(in, layouts, *call, saved[7], saved[8]);
      params.chunks = chunks;
      params.grad_log_prob = grad_log_prob.const_data_ptr<scalar_t>();
      params.grad_entropy = grad_entropy.const_data_ptr<scalar_t>();
      params.grad_query_gates = query_grad.mutable_data_ptr<scalar_t>();
      params.grad_key_gates = gate_grad.mutable_data_ptr<scalar_t>();
      params.grad_key_nodes = key_grad.mutable_data_ptr<scalar_t>();
      params.grad_means = mean_grad.mutable_data_ptr<scalar_t>();
      params.grad_weight_hh = weight_grad.mutable_data_ptr<scalar_t>();
      if (call->has_distance) {
        params.grad_distance = distance_grad.mutable_data_ptr<scalar_t>();
        params.grad_block_distance = block_grad.mutable_data_ptr<scalar_t>();
      }
      const auto kernels = kernels::cpu::active_block_walk_kernels<scalar_t>();
      at::parallel_for(0, batch * groups * chunks, 1,
                       [&](int64_t begin, int64_t end) { kernels.backward(params, begin, end); });
    });
    return {query_grad,
            gate_grad.sum(2),
            key_grad.sum(2),
            mean_grad.sum(2),
            weight_grad.sum(0).sum(1),
            call->has_distance ? distance_grad.sum(0).sum(1) : at::Tensor(),
            call->has_distance ? block_grad.sum(0).sum(1) : at::Tensor(),
            {}};
  }
};

// The mean over the keys of a block that the mask allows: [B, G, S, P] -> [B, G, N, P].
at::Tensor block_means(const at::Tensor& nodes, const std::optional<at::Tensor>& mask, int64_t block) {
  const int64_t keys = nodes.size(2), blocks = (keys + block - 1) / block;
  const at::Tensor open = mask ? mask->to(nodes.scalar_type()).view({mask->size(0), 1, keys, 1})
                               : at::ones({1, 1, keys, 1}, nodes.options().requires_grad(false));
  const auto sums = [&](const at::Tensor& values) {  // [.., S, X] -> [.., N, X]
    return padded_rows(values, blocks * block).unflatten(2, {blocks, block}).sum(3);
  };
  return sums(mask ? nodes * open : nodes) / sums(open).clamp_min(1);
}

}  // namespace

RootedWalkActions block_walk(const WalkTensors& tensors, const BlockWalkBlocks& blocks,
                             const WalkRules& rules) {
  TORCH_CHECK_VALUE(tensors.query_nodes.is_cpu(), "block_walk: expected tensors on the CPU; got ",
                    tensors.query_nodes.device());
  TORCH_CHECK_VALUE(blocks.size >= 1, "block_walk: expected blocks of at least 1 key; got ", blocks.size);
  TORCH_CHECK_VALUE(tensors.distance.defined() == blocks.distance.defined(),
                    "block_walk: expected distances of keys and of blocks, or neither; got one of them");
  auto call = c10::make_intrusive<Call>();
  call->rules = rules;
  call->block = blocks.size;
  call->block_start = blocks.start;
  call->has_distance = tensors.distance.defined();
  const int64_t width = tensors.query_nodes.size(3), padded = kernels::padded_lanes(width);
  // What a node gives to the gates when it is the input: once a node instead of once a step.
  const auto gates = [&](const at::Tensor& nodes) {
    if (tensors.bias.size(0) > 1)
      return padded_gates(at::matmul(nodes, tensors.weight_ih) + tensors.bias.unsqueeze(1), width);
    const at::Tensor flat =  // one pass over what is the largest tensor here
        at::addmm(tensors.bias.select(0, 0), nodes.flatten(0, 2), tensors.weight_ih.select(0, 0));
    return padded_gates(flat.view({nodes.size(0), 1, nodes.size(2), 4 * width}), width);
  };
  const at::Tensor query_gates = gates(tensors.query_nodes);
  const at::Tensor key_gates =
      tensors.key_nodes.is_same(tensors.query_nodes) ? query_gates : gates(tensors.key_nodes);
  // Without distances an empty tensor stands for them: autograd wants defined inputs.
  const at::Tensor none = at::empty({0}, tensors.bias.options().requires_grad(false));
  const auto outputs = WalkFunction::apply(
      query_gates, key_gates, padded_last(tensors.key_nodes, padded),
      padded_last(block_means(tensors.key_nodes, rules.key_mask, blocks.size), padded),
      padded_rows(padded_gates(tensors.weight_hh, width), padded),
      call->has_distance ? tensors.distance : none, call->has_distance ? blocks.distance : none, call);
  return {call->destination, call->taken, call->chosen, outputs[0], outputs[1]};
}

}  // namespace edgewise::ops
