// edge_attention on CUDA: which kernel takes a call, tensors to raw pointers.
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include "graph/cuda_launch.h"
#include "graph/tiles_cuda.h"
#include "kernels/cuda/gather_params.h"
#include "ops/cuda_impl.h"
#include "ops/step_inputs.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using graph::few_edges;
using graph::tile_shape;
using graph::words_of;
using kernels::Bf16;
using kernels::cuda::HeadTensor;

// Below this density visiting edges one by one beats tiles (docs/kernels/cuda-gather.md).
constexpr double kGatherDensity = 0.022;
// And below these windows do (docs/kernels/cuda-windows.md): backward, where the lists count against them;
// and forward, where they do only if no backward pass needs them anyway. With dropout both are the same: a
// head that goes one way forward and the other back draws what is dropped twice.
double backward_window_density(int64_t head_dim, int64_t clusters, bool dropout) {
  if (head_dim == 32) return clusters != 32 ? 0.045 : dropout ? 0.06 : 0.055;
  return clusters == 0 ? 0.03 : 0.04;
}
double forward_window_density(int64_t head_dim, std::optional<double> backward, bool dropout) {
  if (!backward) return head_dim == 32 ? 0.03 : 0.024;
  return dropout ? *backward : std::min(head_dim == 32 ? 0.045 : 0.04, *backward);
}
// Lists of windows up to this size stay from the forward pass for the backward pass.
constexpr int64_t kKeptWindowBytes = int64_t{1} << 29;
constexpr int64_t kLargestTileBytes = int64_t{1} << 31;

template <typename T>
HeadTensor<const T> view(const at::Tensor& x) {
  return {reinterpret_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}
template <typename T>
HeadTensor<T> mutable_view(const at::Tensor& x) {
  return {reinterpret_cast<T*>(x.mutable_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

// The kernels read 16 bytes at a time along a row.
bool rows_aligned(const at::Tensor& x) {
  const int64_t step = 16 / x.element_size();
  return x.stride(3) == 1 && x.stride(2) % step == 0 && x.stride(1) % step == 0 && x.stride(0) % step == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}
at::Tensor aligned(const at::Tensor& x) {
  return rows_aligned(x) ? x : x.clone(at::MemoryFormat::Contiguous);
}

// [B, H, N, D] whose memory is [B, N, H, D], so that joining the heads afterwards costs nothing.
at::Tensor empty_heads(const at::Tensor& like, int64_t tokens, int64_t width) {
  return at::empty({like.size(0), tokens, like.size(1), width}, like.options()).permute({0, 2, 1, 3});
}

// Clusters as the kernels take them: 32 or 128, missing ones 0.
int64_t padded_clusters(int64_t clusters) {
  return clusters <= 32 ? 32 : 128;
}
at::Tensor members(const at::Tensor& membership, at::ScalarType dtype) {
  const int64_t clusters = membership.size(3), wanted = padded_clusters(clusters);
  at::Tensor result = membership.detach().to(dtype);
  if (clusters < wanted) result = at::constant_pad_nd(result, {0, wanted - clusters});
  return aligned(result);
}

// Whether the host knows that the edges are at most this part of all pairs.
bool rarer_than(double density, const EdgeSet& edges) {
  return edges.has_csr() &&
         static_cast<double>(edges.edge_count()) < density * static_cast<double>(edges.shape().pairs());
}

// Milliseconds of a call in float32, forward and, if gradients follow, backward, from what an H200 was
// measured to take with all its SMs at work (docs/kernels/cuda-tiles.md, "fp32"), in picoseconds: an edge
// costs its gathered rows and, where there are only tiles yet, its places in the lists; a pair of a tile its
// products.
struct FloatCosts {
  double gather_ms, tiles_ms;
};
FloatCosts float_costs(const AttentionInputs& in, int64_t edge_count) {
  const double edges = static_cast<double>(edge_count), pairs = static_cast<double>(in.edges.shape().pairs()),
               dim = static_cast<double>(in.query.size(3)), probes = in.learner_probes * (pairs - edges),
               clusters =
                   in.learner_clusters > 0 ? static_cast<double>(padded_clusters(in.learner_clusters)) : 0;
  constexpr double kList = 12, kListByKeys = 128;  // of an edge that only tiles have
  const bool once = in.matmul == Float32Matmul::kTf32, listed = in.edges.has_csr();
  double gather_ps = edges * (6 + dim + (listed ? 0 : kList));
  double pair_ps = once ? 0.35 + 0.0235 * dim : 0.0685 * dim;
  if (in.gradients_follow) {
    gather_ps += (edges + probes) * (2 * dim + 1.2 * clusters) + (listed ? 0 : edges * kListByKeys) +
                 probes * (kList + kListByKeys);
    pair_ps += once ? 0.7 + 0.095 * dim + 0.06 * clusters : 0.244 * dim + 0.11 * clusters;
  }
  return {gather_ps * 1e-9, pairs * pair_ps * 1e-9};
}

// What a launch takes, and what one would give room to.
bool tiles_take(const EdgeShape& shape) {
  return shape.batch * shape.heads <= 65535 && shape.pairs() / 8 < kLargestTileBytes;
}

bool by_gather(const AttentionInputs& in) {
  if (in.query.scalar_type() == at::kFloat && in.matmul == Float32Matmul::kIeee) return true;
  if (in.dropout_p > 0) return false;  // only tiles and windows know dropout
  if (in.query.scalar_type() == at::kFloat) {
    if (in.learner_fixes) return false;  // only tiles know these
    if (!tiles_take(in.edges.shape())) return true;
    if (!in.known_edges) return false;
    const FloatCosts costs = float_costs(in, *in.known_edges);
    return costs.gather_ms < costs.tiles_ms;
  }
  return rarer_than(kGatherDensity, in.edges);
}

// Why float32 goes the way it does.
std::string float_reason(const AttentionInputs& in) {
  std::string reason =
      "float32 products by " + std::string(to_string(in.matmul)) + " (" + float32_matmul_reason() + ")";
  if (in.matmul == Float32Matmul::kIeee) return reason + ": tensor cores have none";
  if (in.dropout_p > 0) return reason + ": only tiles know dropout";
  if (in.learner_fixes) return reason + ": only tiles know edges that the learner did not decide";
  if (!tiles_take(in.edges.shape())) return reason + ": too many pairs for tiles";
  if (!in.known_edges) return reason + ": nobody has counted the edges";
  const FloatCosts costs = float_costs(in, *in.known_edges);
  return c10::str(reason, ": predicted ", costs.gather_ms, " ms by gather, ", costs.tiles_ms, " ms by tiles");
}

// Up to which density the backward pass that may follow wants lists, if it does.
std::optional<double> backward_lists(const AttentionInputs& in) {
  const int64_t dim = in.query.size(3),
                clusters = in.learner_clusters > 0 ? padded_clusters(in.learner_clusters) : 0;
  if (!in.gradients_follow || !kernels::cuda::window_backward_takes(dim, clusters)) return std::nullopt;
  return backward_window_density(dim, clusters, in.dropout_p > 0);
}
double forward_window_density(const AttentionInputs& in) {
  return forward_window_density(in.query.size(3), backward_lists(in), in.dropout_p > 0);
}

// Forward: heads with few edges by windows, as the device finds, the others by tiles. Edges that go one by
// one do so both ways: windows are no faster there, and their log-sum-exp is of weights rounded to bf16,
// which the backward pass one by one would not share.
bool by_windows(const AttentionInputs& in) {
  const EdgeShape& shape = in.edges.shape();
  if (by_gather(in) || in.query.scalar_type() == at::kFloat) return false;
  if (!kernels::cuda::window_forward_takes(in.query.size(3))) return false;
  // Lists take twice the room of tiles, and a launch takes so many heads.
  if (shape.pairs() / 8 >= kLargestTileBytes || shape.batch * shape.heads > 65535) return false;
  return !in.edges.has_csr() || rarer_than(forward_window_density(in), in.edges);
}

// The same backward; else why not.
std::string window_backward_refusal(const AttentionInputs& in, const EdgeCredit* credit) {
  const EdgeShape& shape = in.edges.shape();
  const int64_t dim = in.query.size(3),
                clusters = credit ? padded_clusters(credit->query_membership.size(3)) : 0;
  if (in.query.scalar_type() == at::kFloat) return "float32";
  if (!kernels::cuda::window_backward_takes(dim, clusters))
    return "head dim " + std::to_string(dim) + " with " + std::to_string(clusters) + " clusters";
  if (shape.pairs() / 8 >= kLargestTileBytes || shape.batch * shape.heads > 65535)
    return "lists of windows would be large";
  if (credit && credit->fixed) return "edges that the learner did not decide";
  if (credit && credit->discarded) return "edges that were drawn but not attended";
  if (credit && credit->probes && !credit->probes->units()) return "probes that come one by one";
  if (in.edges.has_csr() && !rarer_than(backward_window_density(dim, clusters, in.dropout_p > 0), in.edges))
    return "too many edges";
  return "";
}

// Edges that were given may have structure; sampled ones leave no tile empty.
kernels::cuda::UsedTiles used_tiles(const EdgeSet& edges) {
  if (!edges.has_csr()) return {};
  const at::Tensor& flags = edges.used_tiles();
  return {flags.const_data_ptr<uint8_t>(), flags.stride(0), flags.stride(1), flags.stride(2)};
}

// As the kernels read them: rows aligned, keys of the dropout on the device.
AttentionInputs for_kernels(AttentionInputs in) {
  in.query = aligned(in.query);
  in.key = aligned(in.key);
  in.value = aligned(in.value);
  if (in.dropout_p > 0) in.head_keys = in.head_keys.to(in.query.device(), /*non_blocking=*/true);
  return in;
}
const uint64_t* stream_keys(const AttentionInputs& in) {
  return reinterpret_cast<const uint64_t*>(in.head_keys.const_data_ptr<int64_t>());
}

// The edges that dropout removes: as tiles, without those of the heads `without`; and of the entries of
// lists.
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
const uint16_t* dropped_bits(const graph::EdgeWindows& windows) {
  return windows.dropped.defined()
             ? reinterpret_cast<const uint16_t*>(windows.dropped.const_data_ptr<int16_t>())
             : nullptr;
}
float keep_scale(const AttentionInputs& in) {
  return in.dropout_p < 1 ? static_cast<float>(1 / (1 - in.dropout_p)) : 0;
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
  if (credit.probes) params.credit.probes = words_of(credit.probes->tiles());
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

kernels::cuda::Tf32 tf32_products(const AttentionInputs& in) {
  return in.matmul == Float32Matmul::kTf32 ? kernels::cuda::Tf32::kOnce : kernels::cuda::Tf32::kThrice;
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
    if (units) {
      params.credit.probes = nullptr;  // a pass of their own, afterwards
    } else if (credit.probes) {
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
    if (units) unit_credit(params, *units, words_of(request.learner->probes->tiles()));
  } else {
    check_launch("float_tile_backward",
                 kernels::cuda::launch_float_tile_backward(params, tf32_products(in), current_stream()));
  }
}

}  // namespace

CudaChoice choose_cuda_attention(const AttentionInputs& in, const EdgeCredit* credit) {
  const auto dtype = in.query.scalar_type();
  const int64_t dim = in.query.size(3);
  if (!in.query.is_cuda()) return {"", "the tensors are not on a CUDA device"};
  if (at::cuda::getDeviceProperties(in.query.get_device())->major != 9)
    return {"", "the kernels are built for Hopper (compute capability 9.0)"};
  if (dtype != at::kBFloat16 && dtype != at::kFloat) return {"", "the kernels take bfloat16 and float32"};
  if (in.dropout_p > 0 && dtype == at::kFloat && in.matmul == Float32Matmul::kIeee)
    return {"", "dropout on the attention weights in float32 with ieee products"};
  if (in.value.size(3) != dim) return {"", "value and key of different head dims"};
  if (in.edges.shape().pairs() == 0) return {"", "no pairs"};
  const bool gather = by_gather(in);
  if (!gather && in.edges.shape().batch * in.edges.shape().heads > 65535)
    return {"", "more than 65,535 items x heads in tiles"};
  if (!gather && dtype == at::kFloat && !tiles_take(in.edges.shape()))
    return {"", "too many pairs for tiles, which dropout and a union with a pattern need in float32"};
  const int64_t clusters = credit ? padded_clusters(credit->query_membership.size(3)) : 0;
  if (gather && credit && credit->fixed)
    return {"", "edges that the learner did not decide (a union with a pattern), one by one"};
  if (credit)
    if (const std::string refusal = cuda_learner_refusal(credit->query_membership.size(3), *credit);
        !refusal.empty())
      return {"", refusal};
  if (gather ? !kernels::cuda::gather_takes(dim, clusters)
             : !kernels::cuda::tile_forward_takes(dim) || !kernels::cuda::tile_backward_takes(dim, clusters))
    return {"", "head dim " + std::to_string(dim) + " with " + std::to_string(clusters) +
                    " clusters is not built"};
  if (dtype == at::kFloat) return {gather ? "gather" : "tiles", float_reason(in)};
  if (gather) return {"gather", "edges are rare"};
  if (by_windows(in)) {
    const std::string refusal = window_backward_refusal(in, credit);
    return {"windows and tiles",
            refusal.empty()
                ? "by windows for heads with few edges, as the device counts them, else by tiles"
                : "forward by windows for heads with few edges, as the device counts them, else by tiles; "
                  "backward by tiles: " +
                      refusal};
  }
  return {"tiles", in.edges.has_csr() ? "edges are dense enough" : "the edges are tiles already"};
}

std::optional<int64_t> cuda_edge_count(const EdgeSet& edges) {
  if (edges.has_csr()) return edges.edge_count();
  const c10::cuda::CUDAGuard guard(edges.device());
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None)
    return std::nullopt;
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
    if (in.gradients_follow && windows->entries.numel() * 4 <= kKeptWindowBytes)
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
