// SbmEdges: its quantities, presets, density and gradients.
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/ops/functional.h>

#include <gtest/gtest.h>

#include "kit/devices.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

EdgeRequest request(int64_t batch, int64_t heads, int64_t tokens, int64_t dim,
                    at::ScalarType dtype = at::kFloat) {
  EdgeRequest result;
  result.query = kit::randn({batch, heads, tokens, dim}, 1, dtype);
  result.key = kit::randn({batch, heads, tokens, dim}, 2, dtype);
  return result;
}

TEST(SbmEdges, ParameterCountsAndInitialisation) {
  // Two heads of 32 and 128 clusters: 8192 + 2112 parameters, as published; the paper has one MLP per head.
  const auto count = [](const SbmEdges& edges) {
    int64_t total = 0;
    for (const auto& p : edges->parameters()) total += p.numel();
    return total;
  };
  torch::manual_seed(0);
  const SbmEdges published(SbmEdgesOptions(2, 32, SbmPreset::kPublished));
  EXPECT_EQ(count(published), 10304);
  EXPECT_NEAR(published->clusters.std().item<double>(), 0.0221, 0.0006);
  EXPECT_EQ(count(SbmEdges(SbmEdgesOptions(2, 32, SbmPreset::kPaper))), 8192 + 2 * 2112);
  EXPECT_EQ(count(SbmEdges(SbmEdgesOptions(2, 32, SbmPreset::kEdgewise))), 2048 + 2112);
}

TEST(SbmEdges, QuantitiesMatchTheirEquations) {
  for (const bool shared : {true, false}) {
    SbmEdgesOptions options(3, 4);
    options.shared_mlp = shared;
    options.clusters = 5;
    options.cluster_std = 1;
    const SbmEdges edges(options);
    const at::Tensor block = edges->block_matrix();
    EXPECT_TRUE(at::allclose(block.sum({1, 2}), at::ones({3})));
    EXPECT_TRUE(at::allclose(block, block.transpose(1, 2)));
    const at::Tensor nodes = kit::randn({2, 3, 6, 4}, 1);
    const at::Tensor membership = edges->membership(nodes);
    for (int64_t h = 0; h < 3; ++h) {
      const int64_t g = shared ? 0 : h;
      const at::Tensor hidden =
          at::relu(at::linear(nodes.select(1, h), edges->mlp_weight1[g], edges->mlp_bias1[g]));
      const at::Tensor expected = at::sigmoid(
          at::matmul(at::linear(hidden, edges->mlp_weight2[g], edges->mlp_bias2[g]), edges->clusters[h].t()));
      EXPECT_TRUE(at::allclose(membership.select(1, h), expected, 1e-5, 1e-6));
      EXPECT_TRUE(at::allclose(edges->key_side(membership).select(1, h), at::matmul(expected, block[h].t()),
                               1e-5, 1e-6));
    }
  }
}

TEST(SbmEdges, InitialDensities) {
  // 0.25 at the start; 0.26 with exploration; 0.221 under the Poisson law, 0.229 with exploration.
  const auto density = [](SbmPreset preset, EdgeLaw law, double exploration, bool training) {
    torch::manual_seed(0);
    SbmEdgesOptions options(2, 32, preset);
    options.law = law;
    options.exploration = exploration;
    SbmEdges edges(options);
    edges->train(training);
    return edges->choose(request(2, 2, 200, 32)).edges.density().mean().item<double>();
  };
  EXPECT_NEAR(density(SbmPreset::kPublished, EdgeLaw::kBernoulli, 0, true), 0.25, 0.01);
  EXPECT_NEAR(density(SbmPreset::kPublished, EdgeLaw::kBernoulli, 0.01, true), 0.26, 0.01);
  EXPECT_NEAR(density(SbmPreset::kPublished, EdgeLaw::kBernoulli, 0.01, false), 0.26,
              0.01);  // published: also in eval
  EXPECT_NEAR(density(SbmPreset::kPaper, EdgeLaw::kPoisson, 0, true), 0.221, 0.01);
  EXPECT_NEAR(density(SbmPreset::kPaper, EdgeLaw::kPoisson, 0.01, true), 0.229, 0.01);
  EXPECT_NEAR(density(SbmPreset::kPaper, EdgeLaw::kBernoulli, 0.5, false), 0.25,
              0.01);  // paper: only in training
}

TEST(SbmEdges, PresetsDifferAsDocumented) {
  const SbmEdgesOptions paper(1, 4, SbmPreset::kPaper), published(1, 4, SbmPreset::kPublished), ours(1, 4);
  EXPECT_EQ(paper.law, EdgeLaw::kPoisson);
  EXPECT_EQ(paper.estimator, Estimator::kPaper);
  EXPECT_FALSE(paper.shared_mlp);
  EXPECT_EQ(published.estimator, Estimator::kLogit);
  EXPECT_TRUE(published.exploration_in_eval && published.count_padding && published.shared_mlp);
  EXPECT_EQ(published.density_penalty, DensityPenalty::kSampled);
  EXPECT_EQ(ours.estimator, Estimator::kCounterfactual);
  EXPECT_EQ(ours.density_penalty, DensityPenalty::kExact);
  EXPECT_EQ(ours.exploration, 0);
  EXPECT_EQ(ours.clusters, 32);
  for (const char* name : {"paper", "published", "edgewise"})
    EXPECT_EQ(to_string(parse_sbm_preset(name)), name);
  EXPECT_THROW(parse_sbm_preset("papers"), c10::Error);
}

TEST(SbmEdges, PaddingCountsOnlyWherePublished) {
  EdgeRequest ask = request(2, 2, 40, 8);
  ask.key_mask = (torch::arange(40) < 20).unsqueeze(0).expand({2, 40});
  for (const SbmPreset preset : {SbmPreset::kPublished, SbmPreset::kEdgewise}) {
    SbmEdgesOptions options(2, 8, preset);
    options.exploration = 0;
    SbmEdges edges(options);
    const EdgeChoice choice = edges->choose(ask);
    const at::Tensor mask = choice.edges.to_mask();
    EXPECT_EQ((mask & ~ask.key_mask->view({2, 1, 1, 40})).sum().item<int64_t>(), 0);
    EXPECT_EQ((mask & ~ask.key_mask->view({2, 1, 40, 1})).sum().item<int64_t>(), 0);
    EXPECT_NEAR(choice.density.mean().item<double>(), 0.25, 0.03);  // of all pairs, or of the valid ones
    const double edges_found = static_cast<double>(choice.edges.edge_count());
    EXPECT_NEAR(edges_found, 0.25 * 2 * 2 * 20 * 20, 0.2 * edges_found);  // the same edges are computed
    EXPECT_EQ(choice.learner->discarded.has_value(), preset == SbmPreset::kPublished);
  }
}

// f(parameters) by central differences against autograd.
template <typename Function>
void expect_gradient(const Function& value, const std::vector<at::Tensor>& parameters,
                     const std::vector<at::Tensor>& grads, double tolerance) {
  const at::NoGradGuard guard;
  for (size_t n = 0; n < parameters.size(); ++n) {
    double* data = parameters[n].data_ptr<double>();
    for (int64_t i = 0; i < parameters[n].numel(); ++i) {
      const double before = data[i], step = 1e-5;
      data[i] = before + step;
      const double up = value();
      data[i] = before - step;
      const double down = value();
      data[i] = before;
      EXPECT_NEAR(grads[n].reshape(-1)[i].item<double>(), (up - down) / (2 * step), tolerance)
          << "parameter " << n << " [" << i << "]";
    }
  }
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  for (const auto& p : parameters)
    result.push_back(p.grad().defined() ? p.grad().clone() : at::zeros_like(p));
  return result;
}

TEST(SbmEdges, ExactDensityPenaltyMatchesProbabilitiesAndFiniteDifferences) {
  SbmEdgesOptions options(2, 3);
  options.clusters = 4;
  options.cluster_std = 1;
  SbmEdges edges(options);
  edges->to(at::kDouble);
  for (const bool causal : {false, true}) {
    EdgeRequest ask = request(2, 2, 5, 3, at::kDouble);
    ask.key_mask = torch::tensor({{1, 1, 1, 0, 0}, {1, 1, 1, 1, 1}}).to(at::kBool);
    ask.is_causal = causal;
    const auto penalty = [&] { return edges->choose(ask).density_penalty; };
    // The mean of p over the valid pairs, pair by pair.
    const at::Tensor p =
        at::matmul(edges->membership(ask.query), edges->key_side(edges->membership(ask.key)).transpose(2, 3));
    at::Tensor valid =
        (ask.key_mask->view({2, 1, 1, 5}) & ask.key_mask->view({2, 1, 5, 1})).expand({2, 2, 5, 5});
    if (causal) valid = valid & at::ones({5, 5}).tril().to(at::kBool);
    const at::Tensor expected = (p * valid).sum({0, 2, 3}) / valid.select(1, 0).sum();
    EXPECT_TRUE(at::allclose(penalty(), expected, 1e-9, 1e-12));
    edges->zero_grad();
    penalty().sum().backward();
    const auto parameters = edges->parameters();
    expect_gradient([&] { return penalty().sum().item<double>(); }, parameters, gradients_of(parameters),
                    1e-7);
  }
}

TEST(SbmEdges, ExpectedLossGradientReachesEveryParameterExactly) {
  // The whole path: parameters -> memberships -> p -> edges -> attention -> a loss linear in the output.
  // E[loss] by enumeration over all 2^4 masks, its gradient by finite differences; the estimator's mean over
  // the same masks must agree.
  SbmEdgesOptions options(1, 3);
  options.clusters = 2;
  options.cluster_std = 1;
  SbmEdges edges(options);
  edges->to(at::kDouble);
  const EdgeRequest ask = request(1, 1, 2, 3, at::kDouble);
  const at::Tensor value = kit::randn({1, 1, 2, 2}, 5, at::kDouble),
                   weight = kit::randn({1, 1, 2, 2}, 6, at::kDouble);
  const auto mask_of = [](int64_t n) {
    return torch::tensor({(n & 1) != 0, (n & 2) != 0, (n & 4) != 0, (n & 8) != 0}).view({1, 1, 2, 2});
  };
  const auto probability = [&] {
    return at::matmul(edges->membership(ask.query),
                      edges->key_side(edges->membership(ask.key)).transpose(2, 3));
  };
  const auto expected_loss = [&] {
    const at::Tensor p = probability();
    double total = 0;
    for (int64_t n = 0; n < 16; ++n) {
      const double chance = at::where(mask_of(n), p, 1 - p).prod().item<double>();
      total +=
          chance *
          (functional::edge_attention(ask.query, ask.key, value, EdgeSet::from_mask(mask_of(n))) * weight)
              .sum()
              .item<double>();
    }
    return total;
  };
  const auto parameters = edges->parameters();
  edges->zero_grad();
  const at::Tensor chance_p = probability().detach();
  for (int64_t n = 0; n < 16; ++n) {
    EdgeLearner learner;
    learner.query_membership = edges->membership(ask.query);
    learner.key_side = edges->key_side(edges->membership(ask.key));
    learner.rule = CreditRule::kLeaveOneOut;
    learner.probes = EdgeSet::from_mask(~mask_of(n));
    learner.probe_rates = {1};
    const double chance = at::where(mask_of(n), chance_p, 1 - chance_p).prod().item<double>();
    const auto out =
        functional::edge_attention(ask.query, ask.key, value, EdgeSet::from_mask(mask_of(n)), learner);
    (chance * (out.output * weight).sum()).backward();  // gradients add up to the mean
  }
  expect_gradient(expected_loss, parameters, gradients_of(parameters), 1e-7);
}

TEST(SbmEdges, SelfLoopsAreAlwaysThereAndTeachNothing) {
  SbmEdgesOptions options(2, 8);
  options.self_loops = true;
  SbmEdges edges(options);
  const EdgeChoice choice = edges->choose(request(1, 2, 15, 8));
  EXPECT_TRUE(choice.edges.to_mask().diagonal(0, 2, 3).all().item<bool>());
  EXPECT_FALSE(choice.edges.minus(*choice.learner->fixed).to_mask().diagonal(0, 2, 3).any().item<bool>());
}

class SbmEdgesOn : public kit::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, SbmEdgesOn, kit::devices(), kit::device_name);

// As released: padding is drawn and counted, attention does not see it, and no other edge changes.
TEST_P(SbmEdgesOn, EveryDeviceDiscardsWhatItDrewOnPadding) {
  SbmEdgesOptions options(2, 8);
  options.count_padding = true;
  SbmEdges edges(options);
  edges->to(device());
  EdgeRequest ask = request(3, 2, 70, 8);
  ask.query = ask.query.to(device());
  ask.key = ask.key.to(device());
  const EdgeChoice all = edges->choose(ask);
  const at::Tensor mask = (at::arange(70).unsqueeze(0) < at::tensor({70, 33, 1}).unsqueeze(1)).to(device());
  ask.key_mask = mask;
  const EdgeChoice some = edges->choose(ask);
  ASSERT_TRUE(some.learner->discarded.has_value());
  const at::Tensor valid = mask.view({3, 1, 1, 70}) & mask.view({3, 1, 70, 1}), drawn = all.edges.to_mask();
  EXPECT_TRUE(at::equal(some.edges.to_mask(), drawn & valid));
  EXPECT_TRUE(at::equal(some.learner->discarded->to_mask(), drawn & ~valid));
  EXPECT_TRUE(at::equal(some.density.cpu(), all.density.cpu()));
}

TEST(SbmEdges, ProbesOnlyInTrainingAndWithinTheirBudget) {
  SbmEdgesOptions options(1, 8);
  options.probe_rate = 0.5;
  options.probes_per_row = 3;
  options.probe_unit = 1;
  SbmEdges edges(options);
  const EdgeChoice choice = edges->choose(request(1, 1, 120, 8));
  ASSERT_TRUE(choice.learner->probes);
  EXPECT_EQ(choice.learner->probe_rates, std::vector<double>{3.0 / 120});
  EXPECT_NEAR(static_cast<double>(choice.learner->probes->edge_count()), 0.75 * 3 * 120, 80);
  EXPECT_EQ((choice.learner->probes->to_mask() & choice.edges.to_mask()).sum().item<int64_t>(), 0);
  edges->eval();
  EXPECT_FALSE(edges->choose(request(1, 1, 120, 8)).learner->probes.has_value());
}

TEST(SbmEdges, ProbesInUnitsAreAbsentPairsOfWholeSquares) {
  SbmEdgesOptions options(2, 8);
  options.probe_rate = 0.2;
  options.probe_unit = 16;
  SbmEdges edges(options);
  const EdgeChoice choice = edges->choose(request(2, 2, 64, 8));
  const auto squares = [](const at::Tensor& mask) {
    return mask.view({2, 2, 4, 16, 4, 16}).sum(at::IntArrayRef{3, 5});
  };
  const at::Tensor probes = squares(choice.learner->probes->to_mask()),
                   absent = squares(~choice.edges.to_mask());
  EXPECT_TRUE(((probes == 0) | (probes == absent)).all().item<bool>());
  EXPECT_GT(probes.sum().item<int64_t>(), 0);
}

TEST(SbmEdges, RefusesBadOptionsAndShapes) {
  SbmEdgesOptions options(2, 8);
  options.probe_rate = 2;
  EXPECT_THROW(SbmEdges{options}, c10::Error);
  options.probe_rate = 0.02;
  options.probe_unit = 4;
  EXPECT_THROW(SbmEdges{options}, c10::Error);
  EXPECT_THROW(SbmEdges(SbmEdgesOptions(0, 8)), c10::Error);
  EXPECT_THROW(SbmEdges(SbmEdgesOptions(2, 8))->choose(request(1, 3, 4, 8)), c10::Error);
}

}  // namespace
}  // namespace edgewise
