#include "ops/walk/cuda_walk_parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "kernels/philox.h"

namespace edgewise::ops::cuda_walks {
namespace {

at::Tensor padded_last(const at::Tensor& values) {
  const int64_t missing = kWidth - values.size(-1);
  return missing == 0 ? values : at::constant_pad_nd(values, {0, missing});
}
at::Tensor padded_gates(const at::Tensor& values) {  // [.., 4P]
  return values.size(-1) == 4 * kWidth ? values : padded_last(values.unflatten(-1, {4, -1})).flatten(-2);
}
at::Tensor padded_weights(const at::Tensor& values) {  // [G, P, 4P]
  const int64_t missing = kWidth - values.size(-2);
  const at::Tensor wide = padded_gates(values);
  return missing == 0 ? wide : at::constant_pad_nd(wide, {0, 0, 0, missing});
}

}  // namespace

Inputs padded(const WalkTensors& t) {
  // Without distances an empty tensor stands for them: autograd wants defined inputs.
  const at::Tensor none = at::empty({0}, t.bias.options().requires_grad(false));
  const at::Tensor queries = padded_last(t.query_nodes);
  return {queries,
          t.key_nodes.is_same(t.query_nodes) ? queries : padded_last(t.key_nodes),
          padded_weights(t.weight_ih),
          padded_weights(t.weight_hh),
          padded_gates(t.bias),
          t.distance.defined() ? t.distance : none};
}

Inputs plain(const Inputs& in) {
  return {plain(in.query_nodes), plain(in.key_nodes), plain(in.weight_ih),
          plain(in.weight_hh),   plain(in.bias),      plain(in.distance)};
}

at::Tensor open_before(const std::optional<at::Tensor>& mask) {
  return mask ? at::constant_pad_nd(at::cumsum(*mask, 1, at::kInt), {1, 0}).contiguous() : at::Tensor();
}
cuda::WalkSpan span_of(const CudaWalkRules& rules, const at::Tensor& before) {
  constexpr int64_t kFar = 1 << 28;
  return {small(rules.query_offset), small(std::min(rules.window, kFar)), small(std::min(rules.gap, kFar)),
          rules.is_causal, before.defined() ? before.const_data_ptr<int32_t>() : nullptr};
}
cuda::WalkStream stream_of(const RandomStream& random) {
  return {random.seed, random.step, random.layer, static_cast<uint32_t>(kernels::Purpose::kEdges),
          random.first_item};
}

WholeNumbers::WholeNumbers(at::IntArrayRef sizes, const at::Tensor& most)
    : sums_(at::zeros(sizes, most.options().dtype(at::kLong))),
      scale_(0x1.0p36 / most.detach().to(at::kFloat).clamp_min(1e-20)) {}
at::Tensor WholeNumbers::values() const {
  return (sums_.to(at::kDouble) / scale_.to(at::kDouble)).to(at::kFloat);
}

at::Tensor largest_slope(const at::Tensor& grad_log_prob, const at::Tensor& grad_entropy) {
  return grad_log_prob.abs().max() + 32 * grad_entropy.abs().max();
}

at::Tensor rows_of(const at::Tensor& nodes, const at::Tensor& index) {
  const int64_t units = nodes.size(0) * nodes.size(1), count = nodes.size(2);
  const at::Tensor first = at::arange(units, index.options()) * count;
  std::vector<int64_t> sizes = index.sizes().vec(), broadcast(sizes.size(), 1);
  broadcast[0] = sizes[0];
  broadcast[1] = sizes[1];
  sizes.push_back(nodes.size(3));
  return nodes.reshape({units * count, nodes.size(3)})
      .index_select(0, (index + first.view(broadcast)).flatten())
      .view(sizes);
}

at::Tensor scattered(const at::Tensor& index, const at::Tensor& values, int64_t targets) {
  const at::Tensor places = index.contiguous(), rows = values.contiguous();
  const int64_t batch = index.size(0), groups = index.size(1);
  if (rows.numel() == 0) return at::zeros({batch, groups, targets, kWidth}, values.options());
  const WholeNumbers sums({batch, groups, targets, kWidth}, rows.abs().max());
  cuda::RowScatterParams params;
  params.units = batch * groups;
  params.rows = index.size(2);
  params.targets = targets;
  params.index = places.const_data_ptr<int64_t>();
  params.values = rows.const_data_ptr<float>();
  params.sums = sums.sum();
  check_launch("row_scatter", cuda::launch_row_scatter(params, current_stream()));
  return sums.values();
}

LstmGrads lstm_grads(const Inputs& in, const at::Tensor& inputs, const at::Tensor& states,
                     const at::Tensor& acts, const at::Tensor& grad_states) {
  const int64_t rows = states.size(2), steps = states.size(3);
  const std::vector<int64_t> flat = {in.batch(), in.groups(), rows * steps, -1};
  const at::Tensor before =
      at::cat({at::zeros_like(states.narrow(3, 0, 1)), states.narrow(3, 0, steps - 1)}, 3).view(flat);
  const at::Tensor x = inputs.reshape(flat);
  const at::Tensor gates =  // [B, G, R * T, 4P], and then their gradients
      (at::matmul(x, in.weight_ih) + at::matmul(before, in.weight_hh) + in.bias.unsqueeze(1)).contiguous();
  const at::Tensor cells = at::empty_like(states), given = grad_states.contiguous(),
                   chosen = acts.contiguous();
  cuda::LstmGradParams params;
  params.batch = small(in.batch());
  params.groups = small(in.groups());
  params.rows = small(rows);
  params.steps = small(steps);
  params.weight_hh = data_of(in.weight_hh);
  params.acts = chosen.const_data_ptr<bool>();
  params.grad_states = given.const_data_ptr<float>();
  params.gates = gates.mutable_data_ptr<float>();
  params.cells = cells.mutable_data_ptr<float>();
  check_launch("lstm_grads", cuda::launch_lstm_grads(params, current_stream()));
  return {at::matmul(gates, in.weight_ih.transpose(1, 2)).view(states.sizes()),
          at::matmul(x.transpose(2, 3), gates).sum(0), at::matmul(before.transpose(2, 3), gates).sum(0),
          gates.sum(2).sum(0)};
}

std::string common_refusal(const at::Tensor& bias, const EdgeShape& shape) {
  if (!bias.is_cuda()) return "the tensors are not on a CUDA device";
  if (!graph::is_hopper(bias.device())) return "the kernels are built for Hopper (compute capability 9.0)";
  if (bias.scalar_type() != at::kFloat) return "the kernels take float32";
  if (bias.size(1) > 4 * kWidth) return "node_dim above 32";
  if (shape.batch * bias.size(0) > 65535) return "more than 65,535 items x groups";
  if (shape.queries > 1 << 20 || shape.keys > 1 << 20) return "more than 1,048,576 tokens";
  return "";
}

}  // namespace edgewise::ops::cuda_walks
