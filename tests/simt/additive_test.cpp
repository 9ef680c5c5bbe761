// The CUDA kernels of attention with additive scores, lane by lane on a CPU, against the reference in fp64.
#include "kernels/cuda/additive/additive.h"
#include "kit/random_inputs.h"
#include "ops/additive/additive_views.h"
#include "ops/streams.h"
#include "simt_kit.h"

namespace edgewise {
namespace {

using namespace simt_kit;

// Rows of `width` numbers whose heads lie inside of the nodes.
at::Tensor rows(int64_t heads, int64_t nodes, int64_t width, int64_t seed) {
  return kit::randn({1, nodes, heads, width}, seed).permute({0, 2, 1, 3});
}
at::Tensor empty_rows(int64_t heads, int64_t nodes, int64_t width) {
  return at::full({1, nodes, heads, width}, NAN).permute({0, 2, 1, 3});
}

void check(int64_t width, bool shared, double dropout) {
  constexpr int64_t kHeads = 3, kQueries = 21, kKeys = 17;
  const EdgeShape shape{1, kHeads, kQueries, kKeys};
  const at::Tensor mask = kit::random_mask({1, shared ? 1 : kHeads, kQueries, kKeys}, 0.3, 7);
  mask.select(2, 3).fill_(false);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  const at::Tensor streams = ops::stream_keys({.seed = 5}, kernels::Purpose::kDropout, shape);
  ops::AdditiveInputs in{.query_score = kit::randn({1, kHeads, kQueries}, 1),
                         .key_score = kit::randn({1, kHeads, kKeys}, 2),
                         .value = rows(kHeads, kKeys, width, 3),
                         .edges = edges,
                         .dropout_p = dropout,
                         .head_keys = streams};
  if (!shared) {
    in.rule = kernels::CreditRule::kPaper;
    in.probes = EdgeSet::from_mask(kit::random_mask(shape, 0.2, 8)).minus(edges);
  }
  const at::Tensor grad = rows(kHeads, kQueries, width, 4);
  ops::AdditiveInputs wide = in;
  for (at::Tensor* each : {&wide.query_score, &wide.key_score, &wide.value}) *each = each->to(at::kDouble);
  const ops::AdditiveForward expected = ops::reference::additive_forward(wide);
  const ops::AdditiveBackward expected_grads =
      ops::reference::additive_backward(wide, expected, grad.to(at::kDouble));

  const at::Tensor output = empty_rows(kHeads, kQueries, width), lse = at::full({1, kHeads, kQueries}, NAN);
  kernels::AdditiveForwardParams<float> forward;
  ops::fill_call<float>(forward, in);
  forward.edges = ops::lists_by_rows(edges, kHeads);
  forward.output = ops::rows_to_fill<float>(output);
  forward.lse = lse.mutable_data_ptr<float>();
  ASSERT_EQ(kernels::cuda::launch_additive_forward(forward, nullptr), 0);
  const std::string what = c10::str("width ", width, ", shared ", shared, ", dropout ", dropout);
  EXPECT_LT(error(output, expected.output), 1e-6) << what;

  const at::Tensor ubar = at::full({1, kHeads, kQueries}, NAN), query_grad = at::full_like(ubar, NAN),
                   key_grad = at::full({1, kHeads, kKeys}, NAN),
                   value_grad = empty_rows(kHeads, kKeys, width),
                   credit = at::full({edges.edge_count()}, NAN);
  kernels::AdditiveRowsParams<float> by_rows;
  ops::fill_call<float>(by_rows, in);
  by_rows.edges = forward.edges;
  by_rows.output = ops::rows_of<float>(output), by_rows.grad_output = ops::rows_of<float>(grad);
  by_rows.lse = forward.lse;
  by_rows.ubar = ubar.mutable_data_ptr<float>();
  by_rows.query_score_grad = query_grad.mutable_data_ptr<float>();
  by_rows.rule = in.rule;
  by_rows.credit = credit.mutable_data_ptr<float>();
  ASSERT_EQ(kernels::cuda::launch_additive_rows(by_rows, nullptr), 0);
  EXPECT_LT(error(query_grad, expected_grads.query_score), 3e-6) << what;

  kernels::AdditiveColumnsParams<float> by_columns;
  ops::fill_call<float>(by_columns, in);
  by_columns.edges = ops::lists_by_columns(edges, kHeads);
  by_columns.grad_output = by_rows.grad_output;
  by_columns.lse = forward.lse, by_columns.ubar = by_rows.ubar;
  by_columns.key_score_grad = key_grad.mutable_data_ptr<float>();
  by_columns.value_grad = ops::rows_to_fill<float>(value_grad);
  ASSERT_EQ(kernels::cuda::launch_additive_columns(by_columns, nullptr), 0);
  EXPECT_LT(error(key_grad, expected_grads.key_score), 3e-6) << what;
  EXPECT_LT(error(value_grad, expected_grads.value), 3e-6) << what;

  if (shared) return;
  EXPECT_LT(error(credit, expected_grads.credit), 3e-6) << what;
  const at::Tensor probe_credit = at::full({in.probes->edge_count()}, NAN);
  kernels::AdditiveProbesParams<float> probes;
  ops::fill_call<float>(probes, in);
  probes.edges = ops::lists_by_rows(*in.probes, kHeads);
  probes.grad_output = by_rows.grad_output;
  probes.lse = forward.lse, probes.ubar = by_rows.ubar;
  probes.credit = probe_credit.mutable_data_ptr<float>();
  ASSERT_EQ(kernels::cuda::launch_additive_probes(probes, nullptr), 0);
  EXPECT_LT(error(probe_credit, expected_grads.probe_credit), 3e-6) << what;
}

TEST(SimtAdditive, EqualsTheReference) {
  for (const int64_t width : {8, 16, 32, 64, 128, 256})
    for (const bool shared : {false, true})
      for (const double dropout : {0.0, 0.4}) check(width, shared, dropout);
}

TEST(SimtAdditive, SparseProductEqualsTheReference) {
  const EdgeSet entries = EdgeSet::from_mask(kit::random_mask({1, 1, 21, 17}, 0.3, 7));
  for (const bool turned : {false, true})
    for (const double dropout : {0.0, 0.4}) {
      ops::SparseInputs in{
          .entries = entries,
          .weights = kit::randn({entries.edge_count()}, 1),
          .dense = rows(3, 17, 16, 2),
          .dropout_p = dropout,
          .head_keys = ops::stream_keys({.seed = 5}, kernels::Purpose::kDropout, {1, 3, 21, 17}),
          .turned = turned};
      ops::SparseInputs wide = in;
      wide.weights = in.weights.to(at::kDouble), wide.dense = in.dense.to(at::kDouble);
      const at::Tensor expected = ops::reference::sparse_product(wide), out = empty_rows(3, 21, 16);
      kernels::SparseProductParams<float> params;
      params.entries = ops::lists_by_rows(entries, 3);
      params.width = 16;
      params.weights = in.weights.const_data_ptr<float>();
      params.dropout = ops::dropout_params(dropout, in.head_keys);
      params.turned = turned;
      params.dense = ops::rows_of<float>(in.dense);
      params.out = ops::rows_to_fill<float>(out);
      ASSERT_EQ(kernels::cuda::launch_sparse_product(params, nullptr), 0);
      EXPECT_LT(error(out, expected), 1e-6);
    }
}

}  // namespace
}  // namespace edgewise
