#include "ops/walk/walk_call.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "graph/bool_bytes.h"
#include "kernels/cpu/walk/walk.h"

namespace edgewise::ops {

void WalkCall::make_actions(at::IntArrayRef sizes, const at::TensorOptions& options) {
  taken = at::zeros(sizes, options.dtype(at::kBool));
  chosen = at::zeros(sizes, options.dtype(at::kBool));
  destination = at::zeros(sizes, options.dtype(at::kLong));
}

void WalkCall::fill(kernels::WalkParams& p, const at::Tensor& queries, const at::Tensor& keys) const {
  p.batch = queries.size(0);
  p.groups = queries.size(1);
  p.queries = queries.size(2);
  p.keys = keys.size(2);
  p.width = keys.size(3);
  p.steps = rules.steps;
  p.first = rules.first.const_data_ptr<int64_t>();
  p.last = rules.last.const_data_ptr<int64_t>();
  p.excluded = rules.excluded.const_data_ptr<int64_t>();
  p.gap = rules.gap;
  p.key_mask = graph::bool_bytes(rules.key_mask);
  p.limits = rules.limits.const_data_ptr<int64_t>();
  p.duplicates = rules.duplicates;
  p.choice = rules.choice;
  if (rules.stream_keys.defined()) p.stream_keys = rules.stream_keys.const_data_ptr<int64_t>();
  p.destination = destination.mutable_data_ptr<int64_t>();
  p.taken = taken.mutable_data_ptr<bool>();
  p.chosen = chosen.mutable_data_ptr<bool>();
}

RowKeys sorted_rows(const at::Tensor& destination, const at::Tensor& taken, int64_t none, bool with_order) {
  const int64_t steps = destination.size(-1), rows = steps == 0 ? 0 : destination.numel() / steps;
  RowKeys result{at::empty(destination.sizes(), destination.options().dtype(at::kInt)), {}, false};
  if (with_order) result.order = at::empty(destination.sizes(), destination.options());
  const int64_t* const from = destination.const_data_ptr<int64_t>();
  const bool* const made = taken.const_data_ptr<bool>();
  int32_t* const keys = result.keys.mutable_data_ptr<int32_t>();
  int64_t* const order = with_order ? result.order.mutable_data_ptr<int64_t>() : nullptr;
  std::atomic<bool> all{true};
  at::parallel_for(0, rows, 256, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> row(
        static_cast<size_t>(steps));  // a key, then its action: one comparison orders both
    bool each = true;
    for (int64_t at = begin * steps; at < end * steps; at += steps) {
      for (int64_t e = 0; e < steps; ++e) {
        each &= made[at + e];
        row[static_cast<size_t>(e)] = (made[at + e] ? from[at + e] : none) << 32 | e;
      }
      std::sort(row.begin(), row.end());
      for (int64_t e = 0; e < steps; ++e) {
        keys[at + e] = static_cast<int32_t>(row[static_cast<size_t>(e)] >> 32);
        if (order) order[at + e] = row[static_cast<size_t>(e)] & 0xFFFFFFFF;
      }
    }
    if (!each) all = false;
  });
  result.all = all;
  return result;
}

at::Tensor distance_or_empty(const WalkTensors& tensors) {
  return tensors.distance.defined() ? tensors.distance
                                    : at::empty({0}, tensors.bias.options().requires_grad(false));
}

WalkTensors plain(const WalkTensors& in) {
  const auto own = [](const at::Tensor& t) { return t.defined() ? t.detach().contiguous() : t; };
  return {own(in.query_nodes), own(in.key_nodes), own(in.weight_ih),
          own(in.weight_hh),   own(in.bias),      own(in.distance)};
}

at::Tensor transposed_nodes(const at::Tensor& nodes) {
  const int64_t units = nodes.size(0) * nodes.size(1), count = nodes.size(2), width = nodes.size(3);
  const at::Tensor out =
      at::empty({units, width, kernels::padded_keys(count)}, nodes.options().requires_grad(false));
  AT_DISPATCH_FLOATING_TYPES(nodes.scalar_type(), "transposed_nodes", [&] {
    const scalar_t* from = nodes.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, units, 1, [&](int64_t begin, int64_t end) {
      kernels::cpu::transpose_nodes<scalar_t>(from, count, width, to, begin, end);
    });
  });
  return out;
}

}  // namespace edgewise::ops
