// Heads in blocks of all pairs with the edges masked, against the kernels that gather edges.
#include "ops/attention/masked_blocks.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <limits>

#include "kit/random_inputs.h"

namespace edgewise::ops {
namespace {

struct Problem {
  AttentionInputs in;
  at::Tensor grad;
  AttentionForward gathered;

  explicit Problem(const EdgeShape& s, int64_t dim, int64_t value_dim, double density) {
    const at::Tensor q = kit::randn({s.batch, s.heads, s.queries, dim}, 1, at::kFloat),
                     k = kit::randn({s.batch, s.heads, s.keys, dim}, 2, at::kFloat),
                     v = kit::randn({s.batch, s.heads, s.keys, value_dim}, 3, at::kFloat);
    at::Tensor mask = kit::random_mask(s, density, 4);
    mask.select(2, s.queries / 2).fill_(false);  // a row with no edge
    mask.select(2, 0).fill_(true);
    in = attention_inputs(q, k, v, EdgeSet::from_mask(mask), std::nullopt);
    grad = kit::randn({s.batch, s.heads, s.queries, value_dim}, 5, at::kFloat);
    gathered = kernel_forward(in);
  }
};

void expect_close(const at::Tensor& found, const at::Tensor& expected, const char* what) {
  EXPECT_TRUE(at::allclose(found, expected, 1e-5, 2e-6)) << what;
}

TEST(MaskedBlocks, AgreeWithGatheredEdges) {
  const at::NoGradGuard guard;
  for (const double density : {0.05, 0.5, 0.97}) {
    SCOPED_TRACE(density);
    const Problem p({2, 2, 150, 133}, 24, 40, density);
    AttentionForward forward{at::empty_like(p.gathered.output), at::empty_like(p.gathered.lse), {}};
    const std::vector<char> all = {1, 1, 1, 1};
    masked_forward(p.in, all, forward);
    expect_close(forward.output, p.gathered.output, "output");
    EXPECT_TRUE(at::allclose(forward.lse, p.gathered.lse, 1e-5, 1e-5));  // -inf where there is no edge
    const AttentionBackward expected = kernel_backward(p.in, p.gathered, p.grad, {});
    AttentionBackward found;
    found.query = at::empty_like(expected.query), found.key = at::empty_like(expected.key);
    found.value = at::empty_like(expected.value);
    masked_backward(p.in, all, forward, p.grad, found);
    expect_close(found.query, expected.query, "query");
    expect_close(found.key, expected.key, "key");
    expect_close(found.value, expected.value, "value");
  }
}

TEST(MaskedBlocks, RunInInferenceModeOnAllThreads) {
  const Problem p({2, 2, 150, 133}, 24, 40, 0.97);
  const c10::InferenceMode guard;
  AttentionForward forward{at::empty(p.gathered.output.sizes()), at::empty(p.gathered.lse.sizes()), {}};
  masked_forward(p.in, {1, 1, 1, 1}, forward);
  expect_close(forward.output, p.gathered.output, "output");
}

// A number that is not finite stays with its own query, as where edges are gathered.
TEST(MaskedBlocks, WhatIsNotFiniteDoesNotSpread) {
  const at::NoGradGuard guard;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Problem p({1, 1, 600, 600}, 32, 32, 0.97);
  ASSERT_TRUE(plan_heads(p.in).any_forward());
  ASSERT_TRUE(plan_heads(p.in).any_backward());
  p.grad.select(2, 300).fill_(nan);  // the row with no edge
  const AttentionBackward backward = kernel_backward(p.in, kernel_forward(p.in), p.grad, {});
  EXPECT_TRUE(is_finite(backward.key) && is_finite(backward.value));
  p.in.query = p.in.query.clone();
  p.in.query.select(2, 7).fill_(nan);
  const AttentionForward forward = kernel_forward(p.in);
  EXPECT_TRUE(forward.output.select(2, 7).isnan().all().item<bool>());
  EXPECT_TRUE(is_finite(forward.output.slice(2, 8)));
}

TEST(MaskedBlocks, HugeScoresStayNormalised) {
  const at::NoGradGuard guard;
  Problem p({1, 1, 70, 65}, 16, 16, 0.6);
  p.in.scale = 40;  // scores in the hundreds, and larger ones where there is no edge
  const AttentionForward expected = kernel_forward(p.in);
  AttentionForward found{at::empty_like(expected.output), at::empty_like(expected.lse), {}};
  masked_forward(p.in, {1}, found);
  EXPECT_TRUE(at::allclose(found.output, expected.output, 1e-4, 1e-4));
  EXPECT_TRUE(at::allclose(found.lse, expected.lse, 1e-5, 1e-3));
}

TEST(MaskedBlocks, PlannedHeadsOnlyAreFilled) {
  const at::NoGradGuard guard;
  const Problem p({1, 2, 80, 80}, 16, 16, 0.5);
  AttentionForward found{at::zeros_like(p.gathered.output), at::zeros_like(p.gathered.lse), {}};
  masked_forward(p.in, {0, 1}, found);
  EXPECT_TRUE(at::equal(found.output.select(1, 0), at::zeros_like(found.output.select(1, 0))));
  expect_close(found.output.select(1, 1), p.gathered.output.select(1, 1), "the planned head");
}

TEST(MaskedBlocks, AreChosenPerHeadByTheNumberOfEdges) {
  const at::NoGradGuard guard;
  const EdgeShape s{1, 2, 512, 512};
  at::Tensor mask = kit::random_mask(s, 0.9, 6);
  mask.select(1, 0).logical_and_(kit::random_mask(s, 0.1, 7).select(1, 0));
  AttentionInputs in =
      attention_inputs(kit::randn({1, 2, 512, 32}, 1, at::kFloat), kit::randn({1, 2, 512, 32}, 2, at::kFloat),
                       kit::randn({1, 2, 512, 32}, 3, at::kFloat), EdgeSet::from_mask(mask), {});
  EXPECT_EQ(plan_heads(in).backward, (std::vector<char>{0, 1}));
  const at::Tensor grad = kit::randn({1, 2, 512, 32}, 4, at::kFloat);
  const AttentionForward forward = kernel_forward(in);
  const AttentionBackward expected = kernel_backward(in, forward, grad, {}, /*gather=*/true),
                          found = kernel_backward(in, forward, grad, {}, /*gather=*/false);
  expect_close(found.query, expected.query, "query");
  expect_close(found.key, expected.key, "key");
  expect_close(found.value, expected.value, "value");
  // A key that is no number must not reach rows that have no edge to it.
  in.key.select(2, 3).fill_(NAN);
  EXPECT_FALSE(plan_heads(in).any_backward());
}

TEST(MaskedBlocks, TheSameBitsOnAnyNumberOfThreads) {
  const at::NoGradGuard guard;
  const Problem p({1, 3, 200, 190}, 32, 32, 0.8);
  std::vector<at::Tensor> results;
  const int before = at::get_num_threads();
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    AttentionForward forward{at::empty_like(p.gathered.output), at::empty_like(p.gathered.lse), {}};
    masked_forward(p.in, {1, 1, 1}, forward);
    AttentionBackward found;
    found.query = at::empty_like(p.in.query), found.key = at::empty_like(p.in.key);
    found.value = at::empty_like(p.in.value);
    masked_backward(p.in, {1, 1, 1}, forward, p.grad, found);
    results.push_back(at::cat({forward.output.reshape(-1), found.query.reshape(-1), found.key.reshape(-1),
                               found.value.reshape(-1)}));
  }
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(results[0], results[1]));
}

}  // namespace
}  // namespace edgewise::ops
