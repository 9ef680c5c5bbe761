// edge_attention on CUDA, forward: tensors to raw pointers, and the kernels started.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "kernels/cuda/lists/gather_params.h"
#include "ops/attention/cuda_choice.h"
#include "ops/attention/cuda_inputs.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using graph::few_edges;
using graph::tile_shape;
using graph::words_of;
using kernels::Bf16;

// [B, H, N, D] whose memory is [B, N, H, D], so that joining the heads afterwards costs nothing.
at::Tensor empty_heads(const at::Tensor& like, int64_t tokens, int64_t width) {
  return at::empty({like.size(0), tokens, like.size(1), width}, like.options()).permute({0, 2, 1, 3});
}

// What all forward passes take.
template <typename T, typename Params>
void fill_forward(Params& params, const AttentionInputs& in, const AttentionForward& result) {
  params.shape = tile_shape(in.edges.shape());
  params.head_dim = in.query.size(3);
  params.scale = static_cast<float>(in.scale);
  params.query = view<T>(in.query);
  params.key = view<T>(in.key);
  params.value = view<T>(in.value);
  params.output = mutable_view<T>(result.output);
  params.lse = result.lse.mutable_data_ptr<float>();
}

template <typename T>
AttentionForward gather_forward(const AttentionInputs& in, AttentionForward result) {
  kernels::cuda::GatherForwardParams<T> params;
  fill_forward<T>(params, in, result);
  params.edges = {in.edges.row_offsets().const_data_ptr<int64_t>(),
                  in.edges.col_indices().const_data_ptr<int32_t>()};
  params.dropout = gather_dropout(in);
  check_launch("gather_forward", kernels::cuda::launch_gather_forward(params, current_stream()));
  return result;
}

// All heads but `others`.
template <typename T>
kernels::cuda::TileForwardParams<T> tile_forward_params(const AttentionInputs& in,
                                                        const graph::SparseHeads& others,
                                                        AttentionForward& result) {
  kernels::cuda::TileForwardParams<T> params;
  params.used = used_tiles(in.edges);
  params.left_out = few_edges(others);
  fill_forward<T>(params, in, result);
  params.tiles = words_of(in.edges.tiles());
  if (in.dropout_p > 0) {
    result.dropped = dropped_edges(in, others);
    result.dropped_missing = others.most_edges;
    params.dropped = words_of(result.dropped);
    params.keep_scale = keep_scale(in);
  }
  return params;
}

// The heads that the windows have, and only they.
void window_forward(const AttentionInputs& in, const graph::EdgeWindows& windows,
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

}  // namespace

at::Tensor dropped_edges(const AttentionInputs& in, const graph::SparseHeads& without) {
  const at::Tensor dropped = at::empty_like(in.edges.tiles());
  kernels::cuda::TileDropoutParams params;
  params.shape = tile_shape(in.edges.shape());
  params.tiles = words_of(in.edges.tiles());
  params.stream_keys = stream_keys(in);
  params.p = in.dropout_p;
  params.left_out = few_edges(without);
  params.dropped = words_of(dropped);
  check_launch("tile_dropout", kernels::cuda::launch_tile_dropout(params, current_stream()));
  return dropped;
}
at::Tensor dropped_entries(const AttentionInputs& in, const graph::EdgeWindows& windows, bool by_keys) {
  const at::Tensor dropped = at::empty(windows.entries.sizes(), windows.entries.options().dtype(at::kShort));
  kernels::cuda::DropWindowsParams params;
  params.shape = tile_shape(in.edges.shape());
  params.sparse = few_edges(windows.heads);
  params.by_keys = by_keys;
  params.lists = graph::window_lists(windows);
  params.stream_keys = stream_keys(in);
  params.p = in.dropout_p;
  params.dropped = reinterpret_cast<uint16_t*>(dropped.mutable_data_ptr<int16_t>());
  check_launch("drop_windows", kernels::cuda::launch_drop_windows(params, current_stream()));
  return dropped;
}

std::optional<int64_t> cuda_edge_count(const EdgeSet& edges) {
  if (edges.has_csr()) return edges.edge_count();
  const c10::cuda::CUDAGuard guard(edges.device());
  if (graph::is_capturing()) return std::nullopt;
  return edges.edges_per_head().sum().item<int64_t>();
}

AttentionForward cuda_forward(const AttentionInputs& given) {
  const c10::cuda::CUDAGuard guard(given.query.device());
  const AttentionInputs in = for_kernels(given);
  const EdgeShape& shape = in.edges.shape();
  AttentionForward result;
  result.gathered = by_gather(in);
  result.output = empty_heads(in.query, shape.queries, in.value.size(3));
  result.lse = at::empty({shape.batch, shape.heads, shape.queries}, in.query.options().dtype(at::kFloat));
  if (result.gathered)
    return in.query.scalar_type() == at::kFloat ? gather_forward<float>(in, result)
                                                : gather_forward<Bf16>(in, result);
  std::optional<graph::EdgeWindows> windows;
  if (by_windows(in)) {
    // The backward pass may take heads with more edges; then the lists serve both.
    const std::optional<double> backward = backward_lists(in);
    const double density = forward_window_density(in);
    windows = in.edges.windows(std::max(density, backward.value_or(0)), /*by_keys=*/false);
    if (in.dropout_p > 0) windows->dropped = dropped_entries(in, *windows, /*by_keys=*/false);
    if (in.gradients_follow && windows->entries.numel() * 4 <= graph::kKeptWindowBytes)
      result.windows = std::make_shared<graph::EdgeWindows>(*windows);
    windows->heads = in.edges.sparse_heads(density);
    window_forward(in, *windows, result);
  }
  const graph::SparseHeads others = windows ? windows->heads : graph::SparseHeads();
  if (in.query.scalar_type() == at::kFloat)
    check_launch("float_tile_forward",
                 kernels::cuda::launch_float_tile_forward(tile_forward_params<float>(in, others, result),
                                                          tf32_products(in), current_stream()));
  else
    check_launch("tile_forward", kernels::cuda::launch_tile_forward(
                                     tile_forward_params<Bf16>(in, others, result), current_stream()));
  return result;
}

}  // namespace edgewise::ops
