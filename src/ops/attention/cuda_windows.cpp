// edge_attention on CUDA by windows for the heads with few edges, as the device counts them, and by tiles for
// the others, so that the host waits for no count.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "graph/edge_plan.h"
#include "ops/attention/cuda_tiles.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using graph::EdgePlan;
using graph::EdgeWindows;
using graph::few_edges;
using graph::SparseHeads;
using graph::tile_shape;
using graph::words_of;
using kernels::Bf16;

struct WindowState : TileState {
  std::optional<EdgeWindows> by_queries;  // if they are small
};

// The entries of lists that dropout removes.
at::Tensor dropped_entries(const AttentionInputs& in, const EdgeWindows& windows, bool by_keys) {
  const at::Tensor dropped = at::empty(windows.entries.sizes(), windows.entries.options().dtype(at::kShort));
  kernels::cuda::DropWindowsParams params;
  params.shape = tile_shape(in.shape);
  params.sparse = few_edges(windows.heads);
  params.by_keys = by_keys;
  params.lists = graph::window_lists(windows);
  params.stream_keys = stream_keys(in);
  params.p = in.dropout_p;
  params.dropped = reinterpret_cast<uint16_t*>(dropped.mutable_data_ptr<int16_t>());
  check_launch("drop_windows", kernels::cuda::launch_drop_windows(params, current_stream()));
  return dropped;
}
const uint16_t* dropped_bits(const EdgeWindows& windows) {
  return windows.dropped.defined()
             ? reinterpret_cast<const uint16_t*>(windows.dropped.const_data_ptr<int16_t>())
             : nullptr;
}

// The heads that the windows have, and only they.
void forward_by_windows(const AttentionInputs& in, const EdgeWindows& windows,
                        const AttentionForward& result) {
  kernels::cuda::WindowForwardParams params;
  fill_forward<Bf16>(params, in, result);
  params.sparse = few_edges(windows.heads);
  params.lists = graph::window_lists(windows);
  params.tiles = words_of(in.edges.tiles());
  if (in.dropout_p > 0) {
    params.dropped = dropped_bits(windows);
    params.stream_keys = stream_keys(in);
    params.dropout_p = in.dropout_p;
    params.keep_scale = keep_scale(in);
  }
  check_launch("window_forward", kernels::cuda::launch_window_forward(params, current_stream()));
}

// The heads with few edges, and only they; which these are.
SparseHeads backward_by_windows(const CudaBackward& pass, const WindowState* state,
                                const LearnerTensors* learner) {
  const AttentionInputs& in = pass.in;
  const EdgeShape& shape = in.shape;
  const int64_t clusters = learner ? learner->query_membership.size(3) : 0;
  const double density = backward_window_density(in);
  EdgePlan& plan = EdgePlan::of(in.edges);
  const SparseHeads heads = plan.sparse_heads(density);
  const bool known = state && state->by_queries && state->by_queries->heads.most_edges >= heads.most_edges;
  EdgeWindows by_queries = known ? *state->by_queries : plan.windows(density, /*by_keys=*/false);
  EdgeWindows by_keys = plan.windows(density, /*by_keys=*/true);
  if (in.dropout_p > 0) {
    if (!by_queries.dropped.defined()) by_queries.dropped = dropped_entries(in, by_queries, false);
    by_keys.dropped = dropped_entries(in, by_keys, true);
  }
  kernels::cuda::WindowBackwardParams params;
  fill_backward<Bf16>(params, pass);
  params.sparse = few_edges(heads);
  params.by_queries = graph::window_lists(by_queries);
  params.by_keys = graph::window_lists(by_keys);
  if (in.dropout_p > 0) {
    params.dropped_by_queries = dropped_bits(by_queries);
    params.dropped_by_keys = dropped_bits(by_keys);
    params.keep_scale = keep_scale(in);
  }
  const auto rows = [&](int64_t tokens) {
    return at::empty(
        {shape.batch * shape.heads, kernels::cuda::WindowLists::blocks(tokens) * kernels::cuda::kWindowBlock,
         kernels::cuda::window_row_bytes(in.head_dim, clusters)},
        in.query.options().dtype(at::kByte));
  };
  const at::Tensor query_rows = rows(shape.queries), key_rows = rows(shape.keys);
  params.query_rows = query_rows.mutable_data_ptr<uint8_t>();
  params.key_rows = key_rows.mutable_data_ptr<uint8_t>();
  if (learner) {
    learner->fill<Bf16>(params.credit, *in.learner);
    if (in.learner->probes) {
      EdgePlan& probes = EdgePlan::of(*in.learner->probes);
      params.credit.probes = words_of(probes.unit_tiles());
      params.units_by_queries = probes.units()->by_queries.const_data_ptr<uint8_t>();
      params.units_by_keys = probes.units()->by_keys.const_data_ptr<uint8_t>();
    }
  }
  check_launch("window_backward", kernels::cuda::launch_window_backward(params, current_stream()));
  return heads;
}

}  // namespace

AttentionForward cuda_windows_forward(const AttentionInputs& given) {
  const c10::cuda::CUDAGuard guard(given.query.device());
  const AttentionInputs in = for_kernels(given);
  AttentionForward result = empty_forward(in);
  const auto state = std::make_shared<WindowState>();
  EdgePlan& plan = EdgePlan::of(in.edges);
  const double density = forward_window_density(in);
  // The backward pass may take heads with more edges; then the lists serve both.
  const bool serves_both = in.gradients_follow && window_backward_refusal(in).empty();
  EdgeWindows windows =
      plan.windows(serves_both ? std::max(density, backward_window_density(in)) : density, /*by_keys=*/false);
  if (in.dropout_p > 0) windows.dropped = dropped_entries(in, windows, /*by_keys=*/false);
  if (serves_both && windows.entries.numel() * 4 <= graph::kKeptWindowBytes) state->by_queries = windows;
  windows.heads = plan.sparse_heads(density);
  forward_by_windows(in, windows, result);
  forward_by_tiles(in, windows.heads, result, *state);
  result.state = state;
  return result;
}

AttentionBackward cuda_windows_backward(const AttentionInputs& given, const AttentionForward& forward,
                                        const at::Tensor& grad_output, const at::Tensor& density_grad) {
  const c10::cuda::CUDAGuard guard(given.query.device());
  CudaBackward pass(given, forward, grad_output, density_grad);
  const auto* state = static_cast<const WindowState*>(forward.state.get());
  std::optional<LearnerTensors> learner;
  if (given.learns.exists()) {
    learner.emplace(pass);
    learner->give(pass.result, given.learns.clusters);
    pass.result.has_discarded = true;
  }
  const LearnerTensors* const tensors = learner ? &*learner : nullptr;
  // Where windows do not serve the learner, the tiles have all heads.
  const SparseHeads by_windows =
      window_backward_refusal(given).empty() ? backward_by_windows(pass, state, tensors) : SparseHeads();
  backward_by_tiles(pass, state, tensors, by_windows);
  return pass.result;
}

}  // namespace edgewise::ops
