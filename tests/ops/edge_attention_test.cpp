// edge_attention against plain loops in fp64 and finite differences, for every back end and dtype.
#include <edgewise/ops/functional.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "kit/plain_attention.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

using functional::Backend;
using functional::edge_attention;
using functional::EdgeAttentionOptions;
using ::testing::HasSubstr;

struct Implementation {
  const char* name;
  Backend backend;
  at::ScalarType dtype;
  double tolerance;
};

class EdgeAttention : public ::testing::TestWithParam<Implementation> {
 protected:
  EdgeAttentionOptions options() const {
    EdgeAttentionOptions result;
    result.backend = GetParam().backend;
    return result;
  }
  at::Tensor input(at::IntArrayRef sizes, int64_t seed) const {
    return kit::randn(sizes, seed, GetParam().dtype).requires_grad_();
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, EdgeAttention,
    ::testing::Values(Implementation{"kernel_f32", Backend::kKernel, at::kFloat, 1e-5},
                      Implementation{"kernel_f64", Backend::kKernel, at::kDouble, 1e-12},
                      Implementation{"kernel_bf16", Backend::kKernel, at::kBFloat16, 3e-2},
                      Implementation{"auto_f32", Backend::kAuto, at::kFloat, 1e-5},  // dense when complete
                      Implementation{"edge_list_f32", Backend::kReference, at::kFloat, 1e-5},
                      Implementation{"edge_list_f64", Backend::kReference, at::kDouble, 1e-12},
                      Implementation{"edge_list_bf16", Backend::kReference, at::kBFloat16, 3e-2},
                      Implementation{"dense_f32", Backend::kDense, at::kFloat, 1e-5},
                      Implementation{"dense_f64", Backend::kDense, at::kDouble, 1e-12},
                      Implementation{"dense_bf16", Backend::kDense, at::kBFloat16, 3e-2}),
    [](const auto& given) { return std::string(given.param.name); });

struct Case {
  EdgeShape shape;
  int64_t dim, value_dim;
  double density;
  const char* why;
};

const std::vector<Case> kCases = {
    {{2, 3, 17, 23}, 8, 8, 0.3, "sizes that divide nothing"},
    {{1, 1, 1, 1}, 4, 4, 1.0, "one token"},
    {{2, 2, 9, 9}, 5, 3, 0.05, "many rows with no edge; value dim differs"},
    {{1, 2, 70, 70}, 16, 16, 1.0, "fully dense, more rows than one task"},
    {{2, 1, 4, 6}, 8, 8, 0.0, "no edge at all"},
    {{0, 2, 4, 4}, 8, 8, 0.5, "empty batch"},
    {{1, 1, 3, 0}, 8, 8, 0.5, "no keys"},
};

TEST_P(EdgeAttention, AgreesWithPlainLoops) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.why);
    const auto& s = c.shape;
    const at::Tensor q = input({s.batch, s.heads, s.queries, c.dim}, 1),
                     k = input({s.batch, s.heads, s.keys, c.dim}, 2);
    const at::Tensor v = input({s.batch, s.heads, s.keys, c.value_dim}, 3);
    const at::Tensor mask = kit::random_mask(s, c.density, 4);
    const EdgeSet edges = EdgeSet::from_mask(mask);
    const double scale = 1 / std::sqrt(static_cast<double>(c.dim));
    const at::Tensor expected = kit::plain_attention(q.detach().to(at::kDouble), k.detach().to(at::kDouble),
                                                     v.detach().to(at::kDouble), mask, scale);
    const at::Tensor output = edge_attention(q, k, v, edges, options());
    EXPECT_EQ(output.scalar_type(), GetParam().dtype);
    EXPECT_TRUE(at::allclose(output.to(at::kDouble), expected, GetParam().tolerance, GetParam().tolerance));
  }
}

TEST_P(EdgeAttention, GradientsAgreeWithFp64Autograd) {
  const EdgeShape s{2, 2, 13, 11};
  const at::Tensor mask = kit::random_mask(s, 0.25, 5);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  const at::Tensor q = input({2, 2, 13, 8}, 1), k = input({2, 2, 11, 8}, 2), v = input({2, 2, 11, 6}, 3);
  const at::Tensor weight = kit::randn({2, 2, 13, 6}, 4, GetParam().dtype);
  (edge_attention(q, k, v, edges, options()) * weight).sum().backward();

  const auto wide = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(); };
  const at::Tensor q64 = wide(q), k64 = wide(k), v64 = wide(v);
  const at::Tensor logits = at::matmul(q64, k64.transpose(2, 3)) / std::sqrt(8.0);
  const at::Tensor weights = logits.masked_fill(~mask, -INFINITY).softmax(-1).masked_fill(~mask, 0);
  (at::matmul(weights.nan_to_num(0), v64) * weight.to(at::kDouble)).sum().backward();
  const double tolerance = GetParam().tolerance * 4;
  EXPECT_TRUE(at::allclose(q.grad().to(at::kDouble), q64.grad().nan_to_num(0), tolerance, tolerance));
  EXPECT_TRUE(at::allclose(k.grad().to(at::kDouble), k64.grad().nan_to_num(0), tolerance, tolerance));
  EXPECT_TRUE(at::allclose(v.grad().to(at::kDouble), v64.grad(), tolerance, tolerance));
}

TEST_P(EdgeAttention, GradientsAgreeWithFiniteDifferences) {
  if (GetParam().dtype != at::kDouble)
    return;  // differences need fp64; the other dtypes are compared with it above
  const EdgeShape s{1, 2, 5, 4};
  const EdgeSet edges = EdgeSet::from_mask(kit::random_mask(s, 0.5, 6));
  std::vector<at::Tensor> inputs = {input({1, 2, 5, 3}, 1), input({1, 2, 4, 3}, 2), input({1, 2, 4, 2}, 3)};
  const at::Tensor weight = kit::randn({1, 2, 5, 2}, 4, at::kDouble);
  EdgeAttentionOptions with_dropout = options();
  with_dropout.dropout_p = 0.3;
  for (const auto& o : {options(), with_dropout}) {
    const auto loss = [&] {
      return (edge_attention(inputs[0], inputs[1], inputs[2], edges, o) * weight).sum();
    };
    for (auto& x : inputs) x.mutable_grad() = at::Tensor();
    loss().backward();
    const at::NoGradGuard guard;
    for (at::Tensor& x : inputs) {
      double* data = x.data_ptr<double>();
      for (int64_t n = 0; n < x.numel(); ++n) {
        const double before = data[n], step = 1e-6;
        data[n] = before + step;
        const double up = loss().item<double>();
        data[n] = before - step;
        const double down = loss().item<double>();
        data[n] = before;
        EXPECT_NEAR(x.grad().reshape(-1)[n].item<double>(), (up - down) / (2 * step), 1e-7);
      }
    }
  }
}

TEST_P(EdgeAttention, EmptyRowsGiveZeroAndZeroGradient) {
  const at::Tensor q = input({1, 1, 3, 4}, 1), k = input({1, 1, 3, 4}, 2), v = input({1, 1, 3, 4}, 3);
  at::Tensor mask = at::zeros({1, 1, 3, 3}, at::kBool);
  mask[0][0][1][2] = true;  // rows 0 and 2 have no edge, keys 0 and 1 are never selected
  const at::Tensor output = edge_attention(q, k, v, EdgeSet::from_mask(mask), options());
  output.sum().backward();
  EXPECT_EQ(output[0][0][0].abs().sum().item<double>(), 0);
  EXPECT_EQ(output[0][0][2].abs().sum().item<double>(), 0);
  EXPECT_EQ(q.grad()[0][0][0].abs().sum().item<double>(), 0);
  EXPECT_EQ(k.grad()[0][0][0].abs().sum().item<double>(), 0);
  EXPECT_EQ(v.grad()[0][0][1].abs().sum().item<double>(), 0);
  EXPECT_FALSE(at::isnan(q.grad()).any().item<bool>());
}

TEST_P(EdgeAttention, UnselectedKeysAreNeverRead) {
  const at::Tensor q = input({1, 1, 3, 4}, 1), k = input({1, 1, 3, 4}, 2).detach(),
                   v = input({1, 1, 3, 4}, 3).detach();
  at::Tensor mask = at::ones({1, 1, 3, 3}, at::kBool);
  mask.select(3, 1).fill_(false);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  const at::Tensor before = edge_attention(q, k, v, edges, options());
  k[0][0][1].fill_(NAN);
  v[0][0][1].fill_(INFINITY);
  const at::Tensor after = edge_attention(q, k, v, edges, options());
  EXPECT_TRUE(at::equal(before, after));
  after.sum().backward();
  EXPECT_FALSE(at::isnan(q.grad()).any().item<bool>());
}

TEST_P(EdgeAttention, HugeLogitsStayFinite) {
  at::Tensor q = input({1, 1, 2, 4}, 1).detach() * 1e4, k = input({1, 1, 6, 4}, 2).detach() * 1e4;
  const at::Tensor v = input({1, 1, 6, 4}, 3);
  q.requires_grad_();
  const at::Tensor output = edge_attention(q, k, v, EdgeSet::full({1, 1, 2, 6}), options());
  output.sum().backward();
  EXPECT_TRUE(at::isfinite(output).all().item<bool>());
  EXPECT_TRUE(at::isfinite(q.grad()).all().item<bool>());
}

// Scores of 1e10 and more, over widths for which vectors of several sizes are used: the heaviest edge has all
// the weight.
TEST_P(EdgeAttention, HugeScoresOfWideHeadsStayFinite) {
  for (const int64_t dim : {64, 80, 96, 128, 160}) {
    const at::Tensor q = (input({1, 2, 5, dim}, 1).detach() * 3e4).requires_grad_(),
                     k = (input({1, 2, 40, dim}, 2).detach() * 3e4).requires_grad_(),
                     v = input({1, 2, 40, dim}, 3);
    const EdgeSet every = EdgeSet::from_mask(at::ones({1, 2, 5, 40}, at::kBool));
    const at::Tensor output = edge_attention(q, k, v, every, options());
    const at::Tensor heaviest =
        at::matmul(q.detach().to(at::kDouble), k.detach().to(at::kDouble).transpose(2, 3))
            .argmax(3);  // [1, 2, 5]
    const at::Tensor expected =
        v.detach().gather(2, heaviest.unsqueeze(3).expand({1, 2, 5, dim})).to(at::kDouble);
    EXPECT_TRUE(at::allclose(output.detach().to(at::kDouble), expected, 0, GetParam().tolerance)) << dim;
    output.sum().backward();
    for (const at::Tensor& of : {q, k, v}) EXPECT_TRUE(of.grad().isfinite().all().item<bool>()) << dim;
  }
}

TEST_P(EdgeAttention, TiedHugeLogitsShareTheWeight) {
  // Equal keys at logits so large that log(3) vanishes beside them: weights are 1/3 in the backward pass too.
  const at::Tensor q = at::full({1, 1, 1, 4}, 1e4, GetParam().dtype).requires_grad_();
  const at::Tensor k = at::full({1, 1, 3, 4}, 1e4, GetParam().dtype);
  const at::Tensor v = input({1, 1, 3, 4}, 3);
  const at::Tensor membership = at::full({1, 1, 1, 3}, 0.5).requires_grad_();
  EdgeLearner learner;
  learner.query_membership = membership;
  learner.key_side = at::eye(3).view({1, 1, 3, 3});
  learner.rule = CreditRule::kLeaveOneOut;
  edge_attention(q, k, v, EdgeSet::full({1, 1, 1, 3}), learner, options()).output.sum().backward();
  EXPECT_TRUE(
      at::allclose(v.grad().to(at::kDouble), at::full({1, 1, 3, 4}, 1.0 / 3, at::kDouble), 1e-2, 1e-2));
  // Taking one of three equal edges away: u - mean(u of the others) over three.
  const at::Tensor u = v.detach().to(at::kDouble).sum(3)[0][0], others = (u.sum() - u) / 2;
  EXPECT_TRUE(at::allclose(membership.grad()[0][0][0].to(at::kDouble), (u - others) / 3, 3e-2, 3e-2));
}

TEST_P(EdgeAttention, TakesAnyStrides) {
  // As they come from a projection: [B, N, H, D] transposed, and with the last dimension not contiguous.
  const at::Tensor q = input({2, 5, 3, 8}, 1).transpose(1, 2), k = input({2, 6, 3, 8}, 2).transpose(1, 2);
  const at::Tensor v = input({2, 3, 8, 6}, 3).transpose(2, 3);
  const EdgeSet edges = EdgeSet::from_mask(kit::random_mask({2, 3, 5, 6}, 0.5, 4));
  EXPECT_TRUE(at::equal(edge_attention(q, k, v, edges, options()),
                        edge_attention(q.contiguous(), k.contiguous(), v.contiguous(), edges, options())));
}

TEST_P(EdgeAttention, CausalAndScale) {
  const at::Tensor q = input({1, 2, 6, 4}, 1), k = input({1, 2, 6, 4}, 2), v = input({1, 2, 6, 4}, 3);
  EdgeAttentionOptions o = options();
  o.is_causal = true;
  o.scale = 0.0;  // an explicit zero is a scale: uniform weights
  const at::Tensor output = edge_attention(q, k, v, EdgeSet::full({1, 2, 6, 6}), o).to(at::kDouble);
  const at::Tensor mean =
      at::cumsum(v.detach().to(at::kDouble), 2) / torch::arange(1, 7, at::kDouble).view({1, 1, 6, 1});
  EXPECT_TRUE(at::allclose(output, mean, GetParam().tolerance, GetParam().tolerance));
}

TEST_P(EdgeAttention, DropoutIsTheSameOnEveryBackEnd) {
  const at::Tensor q = input({2, 2, 9, 4}, 1), k = input({2, 2, 7, 4}, 2), v = input({2, 2, 7, 4}, 3);
  const EdgeSet edges = EdgeSet::from_mask(kit::random_mask({2, 2, 9, 7}, 0.7, 4));
  EdgeAttentionOptions o = options();
  o.dropout_p = 0.4;
  o.random = {11, 5, 3, 2};
  const at::Tensor output = edge_attention(q, k, v, edges, o);
  o.backend = Backend::kReference;
  EXPECT_TRUE(
      at::allclose(output, edge_attention(q, k, v, edges, o), GetParam().tolerance, GetParam().tolerance));
  o.random.step = 6;
  EXPECT_FALSE(at::allclose(output, edge_attention(q, k, v, edges, o), 1e-3, 1e-3));
  // One item of the batch alone, at its place in the global batch, drops the same weights.
  o.random = {11, 5, 3, 3};
  o.backend = GetParam().backend;
  const EdgeSet second = EdgeSet::from_mask(edges.to_mask().narrow(0, 1, 1));
  const at::Tensor alone = edge_attention(q.narrow(0, 1, 1), k.narrow(0, 1, 1), v.narrow(0, 1, 1), second, o);
  EXPECT_TRUE(at::allclose(output.narrow(0, 1, 1), alone, 1e-6, 1e-6));
  o.dropout_p = 1;
  EXPECT_EQ(edge_attention(q.narrow(0, 1, 1), k.narrow(0, 1, 1), v.narrow(0, 1, 1), second, o)
                .abs()
                .sum()
                .item<double>(),
            0);
}

TEST_P(EdgeAttention, SameBitsForAnyNumberOfThreads) {
  if (GetParam().backend != Backend::kKernel) GTEST_SKIP() << "matmul's own sums may differ";
  // Rows from no edge to all of them, so that the work divides unevenly.
  const EdgeShape s{2, 2, 150, 150};
  const at::Tensor share = torch::arange(150, at::kDouble).view({1, 1, 150, 1}) / 149;
  const EdgeSet edges = EdgeSet::from_mask(kit::rand({2, 2, 150, 150}, 4, at::kDouble) < share);
  const at::Tensor weight = kit::randn({2, 2, 150, 8}, 5, GetParam().dtype);
  EdgeAttentionOptions o = options();
  o.dropout_p = 0.1;
  const int before = at::get_num_threads();
  std::vector<std::vector<at::Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const at::Tensor q = input({s.batch, s.heads, 150, 8}, 1), k = input({s.batch, s.heads, 150, 8}, 2),
                     v = input({s.batch, s.heads, 150, 8}, 3);
    const at::Tensor output = edge_attention(q, k, v, edges, o);
    (output * weight).sum().backward();
    results.push_back({output.detach(), q.grad(), k.grad(), v.grad()});
  }
  at::set_num_threads(before);
  for (size_t n = 0; n < results[0].size(); ++n) {
    EXPECT_TRUE(at::equal(results[0][n], results[1][n])) << n;
    EXPECT_TRUE(at::equal(results[0][n], results[2][n])) << n;
  }
}

// The first backward pass may use up what the forward pass left for it.
TEST_P(EdgeAttention, ASecondBackwardPassGivesTheSameBits) {
  for (const double density : {0.1, 0.8}) {  // rows in groups and one by one
    const EdgeSet edges = EdgeSet::from_mask(kit::random_mask({1, 2, 70, 100}, density, 6));
    const at::Tensor q = input({1, 2, 70, 32}, 1), k = input({1, 2, 100, 32}, 2),
                     v = input({1, 2, 100, 32}, 3);
    const at::Tensor loss = edge_attention(q, k, v, edges, options()).square().sum();
    std::vector<at::Tensor> first;
    loss.backward({}, /*retain_graph=*/true);
    for (const at::Tensor& x : {q, k, v}) first.push_back(std::exchange(x.mutable_grad(), at::Tensor()));
    loss.backward();
    EXPECT_TRUE(at::equal(q.grad(), first[0])) << density;
    EXPECT_TRUE(at::equal(k.grad(), first[1])) << density;
    EXPECT_TRUE(at::equal(v.grad(), first[2])) << density;
  }
}

TEST_P(EdgeAttention, RefusesWhatDoesNotFit) {
  const at::Tensor q = input({1, 2, 4, 8}, 1), k = input({1, 2, 5, 8}, 2), v = input({1, 2, 5, 8}, 3);
  const EdgeSet edges = EdgeSet::full({1, 2, 4, 5});
  const auto message = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const EdgeSet& e,
                           EdgeAttentionOptions o) -> std::string {
    try {
      edge_attention(a, b, c, e, o);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_THAT(message(q[0], k, v, edges, options()), HasSubstr("expected query [B, H, L, D]"));
  EXPECT_THAT(message(q, k.narrow(3, 0, 4), v, edges, options()), HasSubstr("to match query"));
  EXPECT_THAT(message(q, k, v.narrow(2, 0, 4), edges, options()), HasSubstr("to match key"));
  EXPECT_THAT(message(q, k, v, EdgeSet::full({1, 2, 5, 4}), options()), HasSubstr("edges of shape"));
  EXPECT_THAT(message(q.to(at::kHalf), k.to(at::kHalf), v.to(at::kHalf), edges, options()),
              HasSubstr("bfloat16"));
  EXPECT_THAT(message(q, k.to(at::kHalf), v, edges, options()), HasSubstr("one dtype"));
  EdgeAttentionOptions o = options();
  o.dropout_p = 1.5;
  EXPECT_THAT(message(q, k, v, edges, o), HasSubstr("dropout_p in [0, 1]"));
  o.dropout_p = 0;
  o.scale = NAN;
  EXPECT_THAT(message(q, k, v, edges, o), HasSubstr("finite scale"));
}

TEST(EdgeAttentionThreads, ResultsDoNotDependOnThreads) {
  const int before = at::get_num_threads();
  const EdgeSet edges = EdgeSet::from_mask(kit::random_mask({2, 2, 130, 90}, 0.2, 1));
  std::vector<at::Tensor> outputs;
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    const at::Tensor q = kit::randn({2, 2, 130, 16}, 2).requires_grad_(),
                     k = kit::randn({2, 2, 90, 16}, 3).requires_grad_();
    const at::Tensor out = edge_attention(q, k, kit::randn({2, 2, 90, 16}, 4), edges);
    out.square().sum().backward();
    outputs.push_back(at::cat({out.reshape(-1), q.grad().reshape(-1), k.grad().reshape(-1)}));
  }
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(outputs[0], outputs[1]));
}

// Dense heads are done in one go where threads get equal shares of them (here not with two), beside one that
// never is.
TEST(EdgeAttentionThreads, HeadsInOneGoGiveTheSameBits) {
  const int before = at::get_num_threads();
  const at::Tensor share = at::tensor({0.3, 0.3, 0.02, 0.3}, at::kDouble).view({1, 4, 1, 1});
  const EdgeSet edges = EdgeSet::from_mask(kit::rand({1, 4, 300, 300}, 1, at::kDouble) < share);
  std::vector<at::Tensor> outputs;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    std::vector<at::Tensor> in;
    for (const uint64_t seed : {2, 3, 4})
      in.push_back(kit::randn({1, 4, 300, 32}, seed, at::kFloat).requires_grad_());
    edge_attention(in[0], in[1], in[2], edges).square().sum().backward();
    outputs.push_back(at::cat({in[0].grad(), in[1].grad(), in[2].grad()}));
  }
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(outputs[0], outputs[1]));
  EXPECT_TRUE(at::equal(outputs[0], outputs[2]));
}

// A complete float32 graph goes to torch's dense attention, which trusts that rows are contiguous.
TEST(CompleteGraph, TakesRowsThatAreNotContiguous) {
  const EdgeSet edges = EdgeSet::from_mask(at::ones({2, 2, 64, 64}, at::kBool));
  const auto turned = [](uint64_t seed) {
    return kit::randn({2, 2, 16, 64}, seed, at::kFloat).transpose(2, 3);
  };
  std::vector<at::Tensor> given = {turned(1), turned(2), turned(3)}, straight;
  for (at::Tensor& x : given) {
    straight.push_back(x.contiguous().requires_grad_());
    x = x.detach().requires_grad_();
    ASSERT_FALSE(x.is_contiguous());
  }
  const at::Tensor a = functional::edge_attention(given[0], given[1], given[2], edges),
                   b = functional::edge_attention(straight[0], straight[1], straight[2], edges);
  EXPECT_TRUE(at::allclose(a, b, 1e-5, 1e-6));
  const at::Tensor grad = turned(4);
  a.backward(grad);
  b.backward(grad.contiguous());
  for (size_t n = 0; n < 3; ++n)
    EXPECT_TRUE(at::allclose(given[n].grad(), straight[n].grad(), 1e-5, 1e-6)) << n;
}

}  // namespace
}  // namespace edgewise
