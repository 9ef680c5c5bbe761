// The rooted walk of SacEdges on a GPU: the edges, log-probabilities and gradients of the CPU kernels, for
// every kind of candidates.
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/square_edges.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "edges/sac/sac_fused.h"
#include "edges/sac_kit.h"
#include "kit/devices.h"

namespace edgewise::sac_on_cuda {
namespace {

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

SacEdgesOptions options_of(const Setting& s) {
  SacEdgesOptions options = kit::sac_options(2, SacWalk::kRooted, s.alpha);
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

class CudaWalks : public testing::TestWithParam<std::tuple<Setting, int64_t>> {
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
        testing::Values(21, 150)),
    [](const auto& given) {
      return std::string(std::get<0>(given.param).name) + "_" + std::to_string(std::get<1>(given.param));
    });

TEST_P(CudaWalks, EqualTheCpuKernels) {
  const auto& [setting, tokens] = GetParam();
  const EdgeRequest request = request_of(setting, tokens);
  for (const WalkDecoding decoding : {WalkDecoding::kSample, WalkDecoding::kGreedy}) {
    SacEdgesOptions options = options_of(setting);
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
      if (e.defined()) {
        EXPECT_LE(error_of(f, e), 2e-3) << found.gradients[n].first << " " << to_string(decoding);
      }
    }
  }
}

class CudaSac : public kit::CudaTest {};

SacEdgesOptions wide_options(int64_t alpha) {
  SacEdgesOptions options(1, 64);
  options.alpha = alpha;
  options.test_decoding = WalkDecoding::kGreedy;
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
  return source;
}

// Rounding decides a prediction in 10^5 or so; from there on a walk is another.
TEST_F(CudaSac, ChoosesTheEdgesOfTheCpuInNearlyAllWalks) {
  for (const bool causal : {false, true}) {
    for (const bool training : {true, false}) {
      SacEdges source = fresh(wide_options(8));
      source->train(training);
      const torch::NoGradGuard guard;
      const EdgeRequest request = wide_request(1, 1000, causal);
      const EdgeSet expected = source->choose(request).edges;
      source->to(at::kCUDA);
      const EdgeSet found = source->choose(to_device(request, at::kCUDA)).edges.to(at::kCPU);
      ASSERT_EQ(found.edge_count(), expected.edge_count()) << causal;
      const int64_t same = found.contained_in(expected).sum().item<int64_t>();
      EXPECT_GE(static_cast<double>(same), 0.999 * static_cast<double>(expected.edge_count()))
          << (causal ? "causal" : "") << (training ? " sampled" : " greedy");
    }
  }
}

// They have no kernel there: plain operators, with the random numbers of the CPU's kernel.
TEST_F(CudaSac, WalksOfPairsRunInPlainOperators) {
  for (const bool causal : {false, true}) {
    SacEdgesOptions options = wide_options(3);
    options.walk = SacWalk::kPairs;
    options.estimator = SacEstimator::kPaired;
    SacEdges source = fresh(options);
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
  for (const bool causal : {false, true}) {
    SacEdges source = fresh(wide_options(5));
    const EdgeRequest request = wide_request(2, 300, causal);
    SacEdges twin = fresh(wide_options(5));
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
    EXPECT_LE(own.off(own.log_prob, expected.log_prob), 1e-4) << causal;
    EXPECT_LE(own.off(own.entropy, expected.entropy), 1e-4) << causal;
  }
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
  SacEdgesOptions options = wide_options(alpha);
  options.self_edges = span.self;
  if (span.window > 0) options.candidates = std::make_shared<WindowEdges>(span.window);
  return options;
}

// Without a policy to learn fewer results are written; the edges stay.
TEST_F(CudaSac, ChoosesTheSameEdgesWhereNobodyLearns) {
  for (const Span& span : kSpans)
    for (const WalkDecoding decoding : {WalkDecoding::kSample, WalkDecoding::kGreedy}) {
      SacEdgesOptions options = spanned(span, 11);
      options.train_decoding = decoding;
      SacEdges source = fresh(options);
      source->to(at::kCUDA);
      EdgeRequest request = to_device(wide_request(2, span.tokens, span.causal), at::kCUDA);
      request.random = {.seed = 5, .step = 2, .layer = 1, .first_item = 3};
      const EdgeSet expected = source->choose(request).edges.to(at::kCPU);
      const torch::NoGradGuard guard;
      const EdgeSet found = source->choose(request).edges.to(at::kCPU);
      EXPECT_TRUE(kit::same_edges(found, expected))
          << span.tokens << span.causal << span.window << to_string(decoding);
    }
}

// Over groups of 16, beside a window whose groups the walk leaves out, and alone.
TEST_F(CudaSac, ChoosesTheSquaresOfTheCpu) {
  for (const bool causal : {false, true})
    for (const bool masked : {false, true})
      for (const int64_t width : {-1, 40}) {  // -1: no window
        SacEdges sac = fresh(wide_options(5));
        EdgeSourcePtr source = std::make_shared<SquareEdges>(sac.ptr());
        if (width >= 0)
          source = std::make_shared<UnionEdges>(
              std::vector<EdgeSourcePtr>{std::make_shared<WindowEdges>(width, 16), source});
        EdgeRequest request = wide_request(2, 1500, causal);
        if (masked)
          request.key_mask = at::arange(1500).unsqueeze(0) < torch::tensor({1500, 700}).unsqueeze(1);
        const EdgeChoice expected = allowed_choice(*source, request);
        source->to(at::kCUDA);
        const EdgeChoice found = allowed_choice(*source, to_device(request, at::kCUDA));
        // A window there also keeps squares of padding, which have no pairs.
        const auto with_pairs = [](const EdgeSet& edges) {  // [B, 1, 94, 94]
          const at::Tensor mask = at::constant_pad_nd(edges.to_mask().to(at::kByte), {0, 4, 0, 4});
          return mask.view({2, 1, 94, 16, 94, 16}).amax({3, 5}).to(at::kBool);
        };
        const at::Tensor a = with_pairs(expected.edges), b = with_pairs(found.edges.to(at::kCPU));
        const auto count = a.sum().item<int64_t>();
        ASSERT_EQ(b.sum().item<int64_t>(), count) << causal << masked << width;
        EXPECT_GE(static_cast<double>((a & b).sum().item<int64_t>()), 0.99 * static_cast<double>(count))
            << causal << masked << width;
        EXPECT_EQ(found.learner->values.size(0), found.edges.square_groups().edge_count());
        found.learner->values.sum().backward();
        EXPECT_GT(sac->lstm_weight_hh.grad().abs().max().item<double>(), 0);
      }
}

// The first edges of many items with the same tokens: how often each key was drawn against its probability.
TEST_F(CudaSac, DrawsEdgesAsOftenAsTheirProbabilitySays) {
  constexpr int64_t kItems = 4000, kTokens = 150;
  for (const bool causal : {false, true}) {
    SacEdges source = fresh(wide_options(1));
    const EdgeRequest one = wide_request(1, kTokens, causal);
    const torch::NoGradGuard guard;
    const sac::WalkResult law =
        sac::rooted_walk(*source, source->walk_inputs(one), sac::greedy_chooser(), true);
    source->to(at::kCUDA);
    EdgeRequest many = to_device(one, at::kCUDA);
    many.query = many.key = many.query.expand({kItems, -1, -1, -1}).contiguous();
    many.tokens = many.tokens.expand({kItems, -1, -1}).contiguous();
    const at::Tensor drawn = source->choose(many).edges.to_mask().sum(0).squeeze(0).cpu().to(at::kDouble);

    const sac::WalkStep& first = law.distributions.at(0);
    const at::Tensor expected = first.log_p[0][0].to(at::kDouble).exp() * kItems;
    const at::Tensor chooses = first.is_live[0][0].unsqueeze(1), free = first.allowed[0][0] & chooses;
    EXPECT_EQ(drawn.masked_select(free.logical_not() & chooses).sum().item<double>(), 0);
    const at::Tensor terms = ((drawn - expected).square() / expected.clamp_min(1e-9)).masked_select(free);
    const double cells = static_cast<double>(terms.numel()), rows = static_cast<double>(kTokens);
    EXPECT_LE(std::abs(terms.sum().item<double>() / (cells - rows) - 1), 8 * std::sqrt(2 / cells)) << causal;
  }
}

// A number added to all scores changes nothing, also where their exponentials are too large or too small.
TEST_F(CudaSac, TakesScoresOfAnySize) {
  const EdgeRequest request = to_device(wide_request(2, 300, false), at::kCUDA);
  const auto run = [&](double added) {
    SacEdges source = fresh(wide_options(4));
    {
      const torch::NoGradGuard guard;
      source->distance_table.add_(added);
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
    // Queries with the same edges have walked the same way; the others have another walk's log-probability.
    const at::Tensor same_rows = same.view({2, 300, 4}).all(2);
    EXPECT_TRUE(at::allclose(found.policy->log_prob.cpu().masked_select(same_rows),
                             expected.policy->log_prob.cpu().masked_select(same_rows), 1e-3, 1e-3))
        << added;
    EXPECT_TRUE(at::allclose(found.policy->entropy, expected.policy->entropy, 1e-3, 1e-3)) << added;
  }
}

TEST_F(CudaSac, NeverPicksTheFutureNorFeelsIt) {
  const auto rows = [&](double future) {
    SacEdges source = fresh(wide_options(6));
    source->to(at::kCUDA);
    EdgeRequest request = wide_request(2, 200, true);
    request.tokens.narrow(1, 150, 50).add_(future);
    const at::Tensor mask = source->choose(to_device(request, at::kCUDA)).edges.to_mask().cpu();
    EXPECT_FALSE((mask & at::ones({200, 200}, at::kBool).triu(1)).any().item<bool>());
    return mask.narrow(2, 0, 150).contiguous();
  };
  EXPECT_TRUE(at::equal(rows(0), rows(3)));
}

TEST_F(CudaSac, DoesNotDependOnBatchMatesOrPadding) {
  SacEdges source = fresh(wide_options(4));
  source->to(at::kCUDA);
  EdgeRequest whole = wide_request(3, 130, false);
  whole.key_mask = at::arange(130).unsqueeze(0) < torch::tensor({130, 70, 101}).unsqueeze(1);
  whole.random = {.seed = 3, .step = 4, .layer = 1, .first_item = 10};
  const at::Tensor mask = source->choose(to_device(whole, at::kCUDA)).edges.to_mask().cpu();
  EXPECT_FALSE((mask & whole.key_mask->logical_not().view({3, 1, 1, 130})).any().item<bool>());
  for (int64_t item = 0; item < 3; ++item) {
    EdgeRequest alone = whole;
    alone.query = alone.key = whole.query.narrow(0, item, 1);
    alone.tokens = whole.tokens.narrow(0, item, 1);
    alone.key_mask = whole.key_mask->narrow(0, item, 1);
    alone.random.first_item = 10 + item;
    EXPECT_TRUE(at::equal(source->choose(to_device(alone, at::kCUDA)).edges.to_mask().cpu()[0], mask[item]))
        << "item " << item;
  }
  EdgeRequest padded = whole;
  padded.query = padded.key = at::cat({whole.query, kit::randn({3, 1, 30, 64}, 9)}, 2);
  padded.tokens = at::cat({whole.tokens, kit::randn({3, 30, 64}, 11)}, 1);
  padded.key_mask = at::cat({*whole.key_mask, at::zeros({3, 30}, at::kBool)}, 1);
  const at::Tensor longer = source->choose(to_device(padded, at::kCUDA)).edges.to_mask().cpu();
  EXPECT_TRUE(at::equal(longer.narrow(2, 0, 130).narrow(3, 0, 130), mask));
  EXPECT_EQ(longer.sum().item<int64_t>(), mask.sum().item<int64_t>());
}

TEST_F(CudaSac, RepeatsItselfToTheLastBit) {
  const auto once = [&] {
    SacEdges source = fresh(wide_options(4));
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
  for (size_t n = 0; n < first.size(); ++n) EXPECT_TRUE(at::equal(first[n], second[n])) << n;
}

TEST_F(CudaSac, ReadsKeysBeforeTheQueries) {
  for (const bool causal : {false, true}) {
    EdgeRequest request = kit::sac_request(2, 2, 53, at::kFloat);
    request.key_tokens = request.tokens;
    request.tokens = request.tokens.narrow(1, 30, 23);
    request.query = request.query.narrow(2, 30, 23);
    request.query_offset = 30;
    request.is_causal = causal;
    SacEdgesOptions options = kit::sac_options(2, SacWalk::kRooted, 3);
    const Found expected = run(options, request, at::kCPU), found = run(options, request, at::kCUDA);
    EXPECT_TRUE(kit::same_edges(found.choice.edges.to(at::kCPU), expected.choice.edges));
    EXPECT_TRUE(
        at::allclose(found.choice.policy->log_prob.cpu(), expected.choice.policy->log_prob, 1e-4, 1e-4));
  }
}

}  // namespace
}  // namespace edgewise::sac_on_cuda
