// The walks of SacEdges on a GPU: the edges, log-probabilities and gradients of the CPU kernels, for every
// kind of walk and candidates.
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "edges/sac/sac_fused.h"
#include "edges/sac_kit.h"
#include "kit/devices.h"

namespace edgewise::sac_on_cuda {
namespace {

using kit::WalkKind;

struct Setting {
  const char* name;
  bool causal, masked;
  int64_t alpha, budget, window;  // window 0 = none
  SelfEdges self;
  bool duplicates;
  DistanceEncoding distance;
};
void PrintTo(const Setting& s, std::ostream* stream) {
  *stream << s.name;
}
constexpr WalkKind kBlocksOf4{"blocks_of_4", SacWalk::kRooted, 4},
    kBlocksOf64{"blocks_of_64", SacWalk::kRooted, 64}, kBlocksOf100{"blocks_of_100", SacWalk::kRooted, 100};

SacEdgesOptions options_of(const Setting& s, const WalkKind& kind) {
  SacEdgesOptions options = kit::sac_options(2, kind, s.alpha);
  options.budget = s.budget;
  options.self_edges = s.self;
  options.duplicates = s.duplicates;
  options.distance = s.distance;
  options.sharing = SacSharing::kPerHead;
  options.detach_inputs = false;
  if (s.window > 0) options.candidates = std::make_shared<WindowEdges>(s.window);
  return options;
}

EdgeRequest to_device(EdgeRequest request, at::Device device) {
  for (at::Tensor* tensor : {&request.query, &request.key, &request.tokens, &request.key_tokens})
    if (tensor->defined()) *tensor = tensor->detach().to(device);
  if (request.key_mask) request.key_mask = request.key_mask->to(device);
  return request;
}

EdgeRequest request_of(const Setting& s, int64_t tokens) {
  EdgeRequest request = kit::sac_request(3, 2, tokens, at::kFloat);
  request.is_causal = s.causal;
  request.random = {.seed = 11, .step = 3, .layer = 2, .first_item = 5};
  if (s.masked)
    request.key_mask =
        at::arange(tokens).unsqueeze(0) < torch::tensor({tokens, tokens * 2 / 3, int64_t{0}}).unsqueeze(1);
  return request;
}

struct Found {
  EdgeChoice choice;
  std::vector<std::pair<std::string, at::Tensor>> gradients;
};
// A predictor on the device, its choice, and the gradients of a sum over everything it says.
Found run(SacEdgesOptions options, const EdgeRequest& given, at::Device device, double sharpness = 0.5) {
  SacEdges source = kit::sac_predictor(std::move(options), 7, sharpness);
  source->to(at::kFloat);
  source->to(device);
  EdgeRequest request = to_device(given, device);
  request.tokens.requires_grad_();
  EXPECT_TRUE(sac::fused_walk_applies(*source, request, source->options.train_decoding));
  Found found{source->choose(request), {}};
  const at::Tensor weight = kit::randn({given.query.size(0)}, 5).to(device);
  at::Tensor objective = (found.choice.policy->log_prob * weight.unsqueeze(1)).sum() +
                         (found.choice.policy->entropy * weight).sum() * 10;
  if (found.choice.learner) objective = objective + found.choice.learner->values.square().sum();
  std::vector<at::Tensor> inputs = {request.tokens};
  std::vector<std::string> names = {"tokens"};
  for (const auto& parameter : source->named_parameters()) {
    inputs.push_back(parameter.value());
    names.push_back(parameter.key());
  }
  if (!objective.requires_grad()) return found;
  const auto gradients = torch::autograd::grad({objective}, inputs, {}, false, false, true);
  for (size_t n = 0; n < gradients.size(); ++n) found.gradients.emplace_back(names[n], gradients[n]);
  return found;
}

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor wide = expected.to(at::kDouble);
  return (found.to(at::kCPU, at::kDouble) - wide).norm().item<double>() /
         std::max(wide.norm().item<double>(), 1e-2);
}

// A choice among one block has probability 1: what its score depends on has gradient 0, but for the rounding
// of two bf16 terms in some hundred additions.
bool vanishes(const std::string& parameter, const WalkKind& kind, int64_t tokens) {
  return parameter == "block_distance_table" && kind.block >= tokens;
}

class CudaWalks : public testing::TestWithParam<std::tuple<Setting, WalkKind, int64_t>> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  }
};
INSTANTIATE_TEST_SUITE_P(
    Cases, CudaWalks,
    testing::Combine(
        testing::Values(
            Setting{"plain", false, false, 3, 0, 0, SelfEdges::kAllowed, false, DistanceEncoding::kBias},
            Setting{"causal", true, true, 3, 0, 0, SelfEdges::kAllowed, false, DistanceEncoding::kNone},
            Setting{"window", false, true, 2, 0, 4, SelfEdges::kNever, false, DistanceEncoding::kBias},
            Setting{"causal_window", true, false, 2, 0, 9, SelfEdges::kAlways, false,
                    DistanceEncoding::kBias},
            Setting{"duplicates", false, true, 4, 0, 0, SelfEdges::kAllowed, true, DistanceEncoding::kBias},
            Setting{"budget", false, true, 1, 50, 0, SelfEdges::kNever, false, DistanceEncoding::kBias},
            Setting{"one", false, false, 1, 0, 0, SelfEdges::kAllowed, false, DistanceEncoding::kBias},
            Setting{"all", true, true, 30, 0, 0, SelfEdges::kAllowed, false, DistanceEncoding::kBias}),
        testing::Values(kit::kRooted, kBlocksOf4, kBlocksOf64), testing::Values(21, 150)),
    [](const auto& given) {
      return std::string(std::get<1>(given.param).name) + "_" + std::get<0>(given.param).name + "_" +
             std::to_string(std::get<2>(given.param));
    });

TEST_P(CudaWalks, EqualTheCpuKernels) {
  const auto& [setting, kind, tokens] = GetParam();
  const EdgeRequest request = request_of(setting, tokens);
  for (const WalkDecoding decoding : {WalkDecoding::kSample, WalkDecoding::kGreedy}) {
    SacEdgesOptions options = options_of(setting, kind);
    options.train_decoding = decoding;
    const Found expected = run(options, request, at::kCPU), found = run(options, request, at::kCUDA);
    const EdgeSet edges = found.choice.edges.to(at::kCPU);
    ASSERT_TRUE(kit::same_edges(edges, expected.choice.edges))
        << to_string(decoding) << ": " << edges.edge_count() << " edges, expected "
        << expected.choice.edges.edge_count() << ", of them the same "
        << edges.contained_in(expected.choice.edges).sum().item<int64_t>();
    const EdgePolicy &a = *expected.choice.policy, &b = *found.choice.policy;
    EXPECT_TRUE(at::allclose(b.log_prob.cpu(), a.log_prob, 1e-4, 1e-3)) << b.log_prob << a.log_prob;
    EXPECT_TRUE(at::allclose(b.entropy.cpu(), a.entropy, 1e-4, 1e-4)) << b.entropy << a.entropy;
    if (expected.choice.learner) {
      EXPECT_LE(
          (found.choice.learner->values.cpu() - expected.choice.learner->values).abs().max().item<double>(),
          2e-4);
    }
    if (a.log_prob.abs().max().item<double>() == 0) continue;  // nothing was chosen
    ASSERT_EQ(found.gradients.size(), expected.gradients.size());
    for (size_t n = 0; n < found.gradients.size(); ++n) {
      const at::Tensor &f = found.gradients[n].second, &e = expected.gradients[n].second;
      ASSERT_EQ(f.defined(), e.defined()) << found.gradients[n].first;
      if (e.defined() && vanishes(found.gradients[n].first, kind, tokens)) {
        EXPECT_LE(e.norm().item<double>(), 1e-4) << to_string(decoding);
        EXPECT_LE(f.norm().item<double>(), 2e-4) << to_string(decoding);
      } else if (e.defined()) {
        EXPECT_LE(error_of(f, e), 2e-3) << found.gradients[n].first << " " << to_string(decoding);
      }
    }
  }
}

class CudaSac : public kit::CudaTest {};

SacEdgesOptions wide_options(const WalkKind& kind, int64_t alpha) {
  SacEdgesOptions options(1, 64);
  options.walk = kind.walk;
  options.alpha = alpha;
  options.test_decoding = WalkDecoding::kGreedy;
  if (kind.block > 0) {
    options.destinations = SacDestinations::kBlocks;
    options.block_size = kind.block;
    options.estimator = SacEstimator::kPaired;
  }
  return options;
}
EdgeRequest wide_request(int64_t batch, int64_t tokens, bool causal) {
  EdgeRequest request;
  request.query = request.key = kit::randn({batch, 1, tokens, 64}, 1);
  request.tokens = kit::randn({batch, tokens, 64}, 3);
  request.is_causal = causal;
  return request;
}
SacEdges fresh(const SacEdgesOptions& options) {
  torch::manual_seed(3);
  SacEdges source(options);
  const torch::NoGradGuard guard;
  source->distance_table.normal_(0, 0.3);
  if (source->block_distance_table.defined()) source->block_distance_table.normal_(0, 0.3);
  return source;
}

// Rounding decides a prediction in 10^5 or so; from there on a walk is another.
TEST_F(CudaSac, ChoosesTheEdgesOfTheCpuInNearlyAllWalks) {
  struct Case {
    WalkKind kind;
    int64_t tokens;
    bool causal;
  };
  for (const Case& c :
       {Case{kBlocksOf64, 4096, false}, Case{kBlocksOf64, 4096, true}, Case{kBlocksOf100, 2000, true},
        Case{kBlocksOf64, 9000, false}, Case{kit::kRooted, 1000, false}, Case{kit::kRooted, 1000, true}}) {
    for (const bool training : {true, false}) {
      SacEdges source = fresh(wide_options(c.kind, 8));
      source->train(training);
      const torch::NoGradGuard guard;
      const EdgeRequest request = wide_request(1, c.tokens, c.causal);
      const EdgeSet expected = source->choose(request).edges;
      source->to(at::kCUDA);
      const EdgeSet found = source->choose(to_device(request, at::kCUDA)).edges.to(at::kCPU);
      ASSERT_EQ(found.edge_count(), expected.edge_count()) << c.kind.name << c.tokens;
      const int64_t same = found.contained_in(expected).sum().item<int64_t>();
      EXPECT_GE(static_cast<double>(same), 0.999 * static_cast<double>(expected.edge_count()))
          << c.kind.name << " " << c.tokens << (c.causal ? " causal" : "")
          << (training ? " sampled" : " greedy");
    }
  }
}

// They have no kernel there: plain operators, with the random numbers of the CPU's kernel.
TEST_F(CudaSac, WalksOfPairsRunInPlainOperators) {
  for (const bool causal : {false, true}) {
    SacEdges source = fresh(wide_options(kit::kPairs, 3));
    EdgeRequest request = wide_request(2, 24, causal);
    request.key_mask = at::arange(24).unsqueeze(0) < torch::tensor({24, 17}).unsqueeze(1);
    ASSERT_TRUE(sac::fused_walk_applies(*source, request, WalkDecoding::kSample));
    const EdgeChoice expected = source->choose(request);
    source->to(at::kCUDA);
    const EdgeRequest there = to_device(request, at::kCUDA);
    ASSERT_FALSE(sac::fused_walk_applies(*source, there, WalkDecoding::kSample));
    const EdgeChoice found = source->choose(there);
    EXPECT_TRUE(kit::same_edges(found.edges.to(at::kCPU), expected.edges)) << causal;
    EXPECT_TRUE(at::allclose(found.policy->log_prob.cpu(), expected.policy->log_prob, 1e-4, 1e-3)) << causal;
    found.policy->log_prob.sum().backward();
    EXPECT_GT(source->start.grad().abs().max().item<double>(), 0);
  }
}

// A walk on the GPU and what it says of its actions, on the CPU.
struct OwnActions {
  sac::WalkResult walk;
  at::Tensor log_prob, entropy, chosen;

  OwnActions(const SacEdges& source, const EdgeRequest& there)
      : walk(sac::fused_walk(*source, source->walk_inputs(there, false), there, WalkDecoding::kSample)),
        log_prob(walk.log_prob.detach().cpu()),
        entropy(walk.entropy.detach().cpu()),
        chosen(walk.chosen.cpu()) {
    walk.source = walk.source.cpu();
    walk.destination = walk.destination.cpu();
  }
  // The largest difference, of actions that chose.
  double off(const at::Tensor& found, const at::Tensor& expected) const {
    return (found.to(at::kDouble) - expected).masked_fill(chosen.logical_not(), 0).abs().max().item<double>();
  }
};

// Log-probabilities of its own actions against the plain walk in double precision, where every prediction is
// one operation over all keys.
TEST_F(CudaSac, GivesTheLogProbabilitiesOfThePlainWalk) {
  for (const WalkKind& kind : {kit::kRooted, kBlocksOf64}) {
    for (const bool causal : {false, true}) {
      SacEdges source = fresh(wide_options(kind, 5));
      const EdgeRequest request = wide_request(2, 300, causal);
      SacEdges twin = fresh(wide_options(kind, 5));
      source->to(at::kCUDA);
      const EdgeRequest there = to_device(request, at::kCUDA);
      const OwnActions own(source, there);
      twin->to(at::kDouble);
      const torch::NoGradGuard guard;
      EdgeRequest exact = request;
      exact.query = exact.key = request.query.to(at::kDouble);
      exact.tokens = request.tokens.to(at::kDouble);
      const sac::WalkResult expected = kit::given_walk(twin, twin->walk_inputs(exact), own.walk);
      EXPECT_GT(own.chosen.sum().item<int64_t>(), 0);
      EXPECT_LE(own.off(own.log_prob, expected.log_prob), 1e-4) << kind.name << causal;
      EXPECT_LE(own.off(own.entropy, expected.entropy), 1e-4) << kind.name << causal;
    }
  }
}

// ---- requests in bf16: nodes and LSTM weights are rounded ----

EdgeRequest in_bf16(EdgeRequest request) {
  request.query = request.key = request.query.to(at::kBFloat16);
  return request;
}
at::Tensor rounded(const at::Tensor& x) {
  return x.to(at::kBFloat16).to(x.scalar_type());
}
// The plain predictor whose law a request in bf16 has, in double precision, and its inputs: the nodes are
// those of `source`, so that only their rounding counts.
struct Exact {
  SacEdges predictor;
  sac::WalkInputs inputs;
};
Exact rounded_twin(const SacEdgesOptions& options, const SacEdges& source, const EdgeRequest& request) {
  const torch::NoGradGuard guard;
  SacEdges twin = fresh(options);
  twin->lstm_weight_ih.copy_(rounded(twin->lstm_weight_ih));
  twin->lstm_weight_hh.copy_(rounded(twin->lstm_weight_hh));
  twin->to(at::kDouble);
  EdgeRequest exact = request;
  exact.query = exact.key = request.query.to(at::kDouble);
  exact.tokens = request.tokens.to(at::kDouble);
  sac::WalkInputs inputs = twin->walk_inputs(exact);
  const at::Tensor nodes = source->walk_inputs(to_device(request, at::kCUDA), false).query_nodes;
  inputs.query_nodes = inputs.key_nodes = rounded(nodes).cpu().to(at::kDouble);
  return {twin, inputs};
}

struct Span {
  int64_t tokens;
  bool causal;
  int64_t window;  // 0 = none
  SelfEdges self;
};
const std::vector<Span> kSpans = {{300, false, 0, SelfEdges::kAllowed}, {300, true, 0, SelfEdges::kAllowed},
                                  {300, false, 70, SelfEdges::kNever},  {300, true, 100, SelfEdges::kAllowed},
                                  {64, false, 0, SelfEdges::kNever},    {17, true, 0, SelfEdges::kAllowed},
                                  {1, false, 0, SelfEdges::kAllowed}};
SacEdgesOptions spanned(const Span& span, int64_t alpha) {
  SacEdgesOptions options = wide_options(kBlocksOf64, alpha);
  options.self_edges = span.self;
  if (span.window > 0) options.candidates = std::make_shared<WindowEdges>(span.window);
  return options;
}

TEST_F(CudaSac, GivesTheLogProbabilitiesOfRoundedNodesInBf16) {
  for (const Span& span : kSpans) {
    SacEdgesOptions options = spanned(span, 11);  // more than eight: random numbers are made eight at a time
    const EdgeRequest request = in_bf16(wide_request(3, span.tokens, span.causal));
    SacEdges source = fresh(options);
    source->to(at::kCUDA);
    const EdgeRequest there = to_device(request, at::kCUDA);
    const OwnActions own(source, there);
    const torch::NoGradGuard guard;
    const Exact exact = rounded_twin(options, source, request);
    const sac::WalkResult expected = kit::given_walk(exact.predictor, exact.inputs, own.walk);
    if (expected.log_prob.numel() == 0) {  // nothing to choose
      EXPECT_EQ(own.chosen.sum().item<int64_t>(), 0);
      continue;
    }
    ASSERT_EQ(expected.log_prob.sizes(), own.log_prob.sizes());
    EXPECT_LE(own.off(own.log_prob, expected.log_prob), 3e-4) << span.tokens << span.causal << span.window;
    EXPECT_LE(own.off(own.entropy, expected.entropy), 3e-4) << span.tokens << span.causal << span.window;
  }
}

// Values are rounded, gradients are not: few of theirs happen to be bf16 numbers.
TEST_F(CudaSac, GradientsOfRoundedNodesAreWhole) {
  SacEdges source = fresh(wide_options(kBlocksOf64, 5));
  source->to(at::kCUDA);
  const EdgeChoice choice = source->choose(to_device(in_bf16(wide_request(2, 300, false)), at::kCUDA));
  ASSERT_TRUE(choice.policy.has_value());
  choice.policy->log_prob.sum().backward();
  for (const at::Tensor& parameter : {source->lstm_weight_ih, source->lstm_weight_hh, source->node_weight}) {
    const at::Tensor grad = parameter.grad();
    ASSERT_TRUE(grad.defined());
    EXPECT_GT(grad.abs().max().item<double>(), 0);
    EXPECT_LT(grad.eq(rounded(grad)).to(at::kFloat).mean().item<double>(), 0.1);
  }
}

// Without a policy to learn the walk starts from the tokens themselves.
TEST_F(CudaSac, ChoosesTheSameEdgesWhereNobodyLearns) {
  std::vector<Span> spans = kSpans;
  spans.push_back({4096, false, 0, SelfEdges::kAllowed});
  for (const Span& span : spans)
    for (const bool half : {false, true})
      for (const WalkDecoding decoding : {WalkDecoding::kSample, WalkDecoding::kGreedy}) {
        SacEdgesOptions options = spanned(span, 5);
        options.train_decoding = decoding;
        SacEdges source = fresh(options);
        source->to(at::kCUDA);
        EdgeRequest request = wide_request(span.tokens == 4096 ? 1 : 2, span.tokens, span.causal);
        if (half) request = in_bf16(request);
        request.random = {.seed = 5, .step = 2, .layer = 1, .first_item = 3};
        request = to_device(request, at::kCUDA);
        const EdgeSet expected = source->choose(request).edges.to(at::kCPU);
        const torch::NoGradGuard guard;
        ASSERT_TRUE(sac::token_walk(*source, request, decoding).has_value());
        const EdgeSet found = source->choose(request).edges.to(at::kCPU);
        ASSERT_TRUE(at::equal(found.row_offsets(), expected.row_offsets()));
        // Nodes come from another order of additions, which a rounding to bf16 shows in a number in 10^4. A
        // walk that parts at a near tie takes its remaining choices along, up to alpha = 5 edges: of fp32 one
        // may.
        const int64_t edges = expected.edge_count(),
                      same = found.contained_in(expected).sum().item<int64_t>();
        EXPECT_LE(edges - same, half ? edges / 50 : std::max<int64_t>(5, edges / 1000))
            << span.tokens << span.causal << span.window << half << to_string(decoding);
      }
}

// The first edges of many items with the same tokens: how often each key was drawn against its probability.
TEST_F(CudaSac, DrawsEdgesAsOftenAsTheirProbabilitySays) {
  constexpr int64_t kItems = 4000, kTokens = 150;
  for (const bool causal : {false, true})
    for (const bool half : {false, true}) {
      const SacEdgesOptions options = wide_options(kBlocksOf64, 1);
      SacEdges source = fresh(options);
      source->to(at::kCUDA);
      EdgeRequest one = wide_request(1, kTokens, causal);
      if (half) one = in_bf16(one);
      const torch::NoGradGuard guard;
      EdgeRequest many = to_device(one, at::kCUDA);
      many.query = many.key = many.query.expand({kItems, -1, -1, -1}).contiguous();
      many.tokens = many.tokens.expand({kItems, -1, -1}).contiguous();
      ASSERT_TRUE(sac::token_walk(*source, many, WalkDecoding::kSample).has_value());
      const at::Tensor drawn = source->choose(many).edges.to_mask().sum(0).squeeze(0).cpu().to(at::kDouble);

      Exact exact = rounded_twin(options, source, one);
      if (!half) {
        exact.predictor = fresh(options);
        exact.inputs = exact.predictor->walk_inputs(one);
      }
      const sac::WalkResult law =
          sac::rooted_walk(*exact.predictor, exact.inputs, sac::greedy_chooser(), true);
      const at::Tensor expected = law.distributions.at(0).log_p[0][0].to(at::kDouble).exp() * kItems;
      const at::Tensor free =
          law.distributions.at(0).allowed[0][0] & law.distributions.at(0).is_live[0][0].unsqueeze(1);
      EXPECT_EQ(drawn.masked_select(free.logical_not() & law.distributions.at(0).is_live[0][0].unsqueeze(1))
                    .sum()
                    .item<double>(),
                0);
      const at::Tensor terms = ((drawn - expected).square() / expected.clamp_min(1e-9)).masked_select(free);
      const double cells = static_cast<double>(terms.numel()), rows = static_cast<double>(kTokens);
      EXPECT_LE(std::abs(terms.sum().item<double>() / (cells - rows) - 1), 8 * std::sqrt(2 / cells))
          << causal << half;
    }
}

// A number added to all scores changes nothing, also where their exponentials are too large or too small.
TEST_F(CudaSac, TakesScoresOfAnySize) {
  const EdgeRequest request = to_device(wide_request(2, 300, false), at::kCUDA);
  const auto run = [&](double added) {
    SacEdges source = fresh(wide_options(kBlocksOf64, 4));
    {
      const torch::NoGradGuard guard;
      source->distance_table.add_(added);
      source->block_distance_table.add_(added);
    }
    source->to(at::kCUDA);
    return source->choose(request);
  };
  const EdgeChoice expected = run(0);
  for (const double added : {300., -300.}) {
    const EdgeChoice found = run(added);
    const at::Tensor same = found.edges.to(at::kCPU).contained_in(expected.edges.to(at::kCPU));
    // Scores are rounded to 3e-5: a few draws of 2,400 may go the other way, and take the rest of their walk
    // along.
    EXPECT_GE(same.to(at::kFloat).mean().item<double>(), 0.99) << added;
    EXPECT_TRUE(at::allclose(found.policy->log_prob, expected.policy->log_prob, 1e-3, 1e-3)) << added;
    EXPECT_TRUE(at::allclose(found.policy->entropy, expected.policy->entropy, 1e-3, 1e-3)) << added;
  }
}

TEST_F(CudaSac, NeverPicksTheFutureNorFeelsIt) {
  for (const WalkKind& kind : {kit::kRooted, kBlocksOf64}) {
    const auto rows = [&](double future) {
      SacEdges source = fresh(wide_options(kind, 6));
      source->to(at::kCUDA);
      EdgeRequest request = wide_request(2, 200, true);
      request.tokens.narrow(1, 150, 50).add_(future);
      const at::Tensor mask = source->choose(to_device(request, at::kCUDA)).edges.to_mask().cpu();
      EXPECT_FALSE((mask & at::ones({200, 200}, at::kBool).triu(1)).any().item<bool>());
      return mask.narrow(2, 0, 150).contiguous();
    };
    EXPECT_TRUE(at::equal(rows(0), rows(3))) << kind.name;
  }
}

TEST_F(CudaSac, DoesNotDependOnBatchMatesOrPadding) {
  for (const WalkKind& kind : {kit::kRooted, kBlocksOf64}) {
    SacEdges source = fresh(wide_options(kind, 4));
    source->to(at::kCUDA);
    EdgeRequest whole = wide_request(3, 130, false);
    whole.key_mask = at::arange(130).unsqueeze(0) < torch::tensor({130, 70, 101}).unsqueeze(1);
    whole.random = {.seed = 3, .step = 4, .layer = 1, .first_item = 10};
    const at::Tensor mask = source->choose(to_device(whole, at::kCUDA)).edges.to_mask().cpu();
    EXPECT_FALSE((mask & whole.key_mask->logical_not().view({3, 1, 1, 130})).any().item<bool>()) << kind.name;
    for (int64_t item = 0; item < 3; ++item) {
      EdgeRequest alone = whole;
      alone.query = alone.key = whole.query.narrow(0, item, 1);
      alone.tokens = whole.tokens.narrow(0, item, 1);
      alone.key_mask = whole.key_mask->narrow(0, item, 1);
      alone.random.first_item = 10 + item;
      EXPECT_TRUE(at::equal(source->choose(to_device(alone, at::kCUDA)).edges.to_mask().cpu()[0], mask[item]))
          << kind.name << ", item " << item;
    }
    EdgeRequest padded = whole;
    padded.query = padded.key = at::cat({whole.query, kit::randn({3, 1, 30, 64}, 9)}, 2);
    padded.tokens = at::cat({whole.tokens, kit::randn({3, 30, 64}, 11)}, 1);
    padded.key_mask = at::cat({*whole.key_mask, at::zeros({3, 30}, at::kBool)}, 1);
    const at::Tensor longer = source->choose(to_device(padded, at::kCUDA)).edges.to_mask().cpu();
    EXPECT_TRUE(at::equal(longer.narrow(2, 0, 130).narrow(3, 0, 130), mask)) << kind.name;
    EXPECT_EQ(longer.sum().item<int64_t>(), mask.sum().item<int64_t>());
  }
}

TEST_F(CudaSac, RepeatsItselfToTheLastBit) {
  for (const WalkKind& kind : {kit::kRooted, kBlocksOf64}) {
    const auto once = [&] {
      SacEdges source = fresh(wide_options(kind, 4));
      source->options.entropy_weight = 0.1;
      source->to(at::kCUDA);
      EdgeRequest request = to_device(wide_request(2, 500, true), at::kCUDA);
      const EdgeChoice choice = source->choose(request);
      at::Tensor objective = choice.policy->log_prob.sum() + choice.policy->entropy.sum();
      if (choice.learner)
        objective = objective + choice.learner->values.sum() + choice.learner->probe_values.sum();
      objective.backward();
      std::vector<at::Tensor> result = {choice.edges.col_indices()};
      for (const at::Tensor& parameter : source->parameters())
        if (parameter.grad().defined()) result.push_back(parameter.grad());
      return result;
    };
    const auto first = once(), second = once();
    ASSERT_EQ(first.size(), second.size());
    for (size_t n = 0; n < first.size(); ++n) EXPECT_TRUE(at::equal(first[n], second[n])) << kind.name << n;
  }
}

TEST_F(CudaSac, ReadsKeysBeforeTheQueries) {
  for (const WalkKind& kind : {kit::kRooted, kBlocksOf4})
    for (const bool causal : {false, true}) {
      EdgeRequest request = kit::sac_request(2, 2, 53, at::kFloat);
      request.key_tokens = request.tokens;
      request.tokens = request.tokens.narrow(1, 30, 23);
      request.query = request.query.narrow(2, 30, 23);
      request.query_offset = 30;
      request.is_causal = causal;
      SacEdgesOptions options = kit::sac_options(2, kind, 3);
      const Found expected = run(options, request, at::kCPU), found = run(options, request, at::kCUDA);
      EXPECT_TRUE(kit::same_edges(found.choice.edges.to(at::kCPU), expected.choice.edges)) << kind.name;
      EXPECT_TRUE(
          at::allclose(found.choice.policy->log_prob.cpu(), expected.choice.policy->log_prob, 1e-4, 1e-4));
    }
}

}  // namespace
}  // namespace edgewise::sac_on_cuda
