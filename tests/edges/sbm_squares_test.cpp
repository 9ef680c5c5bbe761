// SbmEdges of unit 16: the block model over groups of 16 tokens.
#include <edgewise/attention/multihead_attention.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/graph/square_lists.h>
#include <edgewise/ops/functional.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kit/law_check.h"
#include "kit/message_of.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

using ::testing::HasSubstr;

EdgeRequest states_request(int64_t batch, int64_t heads, int64_t tokens, int64_t dim,
                           at::ScalarType dtype = at::kFloat) {
  EdgeRequest result;
  result.query = kit::randn({batch, heads, tokens, dim}, 1, dtype);
  result.key = kit::randn({batch, heads, tokens, dim}, 2, dtype);
  return result;
}

at::Tensor mask_of_lengths(const std::vector<int64_t>& lengths, int64_t tokens) {
  return at::arange(tokens).unsqueeze(0) < torch::tensor(lengths).unsqueeze(1);
}

SbmEdgesOptions few_clusters(int64_t heads, int64_t dim) {
  SbmEdgesOptions options(heads, dim, SbmPreset::kEdgewise, /*unit=*/16);
  options.clusters = 4;
  options.cluster_std = 1;
  return options;
}

SbmEdges sharp_edges(int64_t heads, int64_t dim, at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(3);
  SbmEdges edges(few_clusters(heads, dim));
  edges->to(dtype);
  return edges;
}

// The valid tokens of each group, as lists.
std::vector<at::Tensor> valid_by_groups(const at::Tensor& states, const at::Tensor& mask) {  // [N, D], [N]
  std::vector<at::Tensor> groups;
  for (int64_t first = 0; first < states.size(0); first += 16) {
    const int64_t count = std::min<int64_t>(16, states.size(0) - first);
    groups.push_back(states.narrow(0, first, count).index({mask.narrow(0, first, count)}));
  }
  return groups;
}

TEST(SbmSquares, GroupsAreMeansAndInTextsTheirFirstTokenSpeaksForQueries) {
  SbmEdges edges = sharp_edges(2, 5, at::kDouble);
  for (const bool causal : {false, true})
    for (const bool masked : {false, true}) {
      EdgeRequest ask = states_request(2, 2, 75, 5, at::kDouble);
      ask.is_causal = causal;
      at::Tensor mask = at::ones({2, 75}, at::kBool);
      if (masked) {
        mask = kit::rand({2, 75}, 4) < 0.6;
        mask[1].narrow(0, 32, 16).fill_(false);
        ask.key_mask = mask;
        for (at::Tensor* states : {&ask.query, &ask.key})
          states->masked_fill_(mask.logical_not().view({2, 1, 75, 1}), NAN);
      }
      const EdgeChoice choice = edges->choose(ask);
      const at::Tensor found_query = choice.learner->query_membership, found_key = choice.learner->key_side;
      ASSERT_EQ(found_query.sizes(), at::IntArrayRef({2, 2, 5, 4}));
      EXPECT_TRUE(found_query.isfinite().all().item<bool>());
      EXPECT_TRUE(found_key.isfinite().all().item<bool>());
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t h = 0; h < 2; ++h) {
          const auto queries = valid_by_groups(ask.query[b][h], mask[b]),
                     keys = valid_by_groups(ask.key[b][h], mask[b]);
          for (int64_t g = 0; g < 5; ++g) {
            const auto group = static_cast<size_t>(g);
            if (keys[group].size(0) == 0) continue;
            const at::Tensor query = causal ? queries[group][0] : queries[group].mean(0);
            const auto spread = [](const at::Tensor& x) { return x.view({1, 1, 1, 5}).expand({1, 2, 1, 5}); };
            EXPECT_TRUE(at::allclose(found_query[b][h][g], edges->membership(spread(query))[0][h][0]));
            EXPECT_TRUE(at::allclose(found_key[b][h][g], edges->key_side(edges->membership(
                                                             spread(keys[group].mean(0))))[0][h][0]));
          }
        }
      // And only pairs that the request allows; in a text only groups wholly before the query's.
      const at::Tensor drawn = choice.edges.to_mask();
      const at::Tensor allowed = mask.view({2, 1, 1, 75}) & mask.view({2, 1, 75, 1});
      EXPECT_FALSE((drawn & ~allowed).any().item<bool>());
      EXPECT_TRUE(drawn.any().item<bool>());
      if (causal) {
        const at::Tensor group = at::arange(75).div(16, "floor");
        EXPECT_FALSE((drawn & (group >= group.unsqueeze(1))).any().item<bool>());
      }
    }
}

TEST(SbmSquares, StartAtTheInitialDensity) {
  for (const int64_t unit : {1, 16})
    for (const double density : {0.02, 0.25, 0.6}) {
      torch::manual_seed(0);
      SbmEdgesOptions options(2, 32, SbmPreset::kEdgewise, unit);
      options.initial_density = density;
      SbmEdges edges(options);
      const EdgeChoice choice = edges->choose(states_request(2, 2, unit == 1 ? 200 : 1600, 32));
      EXPECT_NEAR(choice.edges.density().mean().item<double>(), density, 0.1 * density + 0.002) << unit;
      EXPECT_NEAR(choice.density_penalty.mean().item<double>(), density, 0.1 * density + 0.001) << unit;
    }
}

// 1,000 items of the same states: frequencies, degrees and correlations of squares.
TEST(SbmSquares, DrawnByTheirLaw) {
  const int64_t draws = 1000;
  for (const EdgeLaw law : {EdgeLaw::kBernoulli, EdgeLaw::kPoisson})
    for (const Sampler sampler : {Sampler::kDirect, Sampler::kSqueezed, Sampler::kThinning, Sampler::kFastRg})
      for (const bool causal : {false, true}) {
        SbmEdges edges = sharp_edges(2, 5);
        edges->options.law = law;
        edges->options.sampler = sampler;
        edges->options.exploration = 0.05;
        EdgeRequest ask = states_request(1, 2, 125, 5);  // 8 groups
        ask.is_causal = causal;
        ask.query = ask.query.expand({draws, 2, 125, 5});
        ask.key = ask.key.expand({draws, 2, 125, 5});
        ask.random.seed = 11;
        const at::NoGradGuard guard;
        const EdgeChoice choice = edges->choose(ask);
        at::Tensor p =
            at::matmul(choice.learner->query_membership[0], choice.learner->key_side[0].transpose(1, 2))
                .to(at::kDouble) +
            0.05;
        if (law == EdgeLaw::kPoisson) p = 1 - (-p.clamp_max(1)).exp();
        p = p.clamp_max(1);
        if (causal) p = p * at::ones({8, 8}).tril(-1);
        const kit::LawCheck check = kit::check_law(choice.edges.square_groups().to_mask(), p);
        EXPECT_TRUE(check.holds(4.5))
            << to_string(law) << " " << to_string(sampler) << " " << causal << ": " << check.text();
      }
}

TEST(SbmSquares, ExactPenaltyIsTheExpectedShareOfPairs) {
  SbmEdges edges = sharp_edges(2, 3, at::kDouble);
  for (const bool causal : {false, true})
    for (const bool masked : {false, true}) {
      EdgeRequest ask = states_request(2, 2, 75, 3, at::kDouble);
      ask.is_causal = causal;
      at::Tensor valid = at::ones({2, 2, 75, 75}, at::kBool);
      if (masked) {
        const at::Tensor mask = kit::rand({2, 75}, 5) < 0.7;
        ask.key_mask = mask;
        valid = valid & mask.view({2, 1, 1, 75}) & mask.view({2, 1, 75, 1});
      }
      if (causal) valid = valid & at::ones({75, 75}).tril().to(at::kBool);
      const EdgeChoice choice = edges->choose(ask);
      at::Tensor chance =
          at::matmul(choice.learner->query_membership, choice.learner->key_side.transpose(2, 3))
              .repeat_interleave(16, 2)
              .repeat_interleave(16, 3)
              .narrow(2, 0, 75)
              .narrow(3, 0, 75);
      const at::Tensor group = at::arange(75).div(16, "floor");
      if (causal) chance = chance * (group < group.unsqueeze(1));
      const at::Tensor expected = (chance * valid).sum({0, 2, 3}) / valid.select(1, 0).sum().to(at::kDouble);
      EXPECT_TRUE(at::allclose(choice.density_penalty, expected, 1e-10, 1e-12));
      const auto gradients = [&](const at::Tensor& value) {
        return torch::autograd::grad({value.sum()}, edges->parameters(), {}, /*retain_graph=*/true,
                                     /*create_graph=*/false, /*allow_unused=*/true);
      };
      const auto found = gradients(choice.density_penalty), wanted = gradients(expected);
      for (size_t n = 0; n < found.size(); ++n) EXPECT_TRUE(at::allclose(found[n], wanted[n], 1e-8, 1e-11));
      // Measured: pairs over valid pairs.
      EXPECT_TRUE(at::allclose(
          choice.density, choice.edges.to_mask().sum({0, 2, 3}) / valid.select(1, 0).sum().to(at::kDouble)));
    }
}

// Parameters -> means -> memberships -> p -> squares -> attention -> a loss linear in the output. E[loss]
// over all sets of squares, its gradient by finite differences; the estimator's mean over the same sets must
// agree.
TEST(SbmSquares, ExpectedLossGradientReachesEveryParameterExactly) {
  struct SizedCase {
    int64_t tokens;
    bool causal, window;
  };
  for (const SizedCase& c :
       {SizedCase{32, false, false}, SizedCase{29, false, true}, SizedCase{48, true, true}}) {
    torch::manual_seed(3);
    SbmEdgesOptions options = few_clusters(1, 3);
    options.clusters = 2;
    SbmEdges edges(options);
    edges->to(at::kDouble);
    EdgeRequest ask = states_request(1, 1, c.tokens, 3, at::kDouble);
    ask.is_causal = c.causal;
    const int64_t groups = graph::groups_of(c.tokens);
    const at::Tensor value = kit::randn({1, 1, c.tokens, 2}, 5, at::kDouble),
                     weight = kit::randn({1, 1, c.tokens, 2}, 6, at::kDouble);
    const at::Tensor choosable =
        c.causal ? at::ones({groups, groups}).tril(-1).to(at::kBool) : at::ones({groups, groups}, at::kBool);
    const at::Tensor places = choosable.reshape(-1).nonzero().squeeze(1);
    const auto set_number = [&](int64_t n) {
      const at::Tensor mask = at::zeros({groups * groups}, at::kBool);
      for (int64_t bit = 0; bit < places.size(0); ++bit)
        if (n >> bit & 1) mask[places[bit].item<int64_t>()] = true;
      return mask.view({1, 1, groups, groups});
    };
    const EdgeChoice pattern = WindowEdges(0, 16).choose(ask);
    const auto squares_of = [&](const at::Tensor& mask) {
      return EdgeSet::from_square_groups(ask.shape(), EdgeSet::from_mask(mask), pattern.edges.square_pairs());
    };
    const auto chance_of = [&](const EdgeLearner& credit, const at::Tensor& mask) {
      const at::Tensor p = at::matmul(credit.query_membership, credit.key_side.transpose(2, 3)).detach();
      return at::where(mask, p, 1 - p).masked_select(choosable).prod().item<double>();
    };
    const int64_t sets = int64_t{1} << places.size(0);
    const auto expected_loss = [&] {
      const EdgeChoice choice = edges->choose(ask);
      double total = 0;
      for (int64_t n = 0; n < sets; ++n) {
        EdgeSet chosen = squares_of(set_number(n));
        if (c.window) chosen = chosen.united_with(pattern.edges);
        total +=
            chance_of(*choice.learner, set_number(n)) *
            (functional::edge_attention(ask.query, ask.key, value, chosen) * weight).sum().item<double>();
      }
      return total;
    };
    edges->zero_grad();
    for (int64_t n = 0; n < sets; ++n) {
      EdgeChoice choice = edges->choose(ask);
      choice.edges = squares_of(set_number(n));
      choice.learner->rule = CreditRule::kLeaveOneOut;
      choice.learner->probes = squares_of(choosable & ~set_number(n));
      choice.learner->probe_rates = {1};
      if (c.window) choice = with_fixed_edges(choice, pattern.edges);
      ASSERT_TRUE(choice.edges.squares());
      const auto out = functional::edge_attention(ask.query, ask.key, value, choice.edges, *choice.learner);
      (chance_of(*choice.learner, set_number(n)) * (out.output * weight).sum()).backward();
    }
    const at::NoGradGuard guard;
    for (const at::Tensor& parameter : edges->parameters()) {
      double* const data = parameter.data_ptr<double>();
      const at::Tensor grad = parameter.grad().reshape(-1);
      for (int64_t i = 0; i < parameter.numel(); ++i) {
        const double before = data[i], step = 1e-5;
        data[i] = before + step;
        const double up = expected_loss();
        data[i] = before - step;
        const double down = expected_loss();
        data[i] = before;
        EXPECT_NEAR(grad[i].item<double>(), (up - down) / (2 * step), 1e-7) << c.tokens << " [" << i << "]";
      }
    }
  }
}

TEST(SbmSquares, ProbesAreAbsentSquaresWithinTheirBudget) {
  for (const bool causal : {false, true}) {
    SbmEdgesOptions options(2, 8, SbmPreset::kEdgewise, 16);
    EXPECT_EQ(options.probe_rate, 0.05);
    options.probe_rate = 0.5;
    options.probes_per_row = 6;
    SbmEdges edges(options);
    EdgeRequest ask = states_request(2, 2, 640, 8);  // 40 groups
    ask.is_causal = causal;
    ask.key_mask = mask_of_lengths({640, 160}, 640);
    const EdgeChoice choice = edges->choose(ask);
    EXPECT_EQ(choice.learner->probe_rates, (std::vector<double>{6.0 / 40, 0.5}));
    const EdgeSet& probes = *choice.learner->probes;
    ASSERT_TRUE(probes.squares());
    const at::Tensor probed = probes.square_groups().to_mask(),
                     drawn = choice.edges.square_groups().to_mask();
    EXPECT_FALSE((probed & drawn).any().item<bool>());
    const double possible = causal ? 40.0 * 39 / 2 : 40.0 * 40;
    EXPECT_NEAR(probed[0].sum().item<double>(), 0.75 * 2 * possible * 6 / 40, 0.25 * 2 * possible * 6 / 40);
    EXPECT_FALSE(probed[1].narrow(1, 10, 30).any().item<bool>() ||
                 probed[1].narrow(2, 10, 30).any().item<bool>());
    if (causal) {
      EXPECT_FALSE(probed.triu(0).any().item<bool>());
    }
    edges->eval();
    EXPECT_FALSE(edges->choose(ask).learner->probes.has_value());
  }
}

// What is drawn for an item depends neither on its batch mates nor on how far it is padded, nor on threads.
TEST(SbmSquares, ItemsAreOnTheirOwn) {
  const int before = at::get_num_threads();
  SbmEdges edges = sharp_edges(2, 8);
  for (const bool causal : {false, true}) {
    EdgeRequest whole = states_request(3, 2, 200, 8);
    whole.is_causal = causal;
    whole.key_mask = mask_of_lengths({200, 0, 77}, 200);
    whole.random.seed = 5;
    at::set_num_threads(2);
    const EdgeChoice all = edges->choose(whole);
    const at::Tensor mask = all.edges.to_mask(), probes = all.learner->probes->to_mask();
    EXPECT_FALSE(mask[1].any().item<bool>()) << "nothing but padding";
    at::set_num_threads(1);
    const EdgeChoice again = edges->choose(whole);
    EXPECT_TRUE(at::equal(mask, again.edges.to_mask()) &&
                at::equal(probes, again.learner->probes->to_mask()));
    EdgeRequest alone = whole;  // item 2, padded less
    alone.query = whole.query.narrow(0, 2, 1).narrow(2, 0, 90);
    alone.key = whole.key.narrow(0, 2, 1).narrow(2, 0, 90);
    alone.key_mask = mask_of_lengths({77}, 90);
    alone.random.first_item = 2;
    const EdgeChoice one = edges->choose(alone);
    EXPECT_TRUE(at::equal(one.edges.to_mask()[0], mask[2].narrow(1, 0, 90).narrow(2, 0, 90)));
    EXPECT_TRUE(at::equal(one.learner->probes->to_mask()[0], probes[2].narrow(1, 0, 90).narrow(2, 0, 90)));
    EXPECT_TRUE(one.edges.edge_count() > 0);
  }
  at::set_num_threads(before);
}

MultiheadEdgeAttention causal_layer() {
  torch::manual_seed(9);
  SbmEdgesOptions sbm(2, 8, SbmPreset::kEdgewise, 16);
  sbm.cluster_std = 1;
  MultiheadEdgeAttentionOptions options(16, 2);
  options.is_causal = true;
  options.source = std::make_shared<UnionEdges>(
      std::vector<EdgeSourcePtr>{std::make_shared<WindowEdges>(20, 16), SbmEdges(sbm).ptr()});
  return MultiheadEdgeAttention(options);
}

TEST(SbmSquares, NoOutputChangesWhenALaterTokenDoes) {
  MultiheadEdgeAttention layer = causal_layer();
  for (const bool training : {false, true}) {
    layer->train(training);
    const at::Tensor x = kit::randn({1, 100, 16}, 1);
    const AttentionOutput before = layer->forward(x, std::nullopt, {}, true);
    const at::Tensor mask = before.edges->to_mask();
    EXPECT_TRUE(before.edges->squares());
    EXPECT_FALSE(mask.triu(1).any().item<bool>());
    EXPECT_TRUE(mask.diagonal(0, 2, 3).all().item<bool>()) << "every token sees itself";
    EXPECT_TRUE(mask.tril(-40).any().item<bool>()) << "squares beyond the window";
    int64_t changed = 0;
    for (const int64_t t : {0, 1, 15, 16, 17, 40, 47, 48, 80, 96, 99}) {
      at::Tensor other = x.clone();
      other[0][t] += 3 * kit::randn({16}, 100 + t);
      const AttentionOutput after = layer->forward(other, std::nullopt, {}, true);
      EXPECT_TRUE(at::allclose(after.output.narrow(1, 0, t), before.output.narrow(1, 0, t), 1e-6, 1e-6)) << t;
      const at::Tensor mask_after = after.edges->to_mask();
      EXPECT_TRUE(at::equal(mask_after.narrow(2, 0, t), mask.narrow(2, 0, t))) << t;
      changed += (mask_after != mask).sum().item<int64_t>();
    }
    EXPECT_GT(changed, 0) << "later edges do depend on the tokens";
  }
}

TEST(SbmSquares, SelfLoopsAreTheSquaresOfGroupsWithThemselves) {
  for (const bool causal : {false, true}) {
    SbmEdgesOptions options(2, 8, SbmPreset::kEdgewise, 16);
    options.self_loops = true;
    EdgeRequest ask = states_request(1, 2, 50, 8);
    ask.is_causal = causal;
    const EdgeChoice choice = SbmEdges(options)->choose(ask);
    ASSERT_TRUE(choice.edges.squares() && choice.learner->fixed->squares());
    const at::Tensor own = choice.edges.square_groups().to_mask().diagonal(0, 2, 3);
    EXPECT_TRUE(own.all().item<bool>());
    EXPECT_TRUE(at::equal(choice.learner->fixed->square_groups().to_mask(),
                          at::eye(4, at::kBool).expand({1, 2, 4, 4})));
    EXPECT_FALSE(choice.learner->probes->square_groups().to_mask().diagonal(0, 2, 3).any().item<bool>());
  }
}

TEST(SbmSquares, OneGroupAndNone) {
  for (const bool causal : {false, true})
    for (const int64_t tokens : {0, 1, 16}) {
      EdgeRequest ask = states_request(2, 2, tokens, 8);
      ask.is_causal = causal;
      const EdgeChoice choice = sharp_edges(2, 8)->choose(ask);
      EXPECT_EQ(choice.edges.shape(), ask.shape());
      if (causal) {
        EXPECT_EQ(choice.edges.edge_count(), 0);
      }
      choice.density_penalty.sum().backward();
    }
}

// Behind a memory the first query stands anywhere in a group: only key groups wholly before it are chosen.
TEST(SbmSquares, BehindAMemory) {
  SbmEdges edges = sharp_edges(2, 8);
  for (const int64_t offset : {5, 16, 40, 64}) {
    EdgeRequest ask = states_request(2, 2, 50, 8);
    ask.key = kit::randn({2, 2, 50 + offset, 8}, 7);
    ask.is_causal = true;
    ask.query_offset = offset;
    const at::Tensor mask = edges->choose(ask).edges.to_mask();
    const at::Tensor first = at::arange(50).div(16, "floor") * 16 + offset,
                     end = (at::arange(50 + offset).div(16, "floor") + 1) * 16;
    EXPECT_FALSE((mask & (end > first.unsqueeze(1))).any().item<bool>()) << offset;
    EXPECT_TRUE(mask.any().item<bool>());
    if (offset >= 16) {
      EXPECT_TRUE(mask.narrow(2, 0, 16).any().item<bool>()) << offset;
    }
  }
}

TEST(SbmSquares, RefusalsSayWhatToDo) {
  const auto refusal = [](const auto& set) {
    SbmEdgesOptions options(2, 8, SbmPreset::kEdgewise, 16);
    set(options);
    return kit::message_of([&] { SbmEdges{options}; });
  };
  EXPECT_EQ(refusal([](SbmEdgesOptions&) {}), "no error");
  EXPECT_THAT(refusal([](SbmEdgesOptions& o) { o.unit = 8; }), HasSubstr("unit 1 (edges one by one) or 16"));
  EXPECT_THAT(refusal([](SbmEdgesOptions& o) { o.count_padding = true; }),
              HasSubstr("unit 1 with count_padding"));
  EXPECT_THAT(refusal([](SbmEdgesOptions& o) { o.initial_density = 0; }),
              HasSubstr("initial_density in (0, 1)"));
  EXPECT_THAT(refusal([](SbmEdgesOptions& o) { o.initial_density = 1; }),
              HasSubstr("initial_density in (0, 1)"));
  UnionEdges mixed({std::make_shared<WindowEdges>(3), sharp_edges(2, 8).ptr()});
  EXPECT_THAT(kit::message_of([&] { mixed.choose(states_request(1, 2, 40, 8)); }),
              HasSubstr("Give the pattern the unit 16"));
  EXPECT_THAT(sharp_edges(2, 8)->growth_refusal(), HasSubstr("sbm.sampler = direct"));
}

}  // namespace
}  // namespace edgewise
