// edge_attention over a set that was born as squares: against the same edges in lists, and what it teaches
// who chose the squares.
#include <edgewise/graph/square_lists.h>
#include <edgewise/ops/explain.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/squares/squares.h"
#include "kit/message_of.h"
#include "kit/square_cases.h"

namespace edgewise {
namespace {

using functional::Backend;
using functional::edge_attention;
using functional::EdgeAttentionOptions;
using graph::SquarePairs;
using ::testing::AllOf;
using ::testing::HasSubstr;

EdgeSet as_lists(const EdgeSet& edges) {
  return EdgeSet::from_trusted_csr(edges.shape(), edges.row_offsets(), edges.col_indices());
}

// Output and gradients of sum(output * weight).
std::vector<at::Tensor> all_results(const EdgeSet& edges, const std::vector<at::Tensor>& inputs,
                                    const at::Tensor& weight, const EdgeAttentionOptions& options) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().clone().requires_grad_());
  const at::Tensor output = edge_attention(leaves[0], leaves[1], leaves[2], edges, options);
  (output * weight).sum().backward();
  return {output.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

const EdgeShape kManyTokens{2, 2, 75, 53};

EdgeSet random_square_edges(const SquarePairs& pairs, double density = 0.5, int64_t seed = 1) {
  return EdgeSet::from_squares(
      graph::squares_from_mask(kManyTokens, kit::rand({2, 2, 5, 4}, seed, at::kDouble) < density), pairs);
}
at::Tensor queries_that_count() {
  at::Tensor mask = kit::rand({2, 75}, 77) < 0.7;
  mask[1].narrow(0, 16, 16).fill_(false);
  return mask;
}
std::vector<SquarePairs> kinds_of_pairs() {
  const at::Tensor bits = graph::key_bits_of(kit::padded_keys(2, 53));
  return {{},
          {.key_bits = bits, .is_causal = true, .query_offset = 9},
          {.key_bits = bits, .query_mask = queries_that_count()}};
}
std::vector<at::Tensor> head_inputs(at::ScalarType dtype = at::kDouble) {
  return {kit::randn({2, 2, 75, 6}, 2, dtype), kit::randn({2, 2, 53, 6}, 3, dtype),
          kit::randn({2, 2, 53, 4}, 4, dtype)};
}
at::Tensor output_weight(at::ScalarType dtype = at::kDouble) {
  return kit::randn({2, 2, 75, 4}, 5, dtype);
}

class SquareEdgeAttention : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, SquareEdgeAttention,
                         ::testing::Values(Backend::kAuto, Backend::kKernel, Backend::kReference),
                         [](const auto& given) {
                           return std::string(given.param == Backend::kAuto     ? "auto"
                                              : given.param == Backend::kKernel ? "kernel"
                                                                                : "reference");
                         });

TEST_P(SquareEdgeAttention, IsThatOfTheSameEdgesInLists) {
  for (const SquarePairs& pairs : kinds_of_pairs())
    for (const double dropout : {0.0, 0.3}) {
      EdgeAttentionOptions options;
      options.backend = GetParam();
      options.dropout_p = dropout;
      options.random.seed = 6;
      options.scale = 0.7;
      const EdgeSet edges = random_square_edges(pairs);
      const auto found = all_results(edges, head_inputs(), output_weight(), options);
      options.backend = Backend::kReference;
      const auto expected = all_results(as_lists(edges), head_inputs(), output_weight(), options);
      for (size_t n = 0; n < found.size(); ++n)
        EXPECT_TRUE(at::allclose(found[n], expected[n], 1e-9, 1e-11)) << n << " dropout " << dropout;
    }
}

TEST_P(SquareEdgeAttention, CausalOnRequest) {
  EdgeAttentionOptions options;
  options.backend = GetParam();
  options.is_causal = true;
  const EdgeSet edges = random_square_edges({}, 0.8);
  const auto found = all_results(edges, head_inputs(), output_weight(), options);
  options.is_causal = false;
  const auto expected = all_results(as_lists(edges).causal(), head_inputs(), output_weight(), options);
  for (size_t n = 0; n < found.size(); ++n)
    EXPECT_TRUE(at::allclose(found[n], expected[n], 1e-9, 1e-11)) << n;
}

// What stands in tokens that take no part reaches nothing, not even as NaN.
TEST_P(SquareEdgeAttention, MaskedTokensAreNeverUsed) {
  const at::Tensor keys = kit::padded_keys(2, 53), queries = queries_that_count();
  EdgeAttentionOptions options;
  options.backend = GetParam();
  const EdgeSet edges = random_square_edges({.key_bits = graph::key_bits_of(keys), .query_mask = queries});
  auto spoiled = head_inputs();
  at::Tensor weight = output_weight().clone();
  spoiled[0].masked_fill_(queries.logical_not().view({2, 1, 75, 1}), NAN);
  for (const size_t n : {1, 2}) spoiled[n].masked_fill_(keys.logical_not().view({2, 1, 53, 1}), NAN);
  weight.masked_fill_(queries.logical_not().view({2, 1, 75, 1}), 1e30);
  const auto found = all_results(edges, spoiled, weight, options),
             expected = all_results(edges, head_inputs(), output_weight(), options);
  for (size_t n = 0; n < found.size(); ++n) {
    EXPECT_TRUE(found[n].isfinite().all().item<bool>()) << n;
    EXPECT_TRUE(at::allclose(found[n], expected[n], 1e-10, 1e-12)) << n;
  }
  EXPECT_TRUE(found[0].masked_select(queries.logical_not().view({2, 1, 75, 1})).eq(0).all().item<bool>());
}

TEST_P(SquareEdgeAttention, FewerKeyHeads) {
  const EdgeShape shape{2, 4, 40, 60};
  const EdgeSet edges = EdgeSet::from_squares(
      graph::squares_from_mask(shape, kit::rand({2, 4, 3, 4}, 1, at::kDouble) < 0.6), {});
  const at::Tensor query = kit::randn({2, 4, 40, 8}, 2, at::kDouble),
                   key = kit::randn({2, 2, 60, 8}, 3, at::kDouble),
                   value = kit::randn({2, 2, 60, 8}, 4, at::kDouble);
  EdgeAttentionOptions options;
  options.backend = GetParam();
  EXPECT_TRUE(at::allclose(
      edge_attention(query, key, value, edges, options),
      edge_attention(query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1), as_lists(edges)),
      1e-10, 1e-12));
}

// A head whose p_IJ is its query membership, so that the gradient of that is G, square by square.
struct SquareHead {
  EdgeShape tokens;
  at::Tensor query, key, value, loss_weight, probability;  // [B, H, groups, groups]
  SquarePairs pairs;

  SquareHead(const EdgeShape& shape, int64_t seed, const SquarePairs& which = {}, double logit_size = 1)
      : tokens(shape), pairs(which) {
    query = kit::randn({shape.batch, shape.heads, shape.queries, 3}, seed, at::kDouble) * logit_size;
    key = kit::randn({shape.batch, shape.heads, shape.keys, 3}, seed + 1, at::kDouble);
    value = kit::randn({shape.batch, shape.heads, shape.keys, 2}, seed + 2, at::kDouble);
    loss_weight = kit::randn({shape.batch, shape.heads, shape.queries, 2}, seed + 3, at::kDouble);
    probability =
        kit::rand({shape.batch, shape.heads, graph::groups_of(shape.queries), graph::groups_of(shape.keys)},
                  seed + 4, at::kDouble) *
            0.9 +
        0.05;
  }
  EdgeSet edges(const at::Tensor& mask) const {
    return EdgeSet::from_squares(graph::squares_from_mask(tokens, mask), pairs);
  }
  double loss(const at::Tensor& mask) const {
    return (edge_attention(query, key, value, edges(mask)) * loss_weight).sum().item<double>();
  }
  at::Tensor credit(const at::Tensor& mask, EdgeLearner rule, Backend backend) const {
    rule.query_membership = probability.clone().requires_grad_();
    const int64_t groups = probability.size(3);
    rule.key_side =
        at::eye(groups, at::kDouble).expand({tokens.batch, tokens.heads, groups, groups}).contiguous();
    EdgeAttentionOptions options;
    options.backend = backend;
    const auto result = edge_attention(query, key, value, edges(mask), rule, options);
    (result.output * loss_weight).sum().backward();
    return rule.query_membership.grad();
  }
};

at::Tensor square_mask_number(int64_t n, const at::Tensor& like) {
  const at::Tensor bit = at::arange(like.numel());
  return at::full_like(bit, n).bitwise_right_shift(bit).bitwise_and(1).to(at::kBool).view(like.sizes());
}

double square_mask_probability(const at::Tensor& mask, const at::Tensor& p) {
  return at::where(mask, p, 1 - p).prod().item<double>();
}

// 2 x 3 squares, the last of each kind short: rows without a square, rows with an only one, uneven weights.
TEST_P(SquareEdgeAttention, LeaveOneOutWithProbesIsExactForEverySetOfSquares) {
  for (const double logit_size : {1.0, 100.0})
    for (const bool masked : {false, true}) {
      SquarePairs pairs;
      if (masked)
        pairs = {.key_bits = graph::key_bits_of(kit::padded_keys(1, 40)),
                 .is_causal = true,
                 .query_offset = 20,
                 .query_mask = kit::rand({1, 21}, 8) < 0.8};
      const SquareHead head({1, 1, 21, 40}, 3, pairs, logit_size);
      for (int64_t n = 0; n < 64; ++n) {
        const at::Tensor mask = square_mask_number(n, head.probability);
        EdgeLearner rule;
        rule.rule = CreditRule::kLeaveOneOut;
        rule.probes = head.edges(~mask);
        rule.probe_rates = {1};
        const at::Tensor credit = head.credit(mask, rule, GetParam()).reshape(-1);
        for (int64_t e = 0; e < 6; ++e) {
          const double with = head.loss(square_mask_number(n | int64_t{1} << e, head.probability)),
                       without = head.loss(square_mask_number(n & ~(int64_t{1} << e), head.probability));
          EXPECT_NEAR(credit[e].item<double>(), with - without, 1e-8) << "squares " << n << ", square " << e;
        }
      }
    }
}

TEST_P(SquareEdgeAttention, LeaveOneOutIsUnbiasedByEnumeration) {
  const SquareHead head({1, 1, 32, 48}, 20);
  for (const EdgeLaw law : {EdgeLaw::kBernoulli, EdgeLaw::kPoisson}) {
    const at::Tensor p = head.probability;
    const at::Tensor chance = law == EdgeLaw::kBernoulli ? p : 1 - (-p).exp();
    const at::Tensor slope = law == EdgeLaw::kBernoulli ? at::ones_like(p) : (-p).exp();  // dP/dp
    const double rate = 0.3;
    at::Tensor mean = at::zeros_like(p), truth = at::zeros_like(p);
    for (int64_t n = 0; n < 64; ++n) {
      const at::Tensor mask = square_mask_number(n, p);
      const double weight = square_mask_probability(mask, chance);
      truth += head.loss(mask) * weight * at::where(mask, 1 / chance, -1 / (1 - chance));
      EdgeLearner rule;
      rule.poisson_slope = law == EdgeLaw::kPoisson;
      rule.rule = CreditRule::kLeaveOneOut;
      rule.probe_rates = {rate};
      // Every choice of probes among the absent squares, by its probability.
      for (int64_t chosen = 0; chosen < 64; ++chosen) {
        if ((chosen & n) != 0) continue;
        const at::Tensor probed = square_mask_number(chosen, p);
        rule.probes = head.edges(probed);
        const double chosen_weight =
            at::where(probed, at::full_like(p, rate), 1 - rate).masked_select(~mask).prod().item<double>();
        mean += weight * chosen_weight * head.credit(mask, rule, GetParam());
      }
    }
    EXPECT_TRUE(at::allclose(mean, truth * slope, 1e-9, 1e-10));
  }
}

TEST_P(SquareEdgeAttention, EstimatorsAddUpWhatTheirPairsGet) {
  const EdgeShape shape{2, 2, 40, 37};
  const SquareHead head(shape, 30, {.key_bits = graph::key_bits_of(kit::padded_keys(2, 37))});
  const at::Tensor mask = kit::rand({2, 2, 3, 3}, 31, at::kDouble) < 0.6;
  const EdgeSet edges = head.edges(mask), fixed = head.edges(mask & (kit::rand({2, 2, 3, 3}, 32) < 0.4));
  for (const CreditRule wanted : {CreditRule::kLogit, CreditRule::kPaper}) {
    EdgeLearner rule;
    rule.rule = wanted;
    // Pair by pair, from the kernels over single edges.
    EdgeLearner pairwise = rule;
    pairwise.query_membership = at::zeros({2, 2, 40, 37}, at::kDouble).requires_grad_();
    pairwise.key_side = at::eye(37, at::kDouble).expand({2, 2, 37, 37}).contiguous();
    (edge_attention(head.query, head.key, head.value, as_lists(edges), pairwise).output * head.loss_weight)
        .sum()
        .backward();
    const at::Tensor expected =
        at::constant_pad_nd(pairwise.query_membership.grad(), {0, 48 - 37, 0, 48 - 40})
            .view({2, 2, 3, 16, 3, 16})
            .sum(at::IntArrayRef{3, 5});
    EXPECT_TRUE(at::allclose(head.credit(mask, rule, GetParam()), expected, 1e-9, 1e-11));
    rule.gradient_clip = 0.05;
    EXPECT_TRUE(at::allclose(head.credit(mask, rule, GetParam()), expected.clamp(-0.05, 0.05), 1e-9, 1e-11));
    // Squares the learner did not decide teach it nothing.
    rule.fixed = fixed;
    EXPECT_TRUE(at::allclose(head.credit(mask, rule, GetParam()),
                             expected.clamp(-0.05, 0.05).masked_fill(fixed.square_groups().to_mask(), 0),
                             1e-9, 1e-11));
  }
}

TEST_P(SquareEdgeAttention, SampledDensityCountsPairsAndReachesTheDecidedSquares) {
  const SquareHead head({2, 3, 40, 37}, 40, {.query_mask = kit::rand({2, 40}, 45) < 0.7});
  const at::Tensor mask = kit::rand({2, 3, 3, 3}, 41, at::kDouble) < 0.6;
  const EdgeSet edges = head.edges(mask), fixed = head.edges(mask & (kit::rand({2, 3, 3, 3}, 42) < 0.3));
  EdgeLearner rule;
  rule.rule = CreditRule::kLogit;
  rule.fixed = fixed;
  rule.pairs_per_head = 1234;
  rule.query_membership = head.probability.clone().requires_grad_();
  rule.key_side = at::eye(3, at::kDouble).expand({2, 3, 3, 3}).contiguous();
  EdgeAttentionOptions options;
  options.backend = GetParam();
  const auto result = edge_attention(head.query, head.key, head.value, edges, rule, options);
  const at::Tensor decided = edges.to_mask() & ~fixed.to_mask();
  EXPECT_TRUE(at::allclose(result.sampled_density, decided.sum({0, 2, 3}).to(at::kDouble) / 1234));
  const at::Tensor weight = torch::tensor({1.0, -2.0, 3.0}, at::kDouble);  // per head
  (result.sampled_density * weight).sum().backward();
  const at::Tensor pairs =
      at::constant_pad_nd(decided, {0, 48 - 37, 0, 48 - 40}).view({2, 3, 3, 16, 3, 16}).sum({3, 5});
  EXPECT_TRUE(at::allclose(rule.query_membership.grad(), pairs * weight.view({1, 3, 1, 1}) / 1234.0));
}

TEST_P(SquareEdgeAttention, RatesOfItemsDivideTheirProbes) {
  const SquareHead head({2, 1, 40, 37}, 50);
  const at::Tensor mask = kit::rand({2, 1, 3, 3}, 51, at::kDouble) < 0.5;
  EdgeLearner rule;
  rule.probes = head.edges(~mask);
  rule.probe_rates = {1, 1};
  const at::Tensor whole = head.credit(mask, rule, GetParam());
  rule.probe_rates = {0.5, 0.25};
  const at::Tensor factor = at::where(mask, 1.0, torch::tensor({2.0, 4.0}, at::kDouble).view({2, 1, 1, 1}));
  EXPECT_TRUE(at::allclose(head.credit(mask, rule, GetParam()), whole * factor, 1e-12, 1e-14));
}

TEST(SquareEdgeAttentions, TheSameBitsForAnyNumberOfThreadsAndEveryTime) {
  const int before = at::get_num_threads();
  const SquareHead head({2, 2, 200, 170}, 60);
  const at::Tensor mask = kit::rand({2, 2, 13, 11}, 61, at::kDouble) < 0.4;
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    EdgeLearner rule;
    rule.probes = head.edges(~mask & (kit::rand({2, 2, 13, 11}, 62) < 0.2));
    rule.probe_rates = {0.2, 0.2};
    const at::Tensor credit = head.credit(mask, rule, Backend::kAuto);
    auto all = all_results(head.edges(mask),
                           {head.query.to(at::kFloat), head.key.to(at::kFloat), head.value.to(at::kFloat)},
                           head.loss_weight.to(at::kFloat), {});
    all.push_back(credit);
    return all;
  };
  const auto one = run(1), two = run(2), again = run(2);
  for (size_t n = 0; n < one.size(); ++n) {
    EXPECT_TRUE(at::equal(one[n], two[n])) << n;
    EXPECT_TRUE(at::equal(two[n], again[n])) << n;
  }
  at::set_num_threads(before);
}

TEST(SquareEdgeAttentions, RefusalsSayWhatIsWrong) {
  const SquareHead head({1, 1, 40, 37}, 70);
  const EdgeSet edges = head.edges(at::ones({1, 1, 3, 3}, at::kBool));
  EdgeLearner rule;
  rule.query_membership = at::ones({1, 1, 40, 2}, at::kDouble);  // of tokens, not of groups
  rule.key_side = at::ones({1, 1, 3, 2}, at::kDouble);
  const auto refusal = [&](const EdgeAttentionOptions& options = {}) {
    return kit::message_of([&] { edge_attention(head.query, head.key, head.value, edges, rule, options); });
  };
  EXPECT_THAT(refusal(),
              HasSubstr("query_membership of groups of 16 tokens, [1, 1, 3, C]; got [1, 1, 40, 2]"));
  rule.query_membership = rule.key_side;
  EXPECT_EQ(refusal(), "no error");
  EdgeAttentionOptions causal, unscaled;
  causal.is_causal = true;
  unscaled.scale = NAN;
  EXPECT_THAT(refusal(causal), HasSubstr("ask it for causal edges"));
  EXPECT_THAT(refusal(unscaled), HasSubstr("finite scale"));
  rule.fixed = as_lists(edges);
  EXPECT_THAT(refusal(), HasSubstr("fixed edges in squares"));
  rule.fixed = EdgeSet::from_squares(*edges.squares(), {.is_causal = true});
  EXPECT_THAT(refusal(), HasSubstr("the same pairs"));
  rule.fixed.reset();
  rule.probes = edges;
  EXPECT_THAT(refusal(), HasSubstr("one probe rate per item"));
  EXPECT_THAT(
      kit::message_of([&] { edge_attention(head.query.narrow(2, 0, 39), head.key, head.value, edges); }),
      AllOf(HasSubstr("L=39"), HasSubstr("L=40")));
}

TEST(SquareEdgeAttentions, ExplainedAsSquares) {
  const SquareHead head({1, 1, 40, 37}, 80);
  const AttentionChoice choice =
      explain_attention(head.query, head.key, head.value, head.edges(at::ones({1, 1, 3, 3}, at::kBool)));
  EXPECT_EQ(choice.implementation, "cpu squares");
  ASSERT_EQ(choice.kernels.size(), 3U);
  EXPECT_EQ(choice.kernels[0].refusal, "");
  EXPECT_THAT(choice.kernels[1].refusal, HasSubstr("not on a GPU"));
  EXPECT_EQ(choice.cpu_level, "scalar");
}

}  // namespace
}  // namespace edgewise
