// SquareEdges: SAC and the indexer over groups of 16 tokens, alone and beside patterns.
#include <edgewise/edges/indexer_edges.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/square_edges.h>
#include <edgewise/graph/square_lists.h>
#include <edgewise/ops/functional.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "edges/bands.h"
#include "edges/sac_kit.h"

namespace edgewise {
namespace {

enum class Chooser { kSac, kIndexer };

EdgeSourcePtr source_of(Chooser chooser, int64_t alpha, bool paired = false) {
  torch::manual_seed(5);
  EdgeSourcePtr source;
  if (chooser == Chooser::kSac) {
    SacEdgesOptions options = kit::sac_options(2, SacWalk::kRooted, alpha);
    if (paired) options.estimator = SacEstimator::kPaired;
    options.test_decoding = WalkDecoding::kGreedy;
    source = SacEdges(options).ptr();
  } else {
    IndexerEdgesOptions options(2, 8);
    options.alpha = alpha;
    if (paired) options.estimator = IndexerEstimator::kPaired;
    source = IndexerEdges(options).ptr();
  }
  const torch::NoGradGuard guard;
  for (at::Tensor& parameter : source->parameters()) parameter.normal_(0, 0.7);
  source->to(at::kDouble);
  return std::make_shared<SquareEdges>(source);
}

EdgeSourcePtr beside_patterns(EdgeSourcePtr learned) {
  return std::make_shared<UnionEdges>(std::vector<EdgeSourcePtr>{
      std::make_shared<WindowEdges>(8, 16), std::make_shared<SinkEdges>(1, 16), std::move(learned)});
}

EdgeRequest request_of(int64_t tokens, bool causal, bool masked) {
  EdgeRequest request = kit::sac_request(2, 2, tokens);
  request.is_causal = causal;
  request.random = {.seed = 4};
  if (masked)
    request.key_mask = at::arange(tokens).unsqueeze(0) < torch::tensor({tokens, tokens / 2 + 3}).unsqueeze(1);
  return request;
}

class Groups : public testing::TestWithParam<Chooser> {};
INSTANTIATE_TEST_SUITE_P(Both, Groups, testing::Values(Chooser::kSac, Chooser::kIndexer),
                         [](const auto& given) { return given.param == Chooser::kSac ? "sac" : "indexer"; });

TEST_P(Groups, MakeAlphaSquaresAGroup) {
  for (const bool masked : {false, true}) {
    const EdgeRequest request = request_of(100, false, masked);
    const EdgeChoice choice = allowed_choice(*source_of(GetParam(), 2), request);
    ASSERT_TRUE(choice.edges.squares());
    const EdgeSet& groups = choice.edges.square_groups();
    EXPECT_EQ(groups.shape(), (EdgeShape{2, 2, 7, 7}));
    at::Tensor expected = at::full({2, 2, 7}, 2, at::kLong);
    if (masked) expected.select(0, 1).slice(1, 4).zero_();  // 53 tokens are four groups
    EXPECT_TRUE(at::equal(groups.degrees(), expected));
    EXPECT_FALSE((choice.edges.to_mask() & request.allowed().logical_not()).any().item<bool>());
    EXPECT_EQ(choice.policy->unit, 16);
    EXPECT_EQ(choice.policy->log_prob.sizes(), at::IntArrayRef({2, 7}));
  }
}

// A query group chooses among those before it: its own and what the patterns have are not its business.
TEST_P(Groups, ChooseWhatThePatternsLeave) {
  const EdgeRequest request = request_of(160, true, false);
  EdgeSet pattern =
      WindowEdges(8, 16).choose(request).edges.united_with(SinkEdges(1, 16).choose(request).edges);
  EdgeSourcePtr both = beside_patterns(source_of(GetParam(), 2));
  const EdgeChoice choice = allowed_choice(*both, request);
  ASSERT_TRUE(choice.edges.squares());
  const at::Tensor groups = choice.edges.square_groups().to_mask(), fixed = pattern.square_groups().to_mask();
  const at::Tensor learned = groups & fixed.logical_not();
  EXPECT_TRUE(((groups & fixed) == fixed).all().item<bool>());
  EXPECT_FALSE(at::triu(learned.to(at::kLong)).any().item<bool>()) << "wholly before";
  // Group I has I - 2 groups between the sink and its window.
  const at::Tensor left = (at::arange(10) - 2).clamp(0, 2).expand({2, 2, 10});
  EXPECT_TRUE(at::equal(learned.sum(-1), left));
  const at::Tensor probes = choice.learner->probes->square_groups().to_mask();
  EXPECT_FALSE((probes & (groups | at::ones({10, 10}, at::kBool).triu())).any().item<bool>());
  EXPECT_GT(probes.sum().item<int64_t>(), 0);
}

TEST_P(Groups, NoOutputFeelsTheFuture) {
  EdgeSourcePtr source = beside_patterns(source_of(GetParam(), 2));
  source->eval();
  for (const int64_t changed : {37, 48, 79}) {
    const auto outputs = [&](double by) {
      EdgeRequest request = request_of(96, true, false);
      for (at::Tensor* states : {&request.query, &request.key}) {
        *states = states->clone();
        states->narrow(2, changed, 1).add_(by);
      }
      request.tokens = request.tokens.clone();
      request.tokens.narrow(1, changed, 1).add_(by);
      const EdgeChoice choice = allowed_choice(*source, request);
      return functional::edge_attention(request.query, request.key, request.key, choice.edges);
    };
    const at::Tensor before = outputs(0), after = outputs(5);
    EXPECT_TRUE(at::equal(before.narrow(2, 0, changed), after.narrow(2, 0, changed))) << changed;
    EXPECT_FALSE(
        at::allclose(before.narrow(2, changed, 96 - changed), after.narrow(2, changed, 96 - changed)));
  }
}

// A square's number gets what switching the square would do: the credit that its groups' graph would get from
// a dense computation over pairs.
TEST_P(Groups, LearnFromTheEffectOfASquare) {
  const EdgeRequest request = request_of(64, false, false);
  EdgeSourcePtr source = source_of(GetParam(), 2);
  const EdgeChoice choice = allowed_choice(*source, request);
  EdgeLearner learner = *choice.learner;
  learner.values = learner.values.detach().requires_grad_();
  learner.probe_values = learner.probe_values.detach().requires_grad_();
  const at::Tensor value = kit::randn({2, 2, 64, 4}, 8, at::kDouble),
                   weight = kit::randn({2, 2, 64, 4}, 9, at::kDouble);
  const at::Tensor output =
      functional::edge_attention(request.query, request.key, value, choice.edges, learner).output;
  (output * weight).sum().backward();
  const at::Tensor values = learner.values.grad(), probe_values = learner.probe_values.grad();
  const at::Tensor is_present = choice.edges.square_groups().to_mask(),  // [B, H, groups, groups]
      is_probe = learner.probes->square_groups().to_mask();
  const at::Tensor found = at::zeros({2, 2, 4, 4}, at::kDouble)
                               .masked_scatter(is_present, values)
                               .masked_scatter(is_probe, probe_values);

  const at::Tensor scores = at::matmul(request.query, request.key.transpose(2, 3)) / 2;
  const at::Tensor mask = choice.edges.to_mask();
  const at::Tensor level = scores.masked_fill(mask.logical_not(), -1e30).logsumexp(-1, true);
  const at::Tensor a = (scores - level).exp(),  // of absent pairs b
      u = at::matmul(weight, value.transpose(2, 3)), ubar = (weight * output).sum(-1, true);
  const auto by_square = [](const at::Tensor& pairs) {  // sums over keys: [B, H, L, groups]
    return pairs.unflatten(3, {4, 16}).sum(4);
  };
  const at::Tensor effect = by_square(a * (u - ubar)), mass = by_square(a);
  const at::Tensor present = effect.unflatten(2, {4, 16}).sum(3),
                   absent = (effect / (1 + mass)).unflatten(2, {4, 16}).sum(3);
  EXPECT_GT(is_probe.sum().item<int64_t>(), 0);
  const at::Tensor expected = at::where(
      is_present, present, at::where(is_probe, absent / learner.probe_rates[0], at::zeros_like(present)));
  EXPECT_TRUE(at::allclose(found, expected, 1e-9, 1e-10));
  // And from there to every parameter of the source.
  ((choice.learner->values * values).sum() + (choice.learner->probe_values * probe_values).sum()).backward();
  for (const auto& parameter : source->named_parameters())
    EXPECT_TRUE(parameter.value().grad().defined() && parameter.value().grad().abs().sum().item<double>() > 0)
        << parameter.key();
}

// Beside a window the walk leaves out a band of groups, by its kernels as in plain operators.
TEST(SquareEdges, WalkBesideAWindowByKernels) {
  EdgeRequest request = request_of(150, false, false);
  const auto band = [&] { return known_band(WindowEdges(17, 16).choose(request).edges); };
  EXPECT_EQ(band(), 2);
  request.query_offset = 8;  // no whole groups
  EXPECT_FALSE(band());
  for (const bool causal : {false, true})
    for (const bool masked : {false, true})
      for (const int64_t width : {-1, 0, 17}) {  // -1: no window
        const auto run = [&](bool fused) {
          SacEdgesOptions options = kit::sac_options(2, SacWalk::kRooted, 3);
          options.sharing = SacSharing::kPerHead;
          options.fused = fused;
          const SacEdges sac = kit::sac_predictor(options, 7, 1);
          EdgeSourcePtr source = std::make_shared<SquareEdges>(sac.ptr());
          if (width >= 0)
            source = std::make_shared<UnionEdges>(
                std::vector<EdgeSourcePtr>{std::make_shared<WindowEdges>(width, 16), source});
          EdgeChoice choice = allowed_choice(*source, request_of(150, causal, masked));
          (choice.learner->values.square().sum() + choice.learner->probe_values.square().sum()).backward();
          return std::pair(choice, sac->lstm_weight_hh.grad());
        };
        const auto [plain, plain_grad] = run(false);
        const auto [fused, fused_grad] = run(true);
        const auto same = [](const EdgeSet& a, const EdgeSet& b) {
          return kit::same_edges(a.square_groups(), b.square_groups());
        };
        EXPECT_TRUE(same(plain.edges, fused.edges)) << causal << masked << width;
        EXPECT_TRUE(same(*plain.learner->probes, *fused.learner->probes)) << causal << masked << width;
        EXPECT_TRUE(at::allclose(plain.learner->values, fused.learner->values, 1e-9, 1e-12));
        EXPECT_TRUE(at::allclose(plain.learner->probe_values, fused.learner->probe_values, 1e-9, 1e-12));
        EXPECT_TRUE(at::allclose(plain_grad, fused_grad, 1e-9, 1e-12));
        EXPECT_GT(fused_grad.abs().max().item<double>(), 0);
      }
}

TEST_P(Groups, PairsAreComparedGroupByGroup) {
  const EdgeRequest request = request_of(40, false, false);
  EdgeSourcePtr source = source_of(GetParam(), 1, true);
  EdgeRequest again = request;
  again.random.layer = 1;
  EdgeChoice first = source->choose(request), second = source->choose(again);
  EXPECT_FALSE(first.learner);
  first.policy->reaches_own_query_only = second.policy->reaches_own_query_only = true;
  const at::Tensor losses = kit::randn({2, 40}, 6, at::kDouble), others = kit::randn({2, 40}, 7, at::kDouble);
  const at::Tensor found = paired_loss(*first.policy, *second.policy, losses, others);
  at::Tensor expected = at::zeros({2}, at::kDouble);
  for (int64_t group = 0; group < 3; ++group)
    expected = expected + 0.5 * (losses - others).slice(1, 16 * group, 16 * (group + 1)).sum(1) *
                              (first.policy->log_prob - second.policy->log_prob).select(1, group);
  EXPECT_TRUE(at::allclose(found, expected, 1e-10, 1e-12));
}

TEST(SquareEdges, RefusesWhatItCannotDo) {
  EdgeSourcePtr source = source_of(Chooser::kIndexer, 1);
  EdgeRequest request = request_of(40, true, false);
  request.present = WindowEdges(3).choose(request).edges;
  EXPECT_THROW(source->choose(request), c10::ValueError) << "single edges";
  EXPECT_FALSE(source->growth_refusal().empty());
  EXPECT_THROW(SquareEdges(nullptr), c10::ValueError);
}

TEST(SinkEdges, AreTheFirstKeysOfEveryQuery) {
  for (const bool causal : {false, true}) {
    const EdgeRequest request = request_of(40, causal, true);
    const at::Tensor first = (at::arange(40) < 3).view({1, 1, 1, 40}),
                     group = (at::arange(40) < 16).view({1, 1, 1, 40});
    const at::Tensor allowed = request.allowed().expand({2, 2, 40, 40});
    EXPECT_TRUE(at::equal(SinkEdges(3).choose(request).edges.to_mask(), allowed & first));
    const EdgeSet squares = SinkEdges(3, 16).choose(request).edges;
    EXPECT_TRUE(squares.squares());
    EXPECT_TRUE(at::equal(squares.to_mask(), allowed & group));
  }
  EXPECT_THROW(SinkEdges(0), c10::ValueError);
}

}  // namespace
}  // namespace edgewise
