// edge_attention on CUDA over bit tiles, in bf16 and, by tensor cores, in fp32: tensors to raw pointers, and
// the kernels started.
#include "ops/attention/cuda_tiles.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>

#include "graph/edge_plan.h"
#include "graph/tiles/tiles_cuda.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using graph::EdgePlan;
using graph::few_edges;
using graph::SparseHeads;
using graph::tile_shape;
using graph::words_of;
using kernels::Bf16;

kernels::cuda::Tf32 tf32_products(const AttentionInputs& in) {
  return in.matmul == Float32Matmul::kTf32 ? kernels::cuda::Tf32::kOnce : kernels::cuda::Tf32::kThrice;
}

// Edges that were given may have structure; sampled ones leave no tile empty.
kernels::cuda::UsedTiles used_tiles(const EdgeSet& edges) {
  if (!edges.has_csr()) return {};
  const at::Tensor& flags = EdgePlan::of(edges).used_tiles();
  return {flags.const_data_ptr<uint8_t>(), flags.stride(0), flags.stride(1), flags.stride(2)};
}

// The edges that dropout removes, without those of the heads `without`.
at::Tensor dropped_edges(const AttentionInputs& in, const SparseHeads& without) {
  const at::Tensor dropped = at::empty_like(in.edges.tiles());
  kernels::cuda::TileDropoutParams params;
  params.shape = tile_shape(in.shape);
  params.tiles = words_of(in.edges.tiles());
  params.stream_keys = stream_keys(in);
  params.p = in.dropout_p;
  params.left_out = few_edges(without);
  params.dropped = words_of(dropped);
  check_launch("tile_dropout", kernels::cuda::launch_tile_dropout(params, current_stream()));
  return dropped;
}

template <typename T>
kernels::cuda::TileForwardParams<T> forward_params(const AttentionInputs& in, const SparseHeads& others,
                                                   AttentionForward& result, TileState& state) {
  kernels::cuda::TileForwardParams<T> params;
  params.used = used_tiles(in.edges);
  params.left_out = few_edges(others);
  fill_forward<T>(params, in, result);
  params.tiles = words_of(in.edges.tiles());
  if (in.dropout_p > 0) {
    state.dropped = dropped_edges(in, others);
    state.dropped_missing = others.most_edges;
    params.dropped = words_of(state.dropped);
    params.keep_scale = keep_scale(in);
  }
  return params;
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
void backward(CudaBackward& pass, const TileState* state, const LearnerTensors* learner_tensors,
              const SparseHeads& others) {
  const AttentionInputs& in = pass.in;
  kernels::cuda::TileBackwardParams<T> params;
  fill_backward<T>(params, pass);
  params.left_out = few_edges(others);
  const at::Tensor row_values = at::empty({2, in.shape.rows()}, pass.forward.lse.options());
  params.row_values = row_values.mutable_data_ptr<float>();
  params.tiles = words_of(in.edges.tiles());
  const auto transposed = [&](const EdgeSet& edges) { return EdgePlan::of(edges).transposed_tiles(others); };
  const at::Tensor tiles_transposed = transposed(in.edges);
  params.tiles_transposed = words_of(tiles_transposed);
  params.used = used_tiles(in.edges);
  at::Tensor dropped, dropped_transposed, probes_transposed, fixed_transposed, discarded_transposed;
  if (in.dropout_p > 0) {
    // Where the forward pass had more heads by windows than this one, their edges are not there.
    const bool known = state && state->dropped.defined() && state->dropped_missing <= others.most_edges;
    dropped = known ? state->dropped : dropped_edges(in, others);
    dropped_transposed = graph::cuda_transposed_tiles(in.shape, dropped, others);
    params.dropped = words_of(dropped);
    params.dropped_transposed = words_of(dropped_transposed);
    params.keep_scale = keep_scale(in);
  }
  const graph::EdgeUnits* units = nullptr;
  if (learner_tensors) {
    const EdgeLearner& learner = *in.learner;
    learner_tensors->fill<T>(params.credit, learner);
    if (std::is_same_v<T, Bf16> && learner.probes && kernels::cuda::unit_credit_takes(params.credit.clusters))
      units = EdgePlan::of(*learner.probes).units();
    if (learner.probes && !units) {  // units have a pass of their own, afterwards
      params.credit.probes = words_of(EdgePlan::of(*learner.probes).tiles(others));
      probes_transposed = transposed(*learner.probes);
      params.credit.probes_transposed = words_of(probes_transposed);
    }
    if (learner.fixed) {
      params.credit.fixed = words_of(learner.fixed->tiles());
      fixed_transposed = EdgePlan::of(*learner.fixed).transposed_tiles();
      params.credit.fixed_transposed = words_of(fixed_transposed);
    }
    if (learner.discarded && learner_tensors->density_grad.defined()) {
      params.credit.discarded = words_of(learner.discarded->tiles());
      discarded_transposed = EdgePlan::of(*learner.discarded).transposed_tiles();
      params.credit.discarded_transposed = words_of(discarded_transposed);
    }
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    check_launch("tile_backward", kernels::cuda::launch_tile_backward(params, current_stream()));
    if (units) unit_credit(params, *units, words_of(EdgePlan::of(*in.learner->probes).unit_tiles()));
  } else {
    check_launch("float_tile_backward",
                 kernels::cuda::launch_float_tile_backward(params, tf32_products(in), current_stream()));
  }
}

}  // namespace

void forward_by_tiles(const AttentionInputs& in, const SparseHeads& others, AttentionForward& result,
                      TileState& state) {
  if (in.dtype == at::kFloat)
    check_launch("float_tile_forward",
                 kernels::cuda::launch_float_tile_forward(forward_params<float>(in, others, result, state),
                                                          tf32_products(in), current_stream()));
  else
    check_launch("tile_forward", kernels::cuda::launch_tile_forward(
                                     forward_params<Bf16>(in, others, result, state), current_stream()));
}

void backward_by_tiles(CudaBackward& pass, const TileState* state, const LearnerTensors* learner,
                       const SparseHeads& others) {
  pass.in.dtype == at::kFloat ? backward<float>(pass, state, learner, others)
                              : backward<Bf16>(pass, state, learner, others);
}

AttentionForward cuda_tiles_forward(const AttentionInputs& given) {
  const c10::cuda::CUDAGuard guard(given.query.device());
  const AttentionInputs in = for_kernels(given);
  AttentionForward result = empty_forward(in);
  const auto state = std::make_shared<TileState>();
  forward_by_tiles(in, {}, result, *state);
  result.state = state;
  return result;
}

AttentionBackward cuda_tiles_backward(const AttentionInputs& given, const AttentionForward& forward,
                                      const at::Tensor& grad_output, const at::Tensor& density_grad) {
  const c10::cuda::CUDAGuard guard(given.query.device());
  CudaBackward pass(given, forward, grad_output, density_grad);
  std::optional<LearnerTensors> learner;
  if (given.learns.exists()) {
    learner.emplace(pass);
    learner->give(pass.result, given.learns.clusters);
    pass.result.has_discarded = true;
  }
  backward_by_tiles(pass, static_cast<const TileState*>(forward.state.get()), learner ? &*learner : nullptr,
                    {});
  return pass.result;
}

}  // namespace edgewise::ops
