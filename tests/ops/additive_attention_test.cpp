// Attention with additive scores, and sparse products: against dense matrices and torch's own gradients, in
// every form of edges, at every CPU level, on every device.
#include <edgewise/graph/sparse_matrix.h>
#include <edgewise/ops/additive_attention.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "graph/repeated_heads.h"
#include "kit/cpu_level_guard.h"
#include "kit/devices.h"
#include "kit/message_of.h"
#include "kit/random_inputs.h"
#include "ops/attention/reference.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

using functional::AdditiveAttentionOptions;
using functional::Backend;
using testing::HasSubstr;

constexpr double kSlope = 0.2;

// Query 5 has no edge, key 4 is nobody's, and row 2 has a single edge.
EdgeSet some_edges(const EdgeShape& shape, int64_t seed = 7) {
  const at::Tensor mask = kit::random_mask(shape, 0.3, seed);
  mask.select(2, 5).fill_(false);
  mask.select(3, 4).fill_(false);
  mask.select(2, 2).fill_(false);
  mask.select(2, 2).select(2, 1).fill_(true);
  return EdgeSet::from_mask(mask);
}

// 0 or 1 / (1 - p) of every pair, as the kernels draw them.
at::Tensor dense_factors(const RandomStream& random, const EdgeShape& shape, double p) {
  const at::Tensor keys = ops::stream_keys(random, kernels::Purpose::kDropout, shape);
  const at::Tensor words = ops::reference::pair_words(keys, shape, at::kCPU);
  return (words.to(at::kDouble) >= p * 4294967296.0).to(at::kDouble) / (1 - p);
}

// The equations on [B, H, L, S] matrices in fp64, for torch to differentiate; `shift` is added to the scores.
struct DenseAttention {
  at::Tensor query_score, key_score, value, shift, scores, weights, output;

  DenseAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                 const at::Tensor& factors = {}) {
    const auto leaf = [](const at::Tensor& x) { return x.detach().cpu().to(at::kDouble).requires_grad_(); };
    query_score = leaf(q), key_score = leaf(k), value = leaf(v);
    shift = at::zeros(mask.sizes(), at::kDouble).requires_grad_();
    scores = at::leaky_relu(query_score.unsqueeze(3) + key_score.unsqueeze(2), kSlope) + shift;
    weights = scores.masked_fill(mask.logical_not(), -1e30).softmax(-1) * mask;
    output = at::matmul(factors.defined() ? weights * factors : weights, value);
  }
};

struct Inputs {
  at::Tensor query_score, key_score, value, grad;

  Inputs(const EdgeShape& shape, int64_t width, at::ScalarType dtype, at::Device device = at::kCPU) {
    const auto leaf = [&](at::IntArrayRef sizes, int64_t seed) {
      return (2 * kit::randn(sizes, seed, dtype)).to(device).requires_grad_();
    };
    query_score = leaf({shape.batch, shape.heads, shape.queries}, 1);
    key_score = leaf({shape.batch, shape.heads, shape.keys}, 2);
    // As a layer has it: heads inside of the nodes.
    value = leaf({shape.batch, shape.keys, shape.heads, width}, 3).detach().permute({0, 2, 1, 3});
    value.requires_grad_();
    grad = kit::randn({shape.batch, shape.heads, shape.queries, width}, 4, dtype).to(device);
  }
};

// Largest difference over the largest number.
double error(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor wide = found.detach().cpu().to(at::kDouble);
  return ((wide - expected).abs().max() / expected.abs().max().clamp_min(1e-3)).item<double>();
}

void check(const EdgeShape& shape, const EdgeSet& edges, int64_t width, double dropout, at::ScalarType dtype,
           Backend backend, double limit, at::Device device = at::kCPU) {
  const Inputs in(shape, width, dtype, device);
  AdditiveAttentionOptions options;
  options.dropout_p = dropout, options.random = {.seed = 5, .first_item = 3}, options.backend = backend;
  const at::Tensor output =
      functional::additive_edge_attention(in.query_score, in.key_score, in.value, edges.to(device), options)
          .output;
  output.backward(in.grad);
  const EdgeSet every = edges.shape().heads == 1 ? graph::repeated_heads(edges, shape.heads) : edges;
  const DenseAttention dense(in.query_score, in.key_score, in.value, every.to_mask(),
                             dropout > 0 ? dense_factors(options.random, shape, dropout) : at::Tensor());
  dense.output.backward(in.grad.cpu().to(at::kDouble));
  const std::string what = c10::str(to_string(edges.shape()), ", width ", width, ", dropout ", dropout, ", ",
                                    dtype, ", backend ", static_cast<int>(backend));
  EXPECT_LT(error(output, dense.output.detach()), limit) << what;
  EXPECT_LT(error(in.query_score.grad(), dense.query_score.grad()), limit) << what;
  EXPECT_LT(error(in.key_score.grad(), dense.key_score.grad()), limit) << what;
  EXPECT_LT(error(in.value.grad(), dense.value.grad()), limit) << what;
  EXPECT_EQ(output.select(2, 5).abs().sum().item<double>(), 0) << "a row without edges";
}

TEST(AdditiveAttention, EqualsDenseMatricesInFp64) {
  const EdgeShape shape{2, 3, 9, 11};
  EdgeShape one = shape;
  one.heads = 1;
  for (const Backend backend : {Backend::kKernel, Backend::kReference})
    for (const double dropout : {0.0, 0.4})
      for (const int64_t width : {1, 7, 8, 33}) {
        check(shape, some_edges(shape), width, dropout, at::kDouble, backend, 1e-12);
        check(shape, some_edges(one), width, dropout, at::kDouble, backend, 1e-12);
      }
}

TEST(AdditiveAttention, EveryCpuLevelEqualsDenseMatrices) {
  const EdgeShape shape{1, 4, 40, 37}, one{1, 1, 40, 37};
  for (const char* const level : {"scalar", "avx2", "avx512", "avx512bf16"}) {
    if (!kit::has_cpu_level(level)) continue;
    const kit::ForcedCpuLevel guard(level);
    for (const double dropout : {0.0, 0.6})
      for (const int64_t width : {1, 8, 7, 64, 100}) {
        check(shape, some_edges(shape), width, dropout, at::kFloat, Backend::kKernel, 5e-6);
        check(shape, some_edges(one), width, dropout, at::kFloat, Backend::kKernel, 5e-6);
      }
  }
}

class AdditiveAttentionOn : public kit::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AdditiveAttentionOn, kit::devices(), kit::device_name);

TEST_P(AdditiveAttentionOn, EqualsDenseMatrices) {
  const EdgeShape shape{2, 8, 40, 37}, one{2, 1, 40, 37};
  for (const double dropout : {0.0, 0.6})
    for (const int64_t width : {7, 8, 16, 32, 64, 121, 256}) {
      check(shape, some_edges(shape), width, dropout, at::kFloat, Backend::kKernel, 5e-6, device());
      check(shape, some_edges(one), width, dropout, at::kFloat, Backend::kKernel, 5e-6, device());
    }
}

// Scores far beyond what exp can take.
TEST_P(AdditiveAttentionOn, StaysFiniteWithLargeScores) {
  const EdgeShape shape{1, 1, 9, 11};
  Inputs in(shape, 8, at::kFloat, device());
  const at::Tensor query = (in.query_score.detach() * 300).requires_grad_(),
                   key = (in.key_score.detach() * 300).requires_grad_();
  const EdgeSet edges = some_edges(shape);
  const at::Tensor output =
      functional::additive_edge_attention(query, key, in.value, edges.to(device())).output;
  output.backward(in.grad);
  const DenseAttention dense(query, key, in.value, edges.to_mask());
  EXPECT_LT(error(output, dense.output.detach()), 1e-3);
  EXPECT_TRUE(query.grad().isfinite().all().item<bool>() && key.grad().isfinite().all().item<bool>());
}

// What a learner is told: by each rule on present edges, and of probes.
TEST_P(AdditiveAttentionOn, TellsTheLearnerTheEffectOfEveryEdge) {
  const EdgeShape shape{1, 4, 12, 13};
  const EdgeSet edges = some_edges(shape);
  const EdgeSet probes = some_edges(shape, 8).minus(edges);
  const at::Tensor mask = edges.to_mask(), absent = probes.to_mask();
  const Inputs shown(shape, 8, at::kFloat);
  const DenseAttention dense(shown.query_score, shown.key_score, shown.value, mask);
  const at::Tensor grad = shown.grad.to(at::kDouble);
  dense.output.backward(grad);
  const at::Tensor u = at::matmul(grad, dense.value.detach().transpose(2, 3)),
                   ubar = (grad * dense.output.detach()).sum(-1, true), weights = dense.weights.detach(),
                   scores = dense.scores.detach(),
                   lse = scores.masked_fill(mask.logical_not(), -1e30).logsumexp(-1, true);
  const at::Tensor logit = dense.shift.grad(), single = mask.sum(-1, true).eq(1);
  const at::Tensor probed = at::where(mask.any(-1, true), (scores - lse).sigmoid() * (u - ubar), u);
  const std::pair<CreditRule, at::Tensor> rules[] = {
      {CreditRule::kLogit, logit},
      {CreditRule::kPaper, logit * scores},
      {CreditRule::kLeaveOneOut, at::where(single, u, weights / (1 - weights) * (u - ubar))}};
  for (const auto& [rule, expected] : rules) {
    const Inputs in(shape, 8, at::kFloat, device());
    EdgeLearner learner;
    learner.rule = rule;
    learner.values = at::zeros({edges.edge_count()}, in.value.options()).detach().requires_grad_();
    learner.probes = probes.to(device());
    learner.probe_values = at::zeros({probes.edge_count()}, in.value.options()).detach().requires_grad_();
    functional::additive_edge_attention(in.query_score, in.key_score, in.value, edges.to(device()), {},
                                        &learner)
        .output.backward(in.grad);
    EXPECT_LT(error(learner.values.grad(), expected.masked_select(mask)), 1e-4) << static_cast<int>(rule);
    EXPECT_LT(error(learner.probe_values.grad(), probed.masked_select(absent)), 1e-4);
  }
}

// Memberships get the gradient of p_ij = query_membership_i . key_side_j, and rates divide that of probes.
TEST(AdditiveAttention, TeachesMemberships) {
  const EdgeShape shape{1, 2, 12, 13};
  const EdgeSet edges = some_edges(shape), probes = some_edges(shape, 8).minus(edges);
  const Inputs in(shape, 8, at::kDouble);
  const auto leaf = [&](int64_t nodes, int64_t seed) {
    return kit::rand({1, 2, nodes, 5}, seed, at::kDouble).requires_grad_();
  };
  EdgeLearner learner;
  learner.query_membership = leaf(12, 1), learner.key_side = leaf(13, 2);
  learner.probes = probes, learner.probe_rates = {0.25};
  functional::additive_edge_attention(in.query_score, in.key_score, in.value, edges, {}, &learner)
      .output.backward(in.grad);
  EdgeLearner counted;
  counted.values = at::zeros({edges.edge_count()}, at::kDouble).requires_grad_();
  counted.probes = probes;
  counted.probe_values = at::zeros({probes.edge_count()}, at::kDouble).requires_grad_();
  const Inputs again(shape, 8, at::kDouble);
  functional::additive_edge_attention(again.query_score, again.key_score, again.value, edges, {}, &counted)
      .output.backward(again.grad);
  const at::Tensor numbers =
      at::zeros({1, 2, 12, 13}, at::kDouble)
          .masked_scatter(edges.to_mask(), counted.values.grad())
          .add(at::zeros({1, 2, 12, 13}, at::kDouble)
                   .masked_scatter(probes.to_mask(), counted.probe_values.grad() / 0.25));
  EXPECT_LT(error(learner.query_membership.grad(), at::matmul(numbers, learner.key_side.detach())), 1e-12);
  EXPECT_LT(
      error(learner.key_side.grad(), at::matmul(numbers.transpose(2, 3), learner.query_membership.detach())),
      1e-12);
}

void check_sparse(int64_t heads, int64_t width, double dropout, at::ScalarType dtype, Backend backend,
                  double limit, at::Device device = at::kCPU) {
  const at::Tensor mask = kit::random_mask({1, 1, 30, 20}, 0.2, 3);
  mask.select(2, 4).fill_(false);
  const EdgeSet entries = EdgeSet::from_mask(mask);
  const SparseMatrix matrix = SparseMatrix::from_csr(20, entries.row_offsets(), entries.col_indices(),
                                                     kit::randn({entries.edge_count()}, 4, dtype))
                                  .to(device);
  const at::Tensor dense = kit::randn({1, heads, 20, width}, 5, dtype).to(device).requires_grad_(),
                   grad = kit::randn({1, heads, 30, width}, 6, dtype);
  const RandomStream random{.seed = 9};
  const at::Tensor product = functional::sparse_product(
      matrix.rows, matrix.row_values, matrix.columns, matrix.column_values, dense, dropout, random, backend);
  product.backward(grad.to(device));
  at::Tensor whole = at::zeros({1, 1, 30, 20}, at::kDouble)
                         .masked_scatter(mask, matrix.row_values.cpu().to(at::kDouble))
                         .expand({1, heads, 30, 20});
  if (dropout > 0) whole = whole * dense_factors(random, {1, heads, 30, 20}, dropout);
  const at::Tensor wide = dense.detach().cpu().to(at::kDouble).requires_grad_(),
                   expected = at::matmul(whole, wide);
  expected.backward(grad.to(at::kDouble));
  EXPECT_LT(error(product, expected.detach()), limit) << heads << " " << width << " " << dropout;
  EXPECT_LT(error(dense.grad(), wide.grad()), limit) << heads << " " << width << " " << dropout;
}

TEST(SparseProduct, EqualsTheDenseOne) {
  for (const double dropout : {0.0, 0.6})
    for (const int64_t width : {1, 8, 13}) {
      check_sparse(3, width, dropout, at::kDouble, Backend::kKernel, 1e-12);
      check_sparse(3, width, dropout, at::kDouble, Backend::kReference, 1e-12);
      check_sparse(8, width, dropout, at::kFloat, Backend::kKernel, 5e-6);
    }
}

TEST_P(AdditiveAttentionOn, SparseProductEqualsTheDenseOne) {
  for (const double dropout : {0.0, 0.6})
    for (const int64_t width : {7, 8, 64})
      check_sparse(8, width, dropout, at::kFloat, Backend::kKernel, 5e-6, device());
}

TEST(AdditiveAttention, ErrorsSayWhatIsExpected) {
  const EdgeShape shape{1, 2, 9, 11};
  const Inputs in(shape, 8, at::kFloat);
  const auto message = [&](const at::Tensor& query, const at::Tensor& key, const EdgeSet& edges,
                           const EdgeLearner* learner = nullptr) {
    return kit::message_of(
        [&] { functional::additive_edge_attention(query, key, in.value, edges, {}, learner); });
  };
  EXPECT_THAT(message(in.key_score, in.key_score, some_edges(shape)), HasSubstr("additive_edge_attention"));
  EXPECT_THAT(message(in.query_score, in.query_score, some_edges(shape)),
              HasSubstr("expected scores of the value's items, heads and keys"));
  EXPECT_THAT(message(in.query_score.to(at::kDouble), in.key_score, some_edges(shape)),
              HasSubstr("of one dtype"));
  EdgeLearner learner;
  learner.values = at::zeros({3});
  EXPECT_THAT(message(in.query_score, in.key_score, some_edges({1, 1, 9, 11}), &learner),
              HasSubstr("expected edges of every head with a learner"));
  EXPECT_THAT(message(in.query_score, in.key_score, some_edges(shape), &learner),
              HasSubstr("expected learner.values ["));
  const EdgeSet edges = some_edges(shape);
  learner.values = at::zeros({edges.edge_count()});
  learner.probes = some_edges({1, 2, 9, 12});
  EXPECT_THAT(message(in.query_score, in.key_score, edges, &learner),
              HasSubstr("expected probes among the pairs of the edges, [B=1, H=2, L=9, S=11]"));
  EXPECT_THAT(kit::message_of([&] {
                functional::additive_edge_attention(at::zeros({1, 0, 9}), at::zeros({1, 0, 11}),
                                                    at::zeros({1, 0, 11, 8}), EdgeSet::none({1, 0, 9, 11}));
              }),
              HasSubstr("expected at least one head"));
}

TEST(SparseProduct, ErrorsSayWhatIsExpected) {
  const SparseMatrix matrix =
      SparseMatrix::from_csr(4, at::tensor({0, 2, 3}, at::kLong), at::tensor({0, 3, 1}, at::kInt),
                             at::tensor({1., 2., 3.}, at::kFloat));
  const at::Tensor dense = at::ones({1, 2, 4, 3});
  const auto product = [&](const SparseMatrix& of) {
    return functional::sparse_product(of.rows, of.row_values, of.columns, of.column_values, dense);
  };
  SparseMatrix fewer = matrix;
  fewer.columns = EdgeSet::none({1, 1, 4, 2});
  EXPECT_THAT(kit::message_of([&] { product(fewer); }), HasSubstr("with as many entries; got 3 and 0"));
  EXPECT_THAT(kit::message_of([&] {
                SparseMatrix::from_csr(4, at::tensor({0, 2, 3}, at::kLong), at::tensor({0, 3, 1}, at::kInt),
                                       at::tensor({1., 2.}, at::kFloat));
              }),
              HasSubstr("expected a value for each of 3 entries; got [2]"));
  // Every other number of a tensor: what lies between is not read.
  SparseMatrix strided = matrix;
  strided.row_values = at::stack({matrix.row_values, at::full({3}, 99.0)}, 1).select(1, 0);
  strided.column_values = at::stack({matrix.column_values, at::full({3}, 99.0)}, 1).select(1, 0);
  ASSERT_FALSE(strided.row_values.is_contiguous());
  EXPECT_TRUE(at::equal(product(strided), product(matrix)));
}

}  // namespace
}  // namespace edgewise
