// SacEdges: which edges it may choose, what its probabilities are, and what it must not depend on.
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "edges/sac/sac_inputs.h"
#include "edges/sac_kit.h"
#include "kit/message_of.h"

namespace edgewise {
namespace {

using kit::given_walk;
using kit::sac_options;
using kit::sac_predictor;
using kit::sac_request;
using kit::same_edges;

at::Tensor causal_mask(int64_t n) {
  return at::ones({n, n}, at::kBool).tril();
}

class Walks : public testing::TestWithParam<SacWalk> {};
INSTANTIATE_TEST_SUITE_P(All, Walks, testing::Values(SacWalk::kRooted, SacWalk::kPairs),
                         [](const auto& given) { return std::string(to_string(given.param)); });

TEST_P(Walks, ChooseOnlyCandidatesAndSpendTheBudget) {
  for (const bool training : {true, false}) {
    SacEdges source = sac_predictor(sac_options(2, GetParam(), 3));
    source->train(training);
    EdgeRequest request = sac_request(3, 2, 9);
    request.key_mask = at::arange(9).unsqueeze(0) < torch::tensor({9, 6, 0}).unsqueeze(1);
    request.is_causal = true;
    const EdgeSet edges = source->choose(request).edges;
    const at::Tensor mask = edges.to_mask();
    const at::Tensor valid = *request.key_mask;
    const at::Tensor allowed = causal_mask(9) & valid.view({3, 1, 1, 9}) & valid.view({3, 1, 9, 1});
    EXPECT_FALSE((mask & ~allowed).any().item<bool>());
    if (GetParam() == SacWalk::kRooted) {
      EXPECT_TRUE(at::equal(edges.degrees().select(1, 0), allowed.sum(-1).squeeze(1).clamp_max(3)));
    } else {
      // Item 0 has 45 candidates and makes 27 edges; item 1 makes 18 of its 21.
      EXPECT_TRUE(at::equal(edges.edges_per_head().select(1, 0), torch::tensor({27, 18, 0})));
    }
    EXPECT_TRUE(at::equal(mask.select(1, 0), mask.select(1, 1))) << "heads share their edges";
  }
}

TEST_P(Walks, AlphaOfAllKeysIsDense) {
  for (const bool causal : {false, true}) {
    SacEdges source = sac_predictor(sac_options(2, GetParam(), 7));
    EdgeRequest request = sac_request(2, 2, 7);
    request.key_mask = at::arange(7).unsqueeze(0) < torch::tensor({7, 4}).unsqueeze(1);
    request.is_causal = causal;
    const EdgeChoice choice = source->choose(request);
    EXPECT_TRUE(same_edges(choice.edges, FullEdges().choose(request).edges));
    // Nothing was left to chance, so there is nothing to learn.
    EXPECT_EQ(choice.policy->log_prob.abs().max().item<double>(), 0);
  }
}

TEST_P(Walks, SelfEdgesAndDuplicates) {
  for (const SelfEdges self : {SelfEdges::kNever, SelfEdges::kAlways}) {
    SacEdgesOptions options = sac_options(1, GetParam(), 2);
    options.self_edges = self;
    const at::Tensor mask = sac_predictor(options)->choose(sac_request(4, 1, 8)).edges.to_mask();
    const at::Tensor own = mask.diagonal(0, 2, 3);
    EXPECT_EQ(own.all().item<bool>(), self == SelfEdges::kAlways);
    EXPECT_EQ(own.any().item<bool>(), self == SelfEdges::kAlways);
    EXPECT_EQ(mask.sum().item<int64_t>(), 4 * 8 * (self == SelfEdges::kAlways ? 3 : 2))
        << "outside the budget";
  }
  SacEdgesOptions options = sac_options(1, GetParam(), 6);
  options.duplicates = true;
  const EdgeSet edges = sac_predictor(options)->choose(sac_request(4, 1, 8)).edges;
  EXPECT_LT(edges.edge_count(), 4 * 8 * 6) << "with these sharp weights some edge is drawn twice";
  EXPECT_GT(edges.edge_count(), 0);
}

TEST_P(Walks, BudgetPerSequence) {
  SacEdgesOptions options = sac_options(1, GetParam(), 1);
  options.budget = 19;
  EdgeRequest request = sac_request(2, 1, 9);
  request.key_mask = at::arange(9).unsqueeze(0) < torch::tensor({9, 6}).unsqueeze(1);
  const EdgeSet edges = sac_predictor(options)->choose(request).edges;
  EXPECT_TRUE(at::equal(edges.edges_per_head().flatten(), torch::tensor({19, 19})));
}

TEST_P(Walks, CandidatesOfAnotherSource) {
  SacEdgesOptions options = sac_options(1, GetParam(), 2);
  options.candidates = std::make_shared<WindowEdges>(2);
  const EdgeRequest request = sac_request(3, 1, 10);
  const EdgeSet window = WindowEdges(2).choose(request).edges;
  const EdgeSet chosen = sac_predictor(options)->choose(request).edges;
  EXPECT_TRUE(chosen.contained_in(window).all().item<bool>());
  EXPECT_EQ(chosen.edge_count(), 3 * 10 * 2);
  options.alpha = 5;
  EXPECT_TRUE(same_edges(sac_predictor(options)->choose(request).edges, window));
}

TEST_P(Walks, DoNotDependOnBatchMatesOrPadding) {
  for (const bool training : {true, false}) {
    SacEdges source = sac_predictor(sac_options(2, GetParam(), 2));
    source->train(training);
    EdgeRequest whole = sac_request(3, 2, 8);
    whole.key_mask = at::arange(8).unsqueeze(0) < torch::tensor({8, 5, 7}).unsqueeze(1);
    whole.random = {.seed = 3, .step = 4, .layer = 1, .first_item = 10};
    const at::Tensor mask = source->choose(whole).edges.to_mask();
    for (int64_t item = 0; item < 3; ++item) {
      EdgeRequest alone = whole;
      alone.query = whole.query.narrow(0, item, 1);
      alone.key = whole.key.narrow(0, item, 1);
      alone.tokens = whole.tokens.narrow(0, item, 1);
      alone.key_mask = whole.key_mask->narrow(0, item, 1);
      alone.random.first_item = 10 + item;
      EXPECT_TRUE(at::equal(source->choose(alone).edges.to_mask()[0], mask[item])) << "item " << item;
    }
    EdgeRequest padded = whole;
    padded.query = at::cat({whole.query, kit::randn({3, 2, 3, 4}, 9, at::kDouble)}, 2);
    padded.key = at::cat({whole.key, kit::randn({3, 2, 3, 4}, 10, at::kDouble)}, 2);
    padded.tokens = at::cat({whole.tokens, kit::randn({3, 3, 8}, 11, at::kDouble)}, 1);
    padded.key_mask = at::cat({*whole.key_mask, at::zeros({3, 3}, at::kBool)}, 1);
    const at::Tensor longer = source->choose(padded).edges.to_mask();
    EXPECT_TRUE(at::equal(longer.narrow(2, 0, 8).narrow(3, 0, 8), mask));
    EXPECT_EQ(longer.sum().item<int64_t>(), mask.sum().item<int64_t>());
  }
}

// ---- probabilities against loops over nodes, with torch's own LSTM cell ----

struct PlainPredictor {
  const SacEdgesImpl& p;
  int64_t g;
  at::Tensor h, c;

  PlainPredictor(const SacEdgesImpl& predictor, int64_t group) : p(predictor), g(group) {
    h = at::zeros({1, p.options.node_dim}, at::kDouble);
    c = h;
  }
  at::Tensor node(const at::Tensor& token) const {
    return at::mv(p.node_weight[g].t(), token) + p.node_bias[g];
  }
  void step(const at::Tensor& input) {
    std::tie(h, c) = at::lstm_cell(input.unsqueeze(0), {h, c}, p.lstm_weight_ih[g].t(),
                                   p.lstm_weight_hh[g].t(), p.lstm_bias[g], at::zeros_like(p.lstm_bias[g]));
  }
  at::Tensor score(const at::Tensor& node_of, int64_t bucket) const {  // < 0: a source
    const at::Tensor& table = p.distance_table;
    const at::Tensor state = h[0];
    at::Tensor result = p.options.scorer == SacScorer::kDot
                            ? state.dot(node_of)
                            : p.mlp_out[g].dot((at::mv(p.mlp_state[g].t(), state) +
                                                at::mv(p.mlp_node[g].t(), node_of) + p.mlp_bias[g])
                                                   .tanh());
    if (bucket < 0 || p.options.distance == DistanceEncoding::kNone) return result;
    return result +
           (p.options.distance == DistanceEncoding::kBias ? table[g][bucket] : state.dot(table[g][bucket]));
  }
  static at::Tensor log_prob(const std::vector<at::Tensor>& scores, size_t chosen) {
    return at::log_softmax(at::stack(scores), 0)[static_cast<int64_t>(chosen)];
  }
};

using LogProbCase = std::tuple<SacWalk, SacScorer, DistanceEncoding>;
class LogProbabilities : public testing::TestWithParam<LogProbCase> {};
INSTANTIATE_TEST_SUITE_P(All, LogProbabilities,
                         testing::Combine(testing::Values(SacWalk::kRooted, SacWalk::kPairs),
                                          testing::Values(SacScorer::kDot, SacScorer::kMlp),
                                          testing::Values(DistanceEncoding::kNone, DistanceEncoding::kBias,
                                                          DistanceEncoding::kVector)));

TEST_P(LogProbabilities, EqualPlainLoops) {
  const auto [walk, scorer, distance] = GetParam();
  SacEdgesOptions options = sac_options(2, walk, 2);
  options.scorer = scorer;
  options.distance = distance;
  options.sharing = SacSharing::kPerHead;
  SacEdges source = sac_predictor(options);
  EdgeRequest request = sac_request(2, 2, 5);
  request.is_causal = true;
  const torch::NoGradGuard guard;
  const sac::WalkInputs inputs = source->walk_inputs(request);
  const sac::WalkResult result = source->walk(inputs, request, WalkDecoding::kSample);
  const at::Tensor buckets = sac::distance_buckets(request, 6, 8);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t g = 0; g < 2; ++g) {
      std::vector<at::Tensor> nodes;
      for (int64_t i = 0; i < 5; ++i) nodes.push_back(PlainPredictor(*source, g).node(request.tokens[b][i]));
      std::set<std::pair<int64_t, int64_t>> gone;
      std::vector<PlainPredictor> walkers(walk == SacWalk::kRooted ? 5 : 1, PlainPredictor(*source, g));
      std::vector<at::Tensor> input(walkers.size(),
                                    walk == SacWalk::kPairs ? source->start[g] : at::Tensor());
      for (int64_t a = 0; a < result.taken.size(2); ++a) {
        if (!result.taken[b][g][a].item<bool>()) continue;
        const int64_t i = result.source[b][g][a].item<int64_t>(),
                      j = result.destination[b][g][a].item<int64_t>();
        const auto w = static_cast<size_t>(walk == SacWalk::kRooted ? i : 0);
        if (!input[w].defined()) input[w] = nodes[static_cast<size_t>(i)];
        at::Tensor expected = at::zeros({}, at::kDouble);
        if (walk == SacWalk::kPairs) {
          walkers[w].step(input[w]);
          std::vector<at::Tensor> scores;
          size_t chosen = 0;
          for (int64_t s = 0; s < 5; ++s) {
            bool open = false;
            for (int64_t t = 0; t <= s; ++t) open = open || !gone.contains({s, t});
            if (!open) continue;
            if (s == i) chosen = scores.size();
            scores.push_back(walkers[w].score(nodes[static_cast<size_t>(s)], -1));
          }
          expected = expected + PlainPredictor::log_prob(scores, chosen);
          input[w] = nodes[static_cast<size_t>(i)];
        }
        walkers[w].step(input[w]);
        std::vector<at::Tensor> scores;
        size_t chosen = 0;
        for (int64_t t = 0; t <= i; ++t) {
          if (gone.contains({i, t})) continue;
          if (t == j) chosen = scores.size();
          scores.push_back(walkers[w].score(nodes[static_cast<size_t>(t)], buckets[i][t].item<int64_t>()));
        }
        expected = expected + PlainPredictor::log_prob(scores, chosen);
        EXPECT_TRUE(gone.insert({i, j}).second) << "an edge was chosen twice";
        input[w] = nodes[static_cast<size_t>(j)];
        EXPECT_NEAR(result.log_prob[b][g][a].item<double>(), expected.item<double>(), 1e-12);
      }
      EXPECT_FALSE(gone.empty());
    }
  }
}

TEST_P(LogProbabilities, GradientsMatchFiniteDifferences) {
  const auto [walk, scorer, distance] = GetParam();
  SacEdgesOptions options = sac_options(1, walk, 2);
  options.scorer = scorer;
  options.distance = distance;
  SacEdges source = sac_predictor(options, 8, 1);
  EdgeRequest request = sac_request(2, 1, 4);
  const sac::WalkResult actions = source->walk(source->walk_inputs(request), request, WalkDecoding::kSample);
  const auto objective = [&] {
    const sac::WalkResult again = given_walk(source, source->walk_inputs(request), actions);
    return (again.log_prob * kit::randn(again.log_prob.sizes(), 4, at::kDouble)).sum() + again.entropy.sum();
  };
  objective().backward();
  for (const auto& item : source->named_parameters()) {
    const at::Tensor flat = item.value().detach().view(-1), gradient = item.value().grad().view(-1);
    for (int64_t n = 0; n < flat.numel(); n += std::max<int64_t>(flat.numel() / 5, 1)) {
      const torch::NoGradGuard guard;
      const double step = 1e-6, before = flat[n].item<double>();
      flat[n] = before + step;
      const double above = objective().item<double>();
      flat[n] = before - step;
      const double below = objective().item<double>();
      flat[n] = before;
      EXPECT_NEAR(gradient[n].item<double>(), (above - below) / (2 * step), 2e-7) << item.key() << " " << n;
    }
  }
}

// ---- sampling, greedy, beam ----

TEST_P(Walks, SamplesFollowTheirProbabilities) {
  constexpr int64_t kItems = 6000;
  SacEdgesOptions options = sac_options(1, GetParam(), 1);
  options.budget = GetParam() == SacWalk::kPairs ? 1 : 0;
  SacEdges source = sac_predictor(options, 7, 1);
  EdgeRequest request = sac_request(1, 1, 4);
  request.query = request.query.expand({kItems, 1, 4, 4});
  request.key = request.key.expand({kItems, 1, 4, 4});
  request.tokens = request.tokens.expand({kItems, 4, 4});
  const torch::NoGradGuard guard;
  const sac::WalkResult result = source->walk(source->walk_inputs(request), request, WalkDecoding::kSample);
  const int64_t walkers = GetParam() == SacWalk::kRooted ? 4 : 1;
  for (int64_t w = 0; w < walkers; ++w) {
    const at::Tensor place =
        result.source.select(2, w).flatten() * 4 + result.destination.select(2, w).flatten();
    const at::Tensor log_prob = result.log_prob.select(2, w).flatten();
    for (int64_t outcome = 0; outcome < 16; ++outcome) {
      const at::Tensor hits = place == outcome;
      const double count = hits.sum().item<double>();
      if (count == 0) continue;
      const double p = log_prob.masked_select(hits)[0].exp().item<double>();
      const double z = (count - kItems * p) / std::sqrt(kItems * p * (1 - p));
      EXPECT_LT(std::abs(z), 4.5) << "outcome " << outcome << " of walker " << w << ", p " << p;  // 1e-5 each
    }
  }
}

// All walks of one item, by trying every continuation.
double best_log_prob(const SacEdges& source, const EdgeRequest& request, int64_t actions) {
  const sac::WalkInputs inputs = source->walk_inputs(request);
  const bool rooted = source->options.walk == SacWalk::kRooted;
  double best = -INFINITY;
  const int64_t n = request.shape().keys, outcomes = rooted ? n : n * n;
  std::vector<int64_t> digits(static_cast<size_t>(actions), 0);
  for (;;) {
    if (std::set<int64_t>(digits.begin(), digits.end()).size() == digits.size()) {
      sac::WalkResult given;
      given.steps = actions;
      const at::Tensor list = torch::tensor(digits).view({1, 1, -1});
      given.source = rooted ? at::zeros_like(list) : list.div(n, "floor");
      given.destination = rooted ? list : list.remainder(n);
      best = std::max(best, given_walk(source, inputs, given).log_prob.sum().item<double>());
    }
    size_t place = 0;
    while (place < digits.size() && ++digits[place] == outcomes) digits[place++] = 0;
    if (place == digits.size()) return best;
  }
}

TEST_P(Walks, BeamFindsTheLikeliestWalk) {
  const bool rooted = GetParam() == SacWalk::kRooted;
  SacEdgesOptions options = sac_options(1, GetParam(), 2);
  options.budget = rooted ? 0 : 2;
  const torch::NoGradGuard guard;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    // One row of four candidates (rooted); two edges of nine pairs (pairs).
    EdgeRequest request = sac_request(1, 1, rooted ? 4 : 3);
    if (rooted) {
      request.query = request.query.narrow(2, 0, 1);
      request.key_tokens = request.tokens;
      request.tokens = request.tokens.narrow(1, 0, 1);
    }
    const auto log_prob = [&](int64_t beam, WalkDecoding decoding) {
      options.beam = beam;
      SacEdges source = sac_predictor(options, seed);
      const sac::WalkInputs inputs = source->walk_inputs(request);
      const sac::WalkResult found = source->walk(inputs, request, decoding);
      return given_walk(source, inputs, found).log_prob.sum().item<double>();
    };
    const double best = best_log_prob(sac_predictor(options, seed), request, 2);
    EXPECT_NEAR(log_prob(100, WalkDecoding::kBeam), best, 1e-12);
    EXPECT_NEAR(log_prob(1, WalkDecoding::kBeam), log_prob(1, WalkDecoding::kGreedy), 1e-12);
    EXPECT_GE(log_prob(5, WalkDecoding::kBeam) + 1e-12, log_prob(1, WalkDecoding::kGreedy));
  }
}

TEST_P(Walks, EvaluationIsDeterministic) {
  SacEdges source = sac_predictor(sac_options(1, GetParam(), 2));
  source->eval();
  EdgeRequest request = sac_request(2, 1, 6);
  const EdgeChoice first = source->choose(request);
  request.random.seed = 99;
  EXPECT_TRUE(same_edges(first.edges, source->choose(request).edges));
  EXPECT_FALSE(first.policy.has_value());
  source->train();
  const EdgeSet sampled = source->choose(request).edges;
  request.random.step = 5;
  EXPECT_FALSE(same_edges(sampled, source->choose(request).edges));
}

// ---- sharing, distance, relations ----

TEST(SacEdges, HeadsOfTheirOwn) {
  SacEdgesOptions options = sac_options(3, SacWalk::kRooted, 2);
  options.sharing = SacSharing::kPerHead;
  const at::Tensor mask = sac_predictor(options)->choose(sac_request(2, 3, 12)).edges.to_mask();
  EXPECT_FALSE(at::equal(mask.select(1, 0), mask.select(1, 1)));
  EXPECT_FALSE(at::equal(mask.select(1, 1), mask.select(1, 2)));
}

TEST(SacEdges, AllLayersShareTheFirstOnesChoice) {
  SacEdgesOptions options = sac_options(2, SacWalk::kRooted, 2);
  options.sharing = SacSharing::kAllLayers;
  SacEdgesFactory factory(options);
  torch::manual_seed(1);
  const EdgeSourcePtr first = factory(0), second = factory(1);
  EXPECT_TRUE(second->parameters().empty());
  const EdgeRequest request = sac_request(2, 2, 8, at::kFloat);
  EXPECT_THROW(second->choose(request), c10::Error);
  const EdgeChoice chosen = first->choose(request);
  EdgeRequest other = request;
  other.tokens = request.tokens + 1;
  other.random.layer = 1;
  const EdgeChoice shared = second->choose(other);
  EXPECT_TRUE(same_edges(chosen.edges, shared.edges));
  EXPECT_FALSE(shared.policy.has_value()) << "actions count once";
  EXPECT_TRUE(shared.learner.has_value());
}

TEST(SacEdges, DistanceBuckets) {
  EdgeRequest request = sac_request(1, 1, 40);
  const at::Tensor buckets = sac::distance_buckets(request, 8, 16);
  const auto of = [&](int64_t distance) {
    return buckets[distance < 0 ? -distance : 0][distance < 0 ? 0 : distance].item<int64_t>();
  };
  // Four a side: 0 and 1 exactly, 2 to 5, and all beyond 2 * 8^(1/2) = 5.7.
  const std::vector<int64_t> far = {0, 1, 2, 5, 6, 16, 39}, expected = {0, 1, 2, 2, 3, 3, 3};
  for (size_t n = 0; n < far.size(); ++n) {
    EXPECT_EQ(of(-far[n]), expected[n]) << -far[n];
    if (far[n] > 0) {
      EXPECT_EQ(of(far[n]), expected[n] + 4) << far[n];
    }
  }
  request.query = request.query.narrow(2, 0, 10);
  request.query_offset = 30;
  EXPECT_TRUE(at::equal(sac::distance_buckets(request, 8, 16), buckets.narrow(0, 30, 10)));
}

TEST(SacEdges, DistanceDecayBeginsNearby) {
  SacEdgesOptions options = sac_options(2, SacWalk::kRooted, 1);
  options.distance = DistanceEncoding::kBias;
  options.distance_buckets = 8;
  options.max_distance = 16;
  options.distance_decay = 2;
  const SacEdges edges(options);
  // The nearest distances of the buckets are 0, 1, 2 and 6 on either side.
  for (int64_t bucket = 0; bucket < 8; ++bucket)
    EXPECT_FLOAT_EQ(edges->distance_table[0][bucket].item<float>(),
                    static_cast<float>(
                        -2 * std::log1p(std::vector<double>{0, 1, 2, 6}[static_cast<size_t>(bucket % 4)])));
  options.distance = DistanceEncoding::kVector;
  EXPECT_THAT(kit::message_of([&] { SacEdges refused(options); }), testing::HasSubstr("distance_decay"));
}

TEST(SacEdges, RelationsSteerTheChoice) {
  for (const DistanceEncoding distance : {DistanceEncoding::kBias, DistanceEncoding::kVector}) {
    SacEdgesOptions options = sac_options(2, SacWalk::kRooted, 1);
    options.distance = distance;
    options.relations = 2;
    SacEdges source = sac_predictor(options);
    {
      const torch::NoGradGuard guard;
      source->relation_table.zero_();
      if (distance == DistanceEncoding::kBias) source->relation_table.select(1, 2).fill_(1000);
    }
    EdgeRequest request = sac_request(2, 2, 6);
    const at::Tensor related = kit::rand({2, 1, 6, 6}, 5, at::kDouble) < 0.4;
    EdgeRelations relations{EdgeSet::from_mask(related), {}};
    relations.ids = at::full({relations.edges.edge_count()}, 2, at::kLong);
    EXPECT_THROW(source->choose(request), c10::ValueError);
    request.relations = relations;
    const at::Tensor chosen = source->choose(request).edges.to_mask();
    if (distance == DistanceEncoding::kBias) {
      const at::Tensor has_one = related.any(-1, true);
      EXPECT_FALSE((chosen & ~related & has_one).any().item<bool>());
    } else {
      // h . v moves the scores by exactly that.
      const auto scores = [&] {
        const sac::WalkInputs inputs = source->walk_inputs(request);
        return distance_scores(*source, inputs, at::ones({2, 1, 6, 5}, at::kDouble));
      };
      const torch::NoGradGuard guard;
      const at::Tensor before = scores();
      source->relation_table.select(1, 2).fill_(0.5);
      EXPECT_TRUE(at::allclose(scores() - before, related.to(at::kDouble) * 2.5));
    }
    request.relations->ids.fill_(3);
    EXPECT_THROW(source->choose(request), c10::IndexError);
  }
}

TEST(SacEdges, MemoryBeforeTheQueries) {
  SacEdgesOptions options = sac_options(1, SacWalk::kRooted, 3);
  EdgeRequest request = sac_request(2, 1, 9);
  request.key_tokens = request.tokens;
  request.tokens = request.tokens.narrow(1, 5, 4);
  request.query = request.query.narrow(2, 5, 4);
  request.query_offset = 5;
  request.is_causal = true;
  const at::Tensor mask = sac_predictor(options)->choose(request).edges.to_mask();
  EXPECT_FALSE((mask & ~causal_mask(9).narrow(0, 5, 4)).any().item<bool>());
  EXPECT_TRUE((mask.sum(-1) == 3).all().item<bool>());
  options.alpha = 9;
  EXPECT_TRUE(same_edges(sac_predictor(options)->choose(request).edges, FullEdges().choose(request).edges));
}

TEST_P(Walks, CausalChoicesDoNotFeelTheFuture) {
  if (GetParam() == SacWalk::kPairs) GTEST_SKIP() << "the source of a pair is chosen among all queries";
  for (const bool fused : {false, true}) {
    SacEdgesOptions options = sac_options(1, GetParam(), 2);
    options.fused = fused;
    const auto rows = [&](double future) {
      SacEdges source = sac_predictor(options);
      EdgeRequest request = sac_request(2, 1, 13);
      request.is_causal = true;
      request.tokens = request.tokens.clone();
      request.tokens.narrow(1, 8, 5).add_(future);
      const EdgeChoice choice = source->choose(request);
      const at::Tensor first = choice.edges.to_mask().narrow(2, 0, 8);
      return std::pair(first, choice.policy->log_prob.narrow(1, 0, 8).detach());
    };
    const auto before = rows(0), after = rows(3);
    EXPECT_TRUE(at::equal(before.first, after.first));
    EXPECT_TRUE(at::allclose(before.second, after.second, 1e-12, 1e-12))
        << "log-probabilities of the queries before";
  }
}

TEST(SacEdges, RefusesWhatDoesNotFit) {
  EXPECT_THROW(SacEdges(sac_options(1, SacWalk::kRooted, 0)), c10::ValueError);
  SacEdgesOptions options = sac_options(1, SacWalk::kPairs, 1);
  options.estimator = SacEstimator::kDistillation;
  EXPECT_THROW(SacEdges{options}, c10::ValueError);
  SacEdges source = sac_predictor(sac_options(2, SacWalk::kRooted, 1));
  EXPECT_THROW(source->choose(sac_request(1, 1, 4)), c10::ValueError);
  EXPECT_THROW(parse_sac_walk("random"), c10::ValueError);
}

}  // namespace
}  // namespace edgewise
