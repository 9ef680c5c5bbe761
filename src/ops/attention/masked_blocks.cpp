// Products of blocks by at::mm, weights by kernels/cpu/attention/masked_rows.h; tasks divided among ATen's
// threads.
//
// Forward, for a block of queries:  P = exp(scale Q K^T - top) at edges, 0 elsewhere;  O = P V / sum of rows.
// Backward:  dS = P (dO V^T - dO . O),  dQ = scale dS K,  dK += scale dS^T Q,  dV += P^T dO.
// A head's blocks are summed in their order by one thread, so that the result does not depend on their
// number.
#include "ops/attention/masked_blocks.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>

#include "kernels/cpu/levels.h"
#include "ops/attention/cpu_choice.h"
#include "ops/attention/kernel_views.h"
#include "ops/cpu_level_variable.h"

namespace edgewise::ops {
namespace {

constexpr int64_t kBlockRows = 64;  // rows of a block: with 2048 keys, 512 KiB of scores

// body(task) for all tasks, each by one thread.
template <typename Body>
void for_tasks(int64_t tasks, const Body& body) {
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, std::min<int64_t>(tasks, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    // A thread's own: what the caller set up (no gradients, inference mode) does not reach it, and what the
    // caller may have set (autocast) must not.
    const at::NoGradGuard guard;
    const at::AutoDispatchBelowADInplaceOrView below;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    for (int64_t task = next++; task < tasks; task = next++) body(task);
  });
}

std::vector<int64_t> planned(const std::vector<char>& heads) {
  std::vector<int64_t> result;
  for (size_t n = 0; n < heads.size(); ++n)
    if (heads[n]) result.push_back(static_cast<int64_t>(n));
  return result;
}

// Head n = b*H + h of [B, H, N, W]: [N, W].
at::Tensor head_of(const at::Tensor& tensor, int64_t n) {
  return tensor.select(0, n / tensor.size(1)).select(0, n % tensor.size(1));
}

}  // namespace

bool is_finite(const at::Tensor& tensor) {
  return (tensor.sum() * 0).item<float>() == 0;
}

bool HeadPlan::any_forward() const {
  return std::find(forward.begin(), forward.end(), 1) != forward.end();
}
bool HeadPlan::any_backward() const {
  return std::find(backward.begin(), backward.end(), 1) != backward.end();
}

HeadPlan plan_heads(const AttentionInputs& in) {
  const EdgeShape& shape = in.edges.shape();
  const int64_t heads = shape.batch * shape.heads;
  HeadPlan plan;
  if (in.query.scalar_type() != at::kFloat || in.dropout_p > 0) return plan;
  const int64_t* offsets = in.edges.row_offsets().const_data_ptr<int64_t>();
  for (int64_t n = 0; n < heads; ++n) {
    const HeadCosts costs = head_costs(in, offsets[(n + 1) * shape.queries] - offsets[n * shape.queries]);
    plan.forward.push_back(costs.blocks_forward_ms < costs.gather_forward_ms);
    plan.backward.push_back(costs.blocks_backward_ms < costs.gather_backward_ms);
  }
  if ((plan.any_forward() || plan.any_backward()) &&
      !(is_finite(in.query) && is_finite(in.key) && is_finite(in.value)))
    return {};
  return plan;
}

void masked_forward(const AttentionInputs& in, const std::vector<char>& heads, AttentionForward& result) {
  read_cpu_level_variable();
  const auto kernel = kernels::cpu::active_attention_kernels<float>().masked_rows;
  const EdgeShape& shape = in.edges.shape();
  const std::vector<int64_t> chosen = planned(heads);
  const int64_t blocks = (shape.queries + kBlockRows - 1) / kBlockRows;
  for_tasks(static_cast<int64_t>(chosen.size()) * blocks, [&](int64_t task) {
    const int64_t head = chosen[static_cast<size_t>(task / blocks)], first = task % blocks * kBlockRows;
    const int64_t count = std::min(kBlockRows, shape.queries - first);
    const at::Tensor query = head_of(in.query, head).narrow(0, first, count);  // [R, D]
    at::Tensor output = head_of(result.output, head).narrow(0, first, count);  // [R, Dv]
    at::Tensor weights = at::mm(query, head_of(in.key, head).t());             // [R, S]
    at::Tensor shares = at::empty({count, 1}, query.options());
    kernels::MaskedRowsParams<float> params;
    params.edges = csr_view(in.edges);
    params.scale = in.scale;
    params.first_row = head * shape.queries + first;
    params.rows = weights.mutable_data_ptr<float>();
    params.shares = shares.mutable_data_ptr<float>();
    params.lse = result.lse.mutable_data_ptr<float>();
    kernel(params, params.first_row, params.first_row + count);
    at::mm_out(output, weights, head_of(in.value, head));
    output.mul_(shares);
  });
}

void masked_backward(const AttentionInputs& in, const std::vector<char>& heads,
                     const AttentionForward& forward, const at::Tensor& grad_output,
                     AttentionBackward& result) {
  read_cpu_level_variable();
  const auto kernel = kernels::cpu::active_attention_kernels<float>().masked_rows;
  const EdgeShape& shape = in.edges.shape();
  const std::vector<int64_t> chosen = planned(heads);
  const at::Tensor grads = grad_output.contiguous(), outputs = forward.output.contiguous();
  for_tasks(static_cast<int64_t>(chosen.size()), [&](int64_t task) {
    const int64_t head = chosen[static_cast<size_t>(task)];
    const at::Tensor key = head_of(in.key, head), value = head_of(in.value, head);  // [S, D], [S, Dv]
    at::Tensor key_grad = head_of(result.key, head).zero_(), value_grad = head_of(result.value, head).zero_();
    for (int64_t first = 0; first < shape.queries; first += kBlockRows) {
      const int64_t count = std::min(kBlockRows, shape.queries - first);
      const at::Tensor query = head_of(in.query, head).narrow(0, first, count);         // [R, D]
      const at::Tensor grad = head_of(grads, head).narrow(0, first, count);             // [R, Dv]
      at::Tensor weights = at::mm(query, key.t()), products = at::mm(grad, value.t());  // [R, S]
      kernels::MaskedRowsParams<float> params;
      params.edges = csr_view(in.edges);
      params.value_dim = in.value.size(3);
      params.scale = in.scale;
      params.first_row = head * shape.queries + first;
      params.rows = weights.mutable_data_ptr<float>();
      params.products = products.mutable_data_ptr<float>();
      params.grad_output = grads.const_data_ptr<float>();
      params.output = outputs.const_data_ptr<float>();
      kernel(params, params.first_row, params.first_row + count);
      at::Tensor query_grad = head_of(result.query, head).narrow(0, first, count);
      at::mm_out(query_grad, products, key);
      key_grad.addmm_(products.t(), query);
      value_grad.addmm_(weights.t(), grad);
    }
  });
}

}  // namespace edgewise::ops
