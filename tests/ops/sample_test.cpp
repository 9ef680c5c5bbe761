// The random contract of the samplers, masks, options, and what they refuse.
#include <edgewise/ops/sample.h>
#include <edgewise/ops/sampler_costs.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kit/random_inputs.h"
#include "ops/attention/reference.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

using ::testing::HasSubstr;

struct Inputs {
  at::Tensor query = kit::rand({4, 2, 150, 6}, 1) * 0.7;
  at::Tensor key = kit::rand({4, 2, 130, 6}, 2) / 6;
};

bool same(const EdgeSet& a, const EdgeSet& b) {
  return a.shape() == b.shape() && at::equal(a.row_offsets(), b.row_offsets()) &&
         at::equal(a.col_indices(), b.col_indices());
}

class Samplers : public ::testing::TestWithParam<Sampler> {
 protected:
  SampleOptions options() const {
    SampleOptions result;
    result.sampler = GetParam();
    result.random = {99, 3, 1, 0};
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Samplers,
                         ::testing::Values(Sampler::kDirect, Sampler::kFastRg, Sampler::kSqueezed,
                                           Sampler::kThinning, Sampler::kAuto),
                         [](const auto& given) { return std::string(to_string(given.param)); });

TEST_P(Samplers, SameSeedSameEdgesForAnyThreadCount) {
  const Inputs in;
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const EdgeSet one = sample_sbm_edges(in.query, in.key, options());
  at::set_num_threads(2);
  const EdgeSet two = sample_sbm_edges(in.query, in.key, options());
  at::set_num_threads(3);
  const EdgeSet three = sample_sbm_edges(in.query, in.key, options());
  at::set_num_threads(before);
  EXPECT_TRUE(same(one, two));
  EXPECT_TRUE(same(one, three));
  SampleOptions other = options();
  other.random.seed = 100;
  EXPECT_FALSE(same(one, sample_sbm_edges(in.query, in.key, other)));
  other = options();
  other.random.step = 4;
  EXPECT_FALSE(same(one, sample_sbm_edges(in.query, in.key, other)));
  other = options();
  other.random.layer = 2;
  EXPECT_FALSE(same(one, sample_sbm_edges(in.query, in.key, other)));
}

TEST_P(Samplers, AnItemsEdgesDoNotDependOnItsBatchMates) {
  const Inputs in;
  const at::Tensor together = sample_sbm_edges(in.query, in.key, options()).to_mask();
  SampleOptions alone = options();
  alone.random.first_item = 2;
  const at::Tensor third =
      sample_sbm_edges(in.query.narrow(0, 2, 1), in.key.narrow(0, 2, 1), alone).to_mask();
  EXPECT_TRUE(at::equal(together.narrow(0, 2, 1), third));
  // Equal items at different places draw independently.
  const at::Tensor twins = sample_sbm_edges(in.query.narrow(0, 0, 1).expand({2, -1, -1, -1}),
                                            in.key.narrow(0, 0, 1).expand({2, -1, -1, -1}), options())
                               .to_mask();
  EXPECT_FALSE(at::equal(twins[0], twins[1]));
}

TEST_P(Samplers, PaddingChangesNothingForTheRest) {
  const Inputs in;
  const auto padded = [](const at::Tensor& t) { return at::cat({t, at::full({4, 2, 33, 6}, NAN)}, 2); };
  const at::Tensor plain = sample_sbm_edges(in.query, in.key, options()).to_mask();
  SampleOptions masked = options();
  masked.key_mask = (torch::arange(163) < 130).unsqueeze(0).expand({4, 163});
  masked.query_mask = (torch::arange(183) < 150).unsqueeze(0).expand({4, 183});
  const EdgeSet edges =
      sample_sbm_edges(padded(in.query), padded(in.key), masked);  // NaN in padding is never read
  EXPECT_TRUE(at::equal(edges.to_mask().narrow(2, 0, 150).narrow(3, 0, 130), plain));
  EXPECT_EQ(edges.edge_count(), plain.sum().item<int64_t>());
}

TEST_P(Samplers, TheChoiceOfSamplerIgnoresPadding) {
  // Dense enough that direct wins for these queries, with so much padding that counting it would tip the
  // choice.
  const at::Tensor query = at::full({1, 1, 300, 32}, 0.5f), key = at::full({1, 1, 300, 32}, 0.5f / 32);
  const at::Tensor plain = sample_sbm_edges(query, key, options()).to_mask();
  SampleOptions masked = options();
  masked.query_mask = (torch::arange(3000) < 300).unsqueeze(0);
  const at::Tensor padded = at::cat({query, at::zeros({1, 1, 2700, 32})}, 2);
  EXPECT_TRUE(at::equal(sample_sbm_edges(padded, key, masked).to_mask().narrow(2, 0, 300), plain));
}

TEST_P(Samplers, MasksCausalityAndSelfLoops) {
  const Inputs in;
  const at::Tensor query = in.query.narrow(2, 0, 130);
  SampleOptions o = options();
  o.key_mask = kit::rand({4, 130}, 3) < 0.5;
  o.is_causal = true;
  const at::Tensor mask = sample_sbm_edges(query, in.key, o).to_mask();
  EXPECT_FALSE((mask & ~o.key_mask->view({4, 1, 1, 130})).any().item<bool>());
  EXPECT_FALSE((mask & at::ones({130, 130}).triu(1).to(at::kBool)).any().item<bool>());
  o.self_loops = true;
  const at::Tensor with_loops = sample_sbm_edges(query, in.key, o).to_mask();
  const at::Tensor diagonal = at::eye(130).to(at::kBool) & o.key_mask->view({4, 1, 1, 130});
  EXPECT_TRUE(at::equal(with_loops, mask | diagonal));  // padding keys get no loop either
}

TEST_P(Samplers, AllPaddingAndEmptyInputs) {
  const Inputs in;
  SampleOptions o = options();
  o.key_mask = at::zeros({4, 130}, at::kBool);
  EXPECT_EQ(sample_sbm_edges(in.query, in.key, o).edge_count(), 0);
  EXPECT_EQ(sample_sbm_edges(at::zeros({0, 2, 5, 3}), at::zeros({0, 2, 4, 3}), options()).edge_count(), 0);
  EXPECT_EQ(sample_sbm_edges(at::zeros({1, 2, 0, 3}), at::zeros({1, 2, 0, 3}), options()).edge_count(), 0);
  EXPECT_EQ(sample_sbm_edges(at::zeros({1, 2, 5, 3}), at::zeros({1, 2, 4, 3}), options()).edge_count(), 0);
  EXPECT_EQ(sample_sbm_edges(at::ones({1, 2, 5, 3}), at::full({1, 2, 4, 3}, 1e30), options()).edge_count(),
            40);
}

TEST_P(Samplers, RefusesBadMemberships) {
  const auto message = [&](const at::Tensor& query, const at::Tensor& key,
                           const SampleOptions& o) -> std::string {
    try {
      sample_sbm_edges(query, key, o);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  };
  const at::Tensor good = kit::rand({1, 1, 4, 3}, 1);
  at::Tensor bad = good.clone();
  bad[0][0][2][1] = NAN;
  EXPECT_THAT(
      message(bad, good, options()),
      HasSubstr(
          "query_membership to be finite and not negative; item 0, head 0, token 2, cluster 1 has nan"));
  bad[0][0][2][1] = -0.5;
  EXPECT_THAT(message(good, bad, options()), HasSubstr("key_side to be finite and not negative"));
  EXPECT_THAT(message(good, good.narrow(3, 0, 2), options()), HasSubstr("query_membership [B, H, L, C]"));
  EXPECT_THAT(message(good, good.to(at::kDouble), options()), HasSubstr("one dtype"));
  EXPECT_THAT(message(good.to(at::kLong), good.to(at::kLong), options()), HasSubstr("floating"));
  SampleOptions o = options();
  o.exploration = 2;
  EXPECT_THAT(message(good, good, o), HasSubstr("exploration in [0, 1]"));
  o = options();
  o.key_mask = at::ones({1, 4});
  EXPECT_THAT(message(good, good, o), HasSubstr("dtype bool"));
  o = options();
  o.self_loops = true;
  EXPECT_THAT(message(good, kit::rand({1, 1, 5, 3}, 2), o), HasSubstr("as many queries as keys"));
}

// A sequence that grows: one row at a time gives the edges of all at once, whatever keys come later.
TEST(QueryOffset, RowsOneByOneEqualTheWhole) {
  const at::Tensor query = kit::rand({2, 2, 40, 6}, 1) * 0.7, key = kit::rand({2, 2, 40, 6}, 2) / 6;
  SampleOptions options;
  options.sampler = Sampler::kDirect;
  options.is_causal = true;
  options.random = {99, 3, 1, 0};
  const at::Tensor whole = sample_sbm_edges(query, key, options).to_mask();
  for (const int64_t row : {0, 1, 17, 39}) {
    options.query_offset = row;
    const EdgeSet one = sample_sbm_edges(query.narrow(2, row, 1), key.narrow(2, 0, row + 1), options);
    EXPECT_TRUE(at::equal(one.to_mask(), whole.narrow(2, row, 1).narrow(3, 0, row + 1))) << row;
  }
  options.sampler = Sampler::kFastRg;
  EXPECT_THROW(sample_sbm_edges(query, key, options), c10::ValueError);
}

// Auto is the sampler with the least predicted cost, and each of them is the least for some memberships.
TEST(SamplerCosts, AutoTakesTheCheapest) {
  const auto rare = [](double density) {  // near-uniform
    return std::pair{kit::rand({1, 1, 700, 16}, 1) * 0.1 + 0.45,
                     (kit::rand({1, 1, 700, 16}, 2) * 0.1 + 0.45) * (density / 4)};
  };
  // One key takes nearly everything: no bound on a row fits the others, and hardly any pair is an edge.
  auto hub = std::pair{kit::rand({1, 1, 700, 16}, 3).pow(8), kit::rand({1, 1, 700, 16}, 4).pow(8) * 1e-4};
  hub.second[0][0][5] = 0.05;
  std::set<Sampler> taken;
  for (const auto& [query, key] : {rare(0.3), rare(1e-3), hub}) {
    SampleOptions options;
    const SamplerCosts costs = predict_sampler_costs(query, key, options);
    Sampler best = Sampler::kSqueezed;
    for (const Sampler sampler : {Sampler::kThinning, Sampler::kFastRg})
      if (costs.of(sampler) < costs.of(best)) best = sampler;
    EXPECT_NEAR(costs.of(Sampler::kAuto), costs.of(best), 0.1 * costs.of(best));
    const EdgeSet chosen = sample_sbm_edges(query, key, options);
    options.sampler = best;
    EXPECT_TRUE(same(chosen, sample_sbm_edges(query, key, options))) << to_string(best);
    EXPECT_GT(costs.of(Sampler::kDirect), costs.of(best));
    taken.insert(best);
  }
  EXPECT_GE(taken.size(), 2u);
  EXPECT_THROW(predict_sampler_costs(at::ones({1, 1, 4, 2}), at::ones({1, 1, 4, 3})), c10::ValueError);
}

TEST(Probes, AreUniformOverAbsentPairs) {
  const at::Tensor mask = kit::random_mask({1, 1, 12, 20}, 0.4, 5).expand({400, 1, 12, 20}).contiguous();
  SampleOptions o;
  o.key_mask = (torch::arange(20) < 17).unsqueeze(0).expand({400, 20});
  const EdgeSet edges = EdgeSet::from_mask(mask).restricted_to_keys(*o.key_mask);
  const at::Tensor probes = sample_probe_edges(edges, std::vector<double>(400, 0.1), o).to_mask();
  const at::Tensor absent = ~edges.to_mask() & o.key_mask->view({400, 1, 1, 20});
  EXPECT_FALSE((probes & ~absent).any().item<bool>());
  const double count = absent.sum().item<double>();
  EXPECT_NEAR(probes.sum().item<double>() / count, 0.1, 4.7 * std::sqrt(0.09 / count));
  EXPECT_TRUE(at::equal(sample_probe_edges(edges, std::vector<double>(400, 1), o).to_mask(), absent));
  EXPECT_EQ(sample_probe_edges(edges, std::vector<double>(400, 0), o).edge_count(), 0);
}

// In units each absent pair has the same probability as alone, and pairs of one square of 16 x 16 share their
// fate.
TEST(Probes, InUnitsAreWholeSquaresAtTheSameRate) {
  const int64_t items = 600;
  const double rate = 0.1;
  const EdgeShape shape{items, 1, 37, 50};
  const EdgeSet edges =
      EdgeSet::from_mask(kit::random_mask({1, 1, 37, 50}, 0.3, 5).expand({items, 1, 37, 50}).contiguous());
  SampleOptions o;
  o.probe_unit = 16;
  o.random = {.seed = 3, .step = 4};
  for (const bool restricted : {false, true}) {
    at::Tensor allowed = ~edges.to_mask();
    if (restricted) {
      o.key_mask = (torch::arange(50) % 5 != 2).unsqueeze(0).expand({items, 50});
      o.query_mask = (torch::arange(37) < 30).unsqueeze(0).expand({items, 37});
      o.is_causal = true;
      allowed = allowed & o.key_mask->view({items, 1, 1, 50}) & o.query_mask->view({items, 1, 37, 1}) &
                at::ones({37, 50}, at::kBool).tril();
    }
    const at::Tensor probes = sample_probe_edges(edges, std::vector<double>(items, rate), o).to_mask();
    const at::Tensor numbers = ops::reference::unit_numbers(
        ops::stream_keys(o.random, kernels::Purpose::kProbes, shape), shape, at::kCPU);
    EXPECT_TRUE(at::equal(probes, allowed & (numbers.to(at::kDouble) < rate * 4294967296.0)));
    for (int64_t i = 0; i < 37; i += 16)
      for (int64_t j = 0; j < 50; j += 16) {
        const auto square = [&](const at::Tensor& x) {
          return x.narrow(2, i, std::min<int64_t>(16, 37 - i)).narrow(3, j, std::min<int64_t>(16, 50 - j));
        };
        const at::Tensor drawn = square(probes).sum(at::IntArrayRef{1, 2, 3}),
                         whole = square(allowed).sum(at::IntArrayRef{1, 2, 3});
        EXPECT_TRUE(((drawn == 0) | (drawn == whole)).all().item<bool>());
        if (whole.sum().item<int64_t>() == 0) continue;
        EXPECT_NEAR((drawn > 0).sum().item<double>() / items, rate, 5 * std::sqrt(rate * (1 - rate) / items));
      }
    EXPECT_TRUE(at::equal(sample_probe_edges(edges, std::vector<double>(items, 1), o).to_mask(), allowed));
    EXPECT_EQ(sample_probe_edges(edges, std::vector<double>(items, 0), o).edge_count(), 0);
  }
  o.probe_unit = 8;
  EXPECT_THROW(sample_probe_edges(edges, std::vector<double>(items, rate), o), c10::ValueError);
}

}  // namespace
}  // namespace edgewise
