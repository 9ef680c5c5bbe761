// edge_attention on CUDA, backward: gradients of query, key and value and, with a learner, of the
// memberships.
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "graph/tiles_cuda.h"
#include "kernels/cuda/lists/gather_params.h"
#include "ops/attention/cuda_choice.h"
#include "ops/attention/cuda_inputs.h"
#include "ops/step_inputs.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using graph::few_edges;
using graph::tile_shape;
using graph::words_of;
using kernels::Bf16;

at::Tensor members(const at::Tensor& membership, at::ScalarType dtype) {
  const int64_t clusters = membership.size(3), wanted = padded_clusters(clusters);
  at::Tensor result = membership.detach().to(dtype);
  if (clusters < wanted) result = at::constant_pad_nd(result, {0, wanted - clusters});
  return aligned(result);
}

// What the learner adds to a backward pass, as tensors that live until the launch.
struct LearnerTensors {
  at::Tensor query_membership, key_side;            // padded
  at::Tensor query_membership_grad, key_side_grad;  // [B, H, N, padded clusters] fp32
  at::Tensor density_grad, probe_rates;

  LearnerTensors(const CreditRequest& request, const AttentionInputs& in, at::ScalarType dtype) {
    const EdgeCredit& credit = *request.learner;
    query_membership = members(credit.query_membership, dtype);
    key_side = members(credit.key_side, dtype);
    const auto fp32 = in.query.options().dtype(at::kFloat);
    query_membership_grad = at::empty(query_membership.sizes(), fp32);
    key_side_grad = at::empty(key_side.sizes(), fp32);
    if (request.density_grad.defined() && credit.pairs_per_head > 0)
      density_grad =
          over(request.density_grad, {credit.pairs_per_head, credit.pairs_again}).to(at::kFloat).contiguous();
    if (credit.probes)
      probe_rates = on_device(in.query.device(),
                              [rates = credit.probe_rates, again = credit.rates_again](const StreamShift&) {
                                return at::tensor(again ? again() : rates, at::kFloat);
                              });
  }

  template <typename Params>
  void fill(Params& params, const EdgeCredit& credit) const {
    params.clusters = query_membership.size(3);
    params.paper = credit.estimator == Estimator::kPaper;
    params.clip = static_cast<float>(credit.gradient_clip);
    if (density_grad.defined()) params.density_grad = density_grad.const_data_ptr<float>();
    if (probe_rates.defined()) params.probe_rates = probe_rates.const_data_ptr<float>();
    params.query_membership_grad = mutable_view<float>(query_membership_grad);
    params.key_side_grad = mutable_view<float>(key_side_grad);
  }

  void give(AttentionBackward& result, const EdgeCredit& credit) const {
    const int64_t clusters = credit.query_membership.size(3);
    result.query_membership = query_membership_grad.narrow(3, 0, clusters);
    result.key_side = key_side_grad.narrow(3, 0, clusters);
  }
};

// What all backward passes take.
template <typename T, typename Params>
void fill_backward(Params& params, const AttentionInputs& in, const AttentionForward& forward,
                   const at::Tensor& grad, const AttentionBackward& result) {
  params.shape = tile_shape(in.edges.shape());
  params.head_dim = in.query.size(3);
  params.scale = static_cast<float>(in.scale);
  params.query = view<T>(in.query);
  params.key = view<T>(in.key);
  params.value = view<T>(in.value);
  params.output = view<T>(forward.output);
  params.grad_output = view<T>(grad);
  params.lse = forward.lse.const_data_ptr<float>();
  params.query_grad = mutable_view<T>(result.query);
  params.key_grad = mutable_view<T>(result.key);
  params.value_grad = mutable_view<T>(result.value);
}

template <typename T>
void gather_backward(const AttentionInputs& in, const AttentionForward& forward, const at::Tensor& grad,
                     const CreditRequest& request, AttentionBackward& result) {
  const EdgeShape& shape = in.edges.shape();
  kernels::cuda::GatherBackwardParams<T> params;
  fill_backward<T>(params, in, forward, grad, result);
  const at::Tensor row_values = at::empty({2, shape.rows()}, forward.lse.options());
  params.row_values = row_values.mutable_data_ptr<float>();
  const auto by_queries = [](const EdgeSet& edges) {
    return kernels::cuda::EdgeList{edges.row_offsets().const_data_ptr<int64_t>(),
                                   edges.col_indices().const_data_ptr<int32_t>()};
  };
  const auto by_keys = [](const EdgeSet& edges) {
    const TransposedEdges& turned = edges.transposed();
    return kernels::cuda::EdgeList{turned.column_offsets.const_data_ptr<int64_t>(),
                                   turned.row_indices.const_data_ptr<int32_t>()};
  };
  params.edges = by_queries(in.edges);
  params.edges_by_keys = by_keys(in.edges);
  params.dropout = gather_dropout(in);
  std::optional<LearnerTensors> learner;
  if (request.learner) {
    const EdgeCredit& credit = *request.learner;
    learner.emplace(request, in, in.query.scalar_type());
    learner->fill(params, credit);
    params.query_membership = view<T>(learner->query_membership);
    params.key_side = view<T>(learner->key_side);
    if (credit.probes) {
      params.probes = by_queries(*credit.probes);
      params.probes_by_keys = by_keys(*credit.probes);
    }
    learner->give(result, credit);
  }
  check_launch("gather_backward", kernels::cuda::launch_gather_backward(params, current_stream()));
}

template <typename T, typename Params>
void fill_learner(Params& params, const LearnerTensors& learner, const EdgeCredit& credit) {
  learner.fill(params.credit, credit);
  params.credit.query_membership = view<T>(learner.query_membership);
  params.credit.key_side = view<T>(learner.key_side);
}

// The heads with few edges, and only they; which these are.
graph::SparseHeads window_backward(const AttentionInputs& in, const AttentionForward& forward,
                                   const at::Tensor& grad, const EdgeCredit* credit,
                                   const LearnerTensors* learner, const AttentionBackward& result) {
  const EdgeShape& shape = in.edges.shape();
  const int64_t dim = in.query.size(3), clusters = learner ? learner->query_membership.size(3) : 0;
  const double density = backward_window_density(dim, clusters, in.dropout_p > 0);
  const graph::SparseHeads heads = in.edges.sparse_heads(density);
  const bool known = forward.windows && forward.windows->heads.most_edges >= heads.most_edges;
  graph::EdgeWindows by_queries = known ? *forward.windows : in.edges.windows(density, /*by_keys=*/false);
  graph::EdgeWindows by_keys = in.edges.windows(density, /*by_keys=*/true);
  if (in.dropout_p > 0) {
    if (!by_queries.dropped.defined()) by_queries.dropped = dropped_entries(in, by_queries, false);
    by_keys.dropped = dropped_entries(in, by_keys, true);
  }
  kernels::cuda::WindowBackwardParams params;
  fill_backward<Bf16>(params, in, forward, grad, result);
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
         kernels::cuda::window_row_bytes(dim, clusters)},
        in.query.options().dtype(at::kByte));
  };
  const at::Tensor query_rows = rows(shape.queries), key_rows = rows(shape.keys);
  params.query_rows = query_rows.mutable_data_ptr<uint8_t>();
  params.key_rows = key_rows.mutable_data_ptr<uint8_t>();
  if (learner) {
    fill_learner<Bf16>(params, *learner, *credit);
    if (credit->probes) {
      params.credit.probes = words_of(credit->probes->unit_tiles());
      params.units_by_queries = credit->probes->units()->by_queries.const_data_ptr<uint8_t>();
      params.units_by_keys = credit->probes->units()->by_keys.const_data_ptr<uint8_t>();
    }
  }
  check_launch("window_backward", kernels::cuda::launch_window_backward(params, current_stream()));
  return heads;
}

// What probes in units add to the gradients of the memberships, of the heads that the tiles had.
void unit_credit(const kernels::cuda::TileBackwardParams<Bf16>& tiles, const graph::EdgeUnits& units,
                 const uint32_t* probes) {
  kernels::cuda::UnitCreditParams params;
  params.shape = tiles.shape;
  params.head_dim = tiles.head_dim;
  params.scale = tiles.scale;
  params.query = tiles.query;
  params.key = tiles.key;
  params.value = tiles.value;
  params.grad_output = tiles.grad_output;
  params.row_values = tiles.row_values;
  params.left_out = tiles.left_out;
  params.by_queries = units.by_queries.const_data_ptr<uint8_t>();
  params.by_keys = units.by_keys.const_data_ptr<uint8_t>();
  params.credit = tiles.credit;
  params.credit.probes = probes;
  check_launch("unit_credit", kernels::cuda::launch_unit_credit(params, current_stream()));
}

template <typename T>
void tile_backward(const AttentionInputs& in, const AttentionForward& forward, const at::Tensor& grad,
                   const CreditRequest& request, AttentionBackward& result) {
  const EdgeShape& shape = in.edges.shape();
  std::optional<LearnerTensors> learner;
  if (request.learner) {
    learner.emplace(request, in, in.query.scalar_type());
    learner->give(result, *request.learner);
    result.has_discarded = true;
  }
  graph::SparseHeads sparse;
  if (window_backward_refusal(in, request.learner).empty())
    sparse = window_backward(in, forward, grad, request.learner, learner ? &*learner : nullptr, result);
  kernels::cuda::TileBackwardParams<T> params;
  fill_backward<T>(params, in, forward, grad, result);
  params.left_out = few_edges(sparse);
  const at::Tensor row_values = at::empty({2, shape.rows()}, forward.lse.options());
  params.row_values = row_values.mutable_data_ptr<float>();
  params.tiles = words_of(in.edges.tiles());
  const auto transposed = [&](const EdgeSet& edges) {
    return sparse.edges_per_head.defined() ? edges.transposed_tiles(sparse) : edges.transposed_tiles();
  };
  const at::Tensor tiles_transposed = transposed(in.edges);
  params.tiles_transposed = words_of(tiles_transposed);
  params.used = used_tiles(in.edges);
  at::Tensor dropped, dropped_transposed, probes_transposed;
  if (in.dropout_p > 0) {
    // Where the forward pass had more heads by windows than this one, their edges are not there.
    const bool known = forward.dropped.defined() && forward.dropped_missing <= sparse.most_edges;
    dropped = known ? forward.dropped : dropped_edges(in, sparse);
    dropped_transposed = graph::cuda_transposed_tiles(shape, dropped, sparse);
    params.dropped = words_of(dropped);
    params.dropped_transposed = words_of(dropped_transposed);
    params.keep_scale = keep_scale(in);
  }
  const graph::EdgeUnits* units = nullptr;
  if (learner) {
    const EdgeCredit& credit = *request.learner;
    fill_learner<T>(params, *learner, credit);
    if (std::is_same_v<T, Bf16> && credit.probes && kernels::cuda::unit_credit_takes(params.credit.clusters))
      units = credit.probes->units();
    if (credit.probes && !units) {  // units have a pass of their own, afterwards
      params.credit.probes = words_of(credit.probes->tiles(sparse));
      probes_transposed = transposed(*credit.probes);
      params.credit.probes_transposed = words_of(probes_transposed);
    }
    if (credit.fixed) {
      params.credit.fixed = words_of(credit.fixed->tiles());
      params.credit.fixed_transposed = words_of(credit.fixed->transposed_tiles());
    }
    if (credit.discarded && learner->density_grad.defined()) {
      params.credit.discarded = words_of(credit.discarded->tiles());
      params.credit.discarded_transposed = words_of(credit.discarded->transposed_tiles());
    }
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    check_launch("tile_backward", kernels::cuda::launch_tile_backward(params, current_stream()));
    if (units) unit_credit(params, *units, words_of(request.learner->probes->unit_tiles()));
  } else {
    check_launch("float_tile_backward",
                 kernels::cuda::launch_float_tile_backward(params, tf32_products(in), current_stream()));
  }
}

}  // namespace

AttentionBackward cuda_backward(const AttentionInputs& given, const AttentionForward& given_forward,
                                const at::Tensor& grad_output, const CreditRequest& request) {
  const c10::cuda::CUDAGuard guard(given.query.device());
  const AttentionInputs in = for_kernels(given);
  AttentionForward forward = given_forward;
  forward.output = aligned(forward.output);
  forward.lse = forward.lse.contiguous();
  const at::Tensor grad = aligned(grad_output);
  AttentionBackward result;
  result.query = at::empty(in.query.sizes(), in.query.options());
  result.key = at::empty(in.key.sizes(), in.key.options());
  result.value = at::empty(in.value.sizes(), in.value.options());
  const bool gather = forward.backend ? forward.gathered : by_gather(in);
  const bool fp32 = in.query.scalar_type() == at::kFloat;
  const auto backward = gather ? (fp32 ? gather_backward<float> : gather_backward<Bf16>)
                               : (fp32 ? tile_backward<float> : tile_backward<Bf16>);
  backward(in, forward, grad, request, result);
  return result;
}

}  // namespace edgewise::ops
