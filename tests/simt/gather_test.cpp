// Attention over lists, forward and backward, lane by lane on a CPU, against the CPU's own in fp64.
#include <edgewise/ops/functional.h>

#include "graph/edge_plan.h"
#include "kernels/cuda/lists/gather_params.h"
#include "kit/random_inputs.h"
#include "ops/streams.h"
#include "simt_kit.h"

namespace edgewise {
namespace {

using namespace simt_kit;

kernels::cuda::EdgeList by_queries(const EdgeSet& edges) {
  return {edges.row_offsets().const_data_ptr<int64_t>(), edges.col_indices().const_data_ptr<int32_t>()};
}
kernels::cuda::EdgeList by_keys(const EdgeSet& edges) {
  const graph::TransposedEdges& turned = graph::EdgePlan::of(edges).transposed();
  return {turned.column_offsets.const_data_ptr<int64_t>(), turned.row_indices.const_data_ptr<int32_t>()};
}

// With 32 clusters, probes, a density gradient and, if p > 0, dropout on the weights.
template <typename T>
void check(at::ScalarType dtype, int64_t dim, double dropout, double limit) {
  const EdgeShape shape{1, 2, 37, 53};
  at::Tensor mask = kit::random_mask(shape, 0.2, 7);
  mask.select(2, 3).fill_(false);
  const EdgeSet edges = EdgeSet::from_mask(mask),
                probes = EdgeSet::from_mask(kit::random_mask(shape, 0.1, 8).logical_and(mask.logical_not()));
  const auto make = [&](int64_t tokens, int64_t width, int64_t seed) {
    return kit::randn({1, 2, tokens, width}, seed, dtype);
  };
  const at::Tensor q = make(37, dim, 1), k = make(53, dim, 2), v = make(53, dim, 3), grad = make(37, dim, 4),
                   membership = kit::rand({1, 2, 37, 32}, 5, dtype),
                   side = kit::rand({1, 2, 53, 32}, 6, dtype);

  // What is expected.
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble).requires_grad_(); };
  const at::Tensor wide_q = wide(q), wide_k = wide(k), wide_v = wide(v);
  EdgeLearner learner;
  learner.query_membership = wide(membership);
  learner.key_side = wide(side);
  learner.probes = probes;
  learner.probe_rates = {0.1};
  functional::EdgeAttentionOptions options;
  options.dropout_p = dropout;
  options.random = {.seed = 5};
  const at::Tensor expected =
      functional::edge_attention(wide_q, wide_k, wide_v, edges, learner, options).output;
  expected.backward(grad.to(at::kDouble));

  // The kernels.
  const at::Tensor streams = ops::stream_keys(options.random, kernels::Purpose::kDropout, shape);
  kernels::cuda::GatherDropout dropped;
  if (dropout > 0) dropped = {keys_of(streams), dropout, static_cast<float>(1 / (1 - dropout))};
  const at::Tensor output = at::empty_like(q), lse = at::empty({2 * 37}), row_values = at::empty({2, 2 * 37});
  kernels::cuda::GatherForwardParams<T> forward;
  forward.shape = tile_shape(shape);
  forward.head_dim = dim;
  forward.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  forward.query = view<T>(q), forward.key = view<T>(k), forward.value = view<T>(v);
  forward.edges = by_queries(edges);
  forward.dropout = dropped;
  forward.output = mutable_view<T>(output);
  forward.lse = lse.mutable_data_ptr<float>();
  ASSERT_EQ(kernels::cuda::launch_gather_forward(forward, nullptr), 0);

  const at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v),
                   dm = at::empty({1, 2, 37, 32}), ds = at::empty({1, 2, 53, 32}), rates = at::full({1}, 0.1);
  kernels::cuda::GatherBackwardParams<T> backward;
  backward.shape = forward.shape;
  backward.head_dim = dim;
  backward.scale = forward.scale;
  backward.query = forward.query, backward.key = forward.key, backward.value = forward.value;
  backward.output = view<T>(output), backward.grad_output = view<T>(grad);
  backward.lse = forward.lse;
  backward.row_values = row_values.mutable_data_ptr<float>();
  backward.edges = forward.edges, backward.edges_by_keys = by_keys(edges);
  backward.dropout = dropped;
  backward.query_grad = mutable_view<T>(dq), backward.key_grad = mutable_view<T>(dk);
  backward.value_grad = mutable_view<T>(dv);
  backward.clusters = 32;
  backward.query_membership = view<T>(membership), backward.key_side = view<T>(side);
  backward.probes = by_queries(probes), backward.probes_by_keys = by_keys(probes);
  backward.probe_rates = rates.const_data_ptr<float>();
  backward.query_membership_grad = mutable_view<float>(dm), backward.key_side_grad = mutable_view<float>(ds);
  ASSERT_EQ(kernels::cuda::launch_gather_backward(backward, nullptr), 0);

  const std::string name = c10::str(dtype, ", head dim ", dim, ", dropout ", dropout);
  EXPECT_LT(error(output, expected), limit) << name;
  EXPECT_LT(error(dq, wide_q.grad()), limit) << name;
  EXPECT_LT(error(dk, wide_k.grad()), limit) << name;
  EXPECT_LT(error(dv, wide_v.grad()), limit) << name;
  EXPECT_LT(error(dm, learner.query_membership.grad()), limit) << name;
  EXPECT_LT(error(ds, learner.key_side.grad()), limit) << name;

  // The same without memberships, and a number per edge and per probe.
  for (const auto& [rule, public_rule] : {std::pair(kernels::CreditRule::kLogit, CreditRule::kLogit),
                                          {kernels::CreditRule::kPaper, CreditRule::kPaper},
                                          {kernels::CreditRule::kLeaveOneOut, CreditRule::kLeaveOneOut}}) {
    EdgeLearner counting;
    counting.rule = public_rule;
    counting.values = at::zeros({edges.edge_count()}, at::kDouble).requires_grad_();
    counting.probes = probes;
    counting.probe_values = at::zeros({probes.edge_count()}, at::kDouble).requires_grad_();
    functional::edge_attention(wide_q.detach(), wide_k.detach(), wide_v.detach(), edges, counting, options)
        .output.backward(grad.to(at::kDouble));
    const at::Tensor numbers = at::full({edges.edge_count()}, NAN),
                     of_probes = at::full({probes.edge_count()}, NAN);
    const at::Tensor same_dq = at::empty_like(q), same_dk = at::empty_like(k), same_dv = at::empty_like(v);
    backward.clusters = 0;
    backward.rule = rule;
    backward.edge_credit = numbers.mutable_data_ptr<float>();
    backward.probe_credit = of_probes.mutable_data_ptr<float>();
    backward.query_grad = mutable_view<T>(same_dq), backward.key_grad = mutable_view<T>(same_dk);
    backward.value_grad = mutable_view<T>(same_dv);
    ASSERT_EQ(kernels::cuda::launch_gather_backward(backward, nullptr), 0);
    const std::string what = name + ", rule " + std::to_string(static_cast<int>(rule));
    EXPECT_LT(error(numbers, counting.values.grad()), limit) << what;
    EXPECT_LT(error(of_probes, counting.probe_values.grad()), limit) << what;
    EXPECT_TRUE(at::equal(same_dq, dq) && at::equal(same_dk, dk) && at::equal(same_dv, dv)) << what;
  }
}

// A row of one edge, rows whose largest edge has nearly all of the weight, two that are alike.
TEST(SimtGather, LeavesOutTheLargestEdgeOfARow) {
  const EdgeShape shape{1, 1, 4, 6};
  const at::Tensor mask = at::ones({1, 1, 4, 6}, at::kBool);
  mask.select(2, 0).narrow(2, 1, 5).fill_(false);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  const at::Tensor q = kit::randn({1, 1, 4, 16}, 1, at::kFloat), k = kit::randn({1, 1, 6, 16}, 2, at::kFloat),
                   v = kit::randn({1, 1, 6, 16}, 3, at::kFloat),
                   grad = kit::randn({1, 1, 4, 16}, 4, at::kFloat);
  q.select(2, 1).copy_(k.select(2, 3) * 8);
  q.select(2, 2).copy_(k.select(2, 0) * 2);
  k.select(2, 5).copy_(k.select(2, 0));
  EdgeLearner learner;
  learner.rule = CreditRule::kLeaveOneOut;
  learner.values = at::zeros({edges.edge_count()}, at::kDouble).requires_grad_();
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
  functional::edge_attention(wide(q), wide(k), wide(v), edges, learner).output.backward(wide(grad));

  const at::Tensor output = at::empty_like(q), lse = at::empty({4}), row_values = at::empty({2, 4}),
                   dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v),
                   numbers = at::full({edges.edge_count()}, NAN);
  kernels::cuda::GatherForwardParams<float> forward;
  forward.shape = tile_shape(shape);
  forward.head_dim = 16, forward.scale = 0.25;
  forward.query = view<float>(q), forward.key = view<float>(k), forward.value = view<float>(v);
  forward.edges = by_queries(edges);
  forward.output = mutable_view<float>(output), forward.lse = lse.mutable_data_ptr<float>();
  ASSERT_EQ(kernels::cuda::launch_gather_forward(forward, nullptr), 0);
  kernels::cuda::GatherBackwardParams<float> backward;
  backward.shape = forward.shape, backward.head_dim = 16, backward.scale = forward.scale;
  backward.query = forward.query, backward.key = forward.key, backward.value = forward.value;
  backward.output = view<float>(output), backward.grad_output = view<float>(grad);
  backward.lse = forward.lse, backward.row_values = row_values.mutable_data_ptr<float>();
  backward.edges = forward.edges, backward.edges_by_keys = by_keys(edges);
  backward.query_grad = mutable_view<float>(dq), backward.key_grad = mutable_view<float>(dk);
  backward.value_grad = mutable_view<float>(dv);
  backward.rule = kernels::CreditRule::kLeaveOneOut;
  backward.edge_credit = numbers.mutable_data_ptr<float>();
  ASSERT_EQ(kernels::cuda::launch_gather_backward(backward, nullptr), 0);
  EXPECT_TRUE(at::allclose(wide(numbers), learner.values.grad(), 2e-5, 2e-6))
      << numbers << learner.values.grad();
}

TEST(SimtGather, EqualsTheReferenceWithAndWithoutDropout) {
  for (const double dropout : {0.0, 0.3}) {
    for (const int64_t dim : {16, 32, 64, 128}) check<float>(at::kFloat, dim, dropout, 2e-6);
    check<kernels::Bf16>(at::kBFloat16, 32, dropout, 1e-2);
  }
}

}  // namespace
}  // namespace edgewise
