// IndexerEdges: scores against loops, the law of its draws, what it learns from, and what it may not see.
#include <edgewise/edges/indexer_edges.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/ops/functional.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "edges/sac_enumeration.h"
#include "edges/sac_kit.h"

namespace edgewise {
namespace {

using kit::Problem;
using kit::sac_request;
using kit::Statistics;

IndexerEdges indexer(const IndexerEdgesOptions& options, double scale = 1) {
  torch::manual_seed(3);
  IndexerEdges source(options);
  const torch::NoGradGuard guard;
  for (at::Tensor& parameter : source->parameters()) parameter.normal_(0, scale);
  source->to(at::kDouble);
  return source;
}

IndexerEdgesOptions small_options(int64_t heads, int64_t alpha) {
  IndexerEdgesOptions options(heads, heads * 4);
  options.index_heads = 3;
  options.index_dim = 5;
  options.alpha = alpha;
  return options;
}

TEST(Indexer, ScoresAreTheirFormula) {
  for (const IndexerSharing sharing : {IndexerSharing::kPerLayer, IndexerSharing::kPerHead}) {
    IndexerEdgesOptions options = small_options(2, 2);
    options.sharing = sharing;
    options.temperature = 0.5;
    IndexerEdges source = indexer(options);
    const EdgeRequest request = sac_request(2, 2, 6);
    const at::Tensor found = source->scores(request);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t g = 0; g < found.size(1); ++g)
        for (int64_t i = 0; i < 6; ++i)
          for (int64_t j = 0; j < 6; ++j) {
            const at::Tensor q = at::matmul(request.tokens[b][i], source->query_weight[g]).view({3, 5}),
                             k = at::matmul(request.tokens[b][j], source->key_weight[g]),
                             w = at::matmul(request.tokens[b][i], source->head_weight[g]) +
                                 source->head_bias[g];
            const double expected =
                (w * at::matmul(q, k).relu()).sum().item<double>() / std::sqrt(15.0) / 0.5;
            EXPECT_NEAR(found[b][g][i][j].item<double>(), expected, 1e-10);
          }
  }
}

TEST(Indexer, GreedyTakesTheBestAllowedKeys) {
  IndexerEdges source = indexer(small_options(1, 3));
  source->eval();
  EdgeRequest request = sac_request(2, 1, 12);
  request.is_causal = true;
  request.key_mask = at::arange(12).unsqueeze(0) < torch::tensor({12, 7}).unsqueeze(1);
  const EdgeChoice choice = source->choose(request);
  EXPECT_FALSE(choice.policy || choice.learner);
  const at::Tensor mask = choice.edges.to_mask(), allowed = request.allowed();
  EXPECT_FALSE((mask & allowed.logical_not()).any().item<bool>());
  EXPECT_TRUE(at::equal(mask.sum(-1), allowed.sum(-1).clamp_max(3)));
  const at::Tensor scores = source->scores(request).detach();
  const at::Tensor worst = scores.masked_fill(mask.logical_not(), 1e9).amin(-1),
                   best_left =
                       scores.masked_fill((allowed & mask.logical_not()).logical_not(), -1e9).amax(-1);
  EXPECT_TRUE((worst >= best_left).all().item<bool>());
}

// Of all ordered draws of 2 of 4 keys: how often, and with what log-probability.
TEST(Indexer, DrawsFollowTheirProbabilities) {
  constexpr int64_t kDraws = 20000;
  IndexerEdges source = indexer(small_options(1, 2), 0.5);
  const Problem problem{4};
  const EdgeChoice choice = source->choose(problem.request(kDraws));
  const at::Tensor pi = source->scores(problem.request(1)).softmax(-1)[0][0];  // [query, key]
  const at::Tensor mask = choice.edges.to_mask().squeeze(1), log_p = choice.policy->log_prob;
  const auto p = pi.accessor<double, 2>();
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t a = 0; a < 4; ++a)
      for (int64_t b = a + 1; b < 4; ++b) {
        const double ab = p[i][a] * p[i][b] / (1 - p[i][a]), ba = p[i][b] * p[i][a] / (1 - p[i][b]);
        const at::Tensor both = mask.select(1, i).select(1, a) & mask.select(1, i).select(1, b);
        const double count = static_cast<double>(both.sum().item<int64_t>()), expected = (ab + ba) * kDraws;
        EXPECT_NEAR(count, expected, 4.5 * std::sqrt(expected) + 1);
        if (count == 0) continue;
        const at::Tensor said = log_p.select(1, i).masked_select(both).exp();
        EXPECT_TRUE((((said - ab).abs() < 1e-6) | ((said - ba).abs() < 1e-6)).all().item<bool>());
      }
}

// d(E[sum of losses]) / d(key_weight) over all ordered draws.
at::Tensor exact_gradient(const Problem& problem, const IndexerEdgesOptions& options) {
  IndexerEdges source = indexer(options, 0.5);
  const sac::WalkResult walks = kit::all_walks(SacWalk::kRooted, problem.n, options.alpha);
  const int64_t items = walks.destination.size(0);
  const at::Tensor chosen = walks.destination.view({items, problem.n, options.alpha});
  const at::Tensor log_pi = source->scores(problem.request(1))
                                .log_softmax(-1)[0]
                                .expand({items, problem.n, problem.n})
                                .gather(2, chosen);
  const at::Tensor gone = log_pi.exp().cumsum(-1) - log_pi.exp();
  const at::Tensor p = (log_pi - (-gone).log1p()).sum({1, 2}).exp();
  EXPECT_NEAR(p.sum().item<double>(), 1, 1e-9);
  EdgeChoice choice;
  choice.edges = EdgeSet::from_mask(
      at::zeros({items, problem.n, problem.n}, at::kBool).scatter(2, chosen, true).unsqueeze(1));
  (p * problem.losses_of(choice).detach().sum(1)).sum().backward();
  return source->key_weight.grad().flatten();
}

TEST(Indexer, PairedIsUnbiasedAndCounterfactualPointsTheRightWay) {
  constexpr int64_t kBatches = 200, kDraws = 100;
  for (const auto& [n, alpha] : {std::pair<int64_t, int64_t>{3, 1}, {4, 1}, {4, 2}}) {
    const Problem problem{n};
    IndexerEdgesOptions options = small_options(1, alpha);
    options.least_slope = 0;
    const at::Tensor exact = exact_gradient(problem, options);
    EXPECT_GT(exact.abs().max().item<double>(), 1e-3);
    const auto gradients = [&](IndexerEstimator estimator) {
      options.estimator = estimator;
      options.probes = static_cast<double>(n);
      IndexerEdges source = indexer(options, 0.5);
      std::vector<at::Tensor> each;
      for (int64_t batch = 0; batch < kBatches; ++batch) {
        source->zero_grad();
        const auto draw = [&](uint32_t layer) {
          EdgeRequest request = problem.request(kDraws, layer);
          request.random.step = static_cast<uint64_t>(batch);
          EdgeChoice choice = source->choose(request);
          choice.policy->reaches_own_query_only = true;
          return choice;
        };
        const EdgeChoice choice = draw(0);
        const at::Tensor losses = problem.losses_of(choice);
        if (estimator == IndexerEstimator::kPaired) {
          const EdgeChoice other = draw(1);
          paired_loss(*choice.policy, *other.policy, losses, problem.losses_of(other)).mean().backward();
        } else {
          losses.sum(1).mean().backward();
        }
        each.push_back(source->key_weight.grad().flatten().clone());
      }
      return Statistics(at::stack(each));
    };
    const Statistics paired = gradients(IndexerEstimator::kPaired),
                     effects = gradients(IndexerEstimator::kCounterfactual);
    EXPECT_LT(paired.worst_z(exact), 4.5);
    const double cosine =
        ((effects.mean * exact).sum() / (effects.mean.norm() * exact.norm())).item<double>();
    std::printf(
        "indexer n=%d alpha=%d: cosine of counterfactual with the exact gradient %.3f, variance %.3g, "
        "paired %.3g\n",
        static_cast<int>(n), static_cast<int>(alpha), cosine, effects.variance, paired.variance);
    EXPECT_GT(cosine, alpha == 1 ? 0.9 : 0.25) << "biased: docs/math.md";
    EXPECT_LT(effects.variance, paired.variance);
  }
}

TEST(Indexer, ValuesAreInclusionProbabilities) {
  IndexerEdgesOptions options = small_options(2, 3);
  options.probes = 100;
  IndexerEdges source = indexer(options, 0.5);
  EdgeRequest request = sac_request(2, 2, 9);
  request.is_causal = true;
  const EdgeChoice choice = source->choose(request);
  const EdgeLearner& learner = *choice.learner;
  const at::Tensor pi = source->scores(request)
                            .masked_fill(request.allowed().logical_not(), -1e30)
                            .softmax(-1)
                            .expand({2, 2, 9, 9});
  const at::Tensor p = 1 - (1 - pi).pow(3);
  const auto at_edges = [&](const EdgeSet& edges) {
    return p.masked_select(edges.to_mask()).masked_fill(edges.edge_rows().remainder(9) < 3, 0);
  };
  EXPECT_TRUE(at::allclose(learner.values, at_edges(choice.edges), 1e-6, 1e-9));
  EXPECT_TRUE(at::allclose(learner.probe_values, at_edges(*learner.probes), 1e-6, 1e-9));
  EXPECT_EQ(learner.values.size(0) + learner.probe_values.size(0), 2 * 2 * 45);
}

TEST(Indexer, SpendsNothingOnWhatIsPresent) {
  IndexerEdges source = indexer(small_options(2, 4));
  EdgeRequest request = sac_request(1, 2, 10);
  request.present = WindowEdges(1).choose(request).edges;
  const EdgeChoice choice = source->choose(request);
  EXPECT_FALSE((choice.edges.to_mask() & request.present->to_mask()).any().item<bool>());
  EXPECT_FALSE((choice.learner->probes->to_mask() & request.present->to_mask()).any().item<bool>());
  EXPECT_TRUE((choice.edges.to_mask().sum(-1) == 4).all().item<bool>());
}

TEST(Indexer, DoesNotFeelTheFuture) {
  IndexerEdges source = indexer(small_options(1, 2));
  const auto rows = [&](double future) {
    EdgeRequest request = sac_request(2, 1, 13);
    request.is_causal = true;
    request.tokens = request.tokens.clone();
    request.tokens.narrow(1, 8, 5).add_(future);
    const EdgeChoice choice = source->choose(request);
    return std::pair(choice.edges.to_mask().narrow(2, 0, 8),
                     choice.policy->log_prob.narrow(1, 0, 8).detach());
  };
  const auto before = rows(0), after = rows(3);
  EXPECT_TRUE(at::equal(before.first, after.first));
  EXPECT_TRUE(at::allclose(before.second, after.second, 1e-12, 1e-12));
}

TEST(Indexer, RefusesWhatDoesNotFit) {
  IndexerEdgesOptions options(2, 8);
  options.alpha = 0;
  EXPECT_THROW(IndexerEdges{options}, c10::ValueError);
  options = IndexerEdgesOptions(2, 8);
  options.temperature = 0;
  EXPECT_THROW(IndexerEdges{options}, c10::ValueError);
  IndexerEdges source{IndexerEdgesOptions(2, 8)};
  EXPECT_THROW(source->choose(sac_request(1, 1, 5, at::kFloat)), c10::ValueError);
  EdgeRequest request = sac_request(1, 2, 5, at::kFloat);
  request.tokens = torch::randn({1, 5, 9});
  EXPECT_THROW(source->choose(request), c10::ValueError);
}

}  // namespace
}  // namespace edgewise
