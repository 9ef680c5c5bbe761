// Sources asked with a key mask whose true bytes are not 1 choose what they choose with ones.
#include <edgewise/edges/bucket_edges.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/edges/special_case_edges.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "edges/sac_kit.h"
#include "kit/devices.h"
#include "kit/other_bytes.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

constexpr int64_t kTokens = 40;

class MaskBytes : public kit::DeviceTest {
 protected:
  at::Tensor mask() const { return (kit::rand({3, kTokens}, 3) < 0.6).to(device()); }
  EdgeRequest request(const at::Tensor& key_mask) const {
    EdgeRequest result;
    result.query = kit::randn({3, 2, kTokens, 4}, 1).to(device());
    result.key = kit::randn({3, 2, kTokens, 4}, 2).to(device());
    result.tokens = kit::randn({3, kTokens, 8}, 4).to(device());
    result.key_mask = key_mask;
    result.random = {.seed = 5, .step = 2};
    return result;
  }
  void expect_same_choice(EdgeSource& source, const std::string& what, bool causal = false) const {
    const auto choose = [&](const at::Tensor& key_mask) {
      EdgeRequest asked = request(key_mask);
      asked.is_causal = causal;
      return source.choose(asked);
    };
    const EdgeChoice expected = choose(mask()), found = choose(kit::other_bytes(mask()));
    EXPECT_GT(expected.edges.edge_count(), 0) << what;
    EXPECT_TRUE(kit::same_edges(found.edges, expected.edges)) << what;
    if (expected.density_penalty.defined()) {
      EXPECT_TRUE(at::equal(found.density_penalty, expected.density_penalty)) << what;
    }
    if (expected.learner) {
      EXPECT_EQ(found.learner->pairs_per_head, expected.learner->pairs_per_head) << what;
      EXPECT_EQ(found.learner->probe_rates, expected.learner->probe_rates) << what;
      if (expected.learner->probes) {
        EXPECT_TRUE(kit::same_edges(*found.learner->probes, *expected.learner->probes)) << what;
      }
    }
    if (expected.policy) {
      EXPECT_TRUE(at::equal(found.policy->log_prob, expected.policy->log_prob)) << what;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, MaskBytes, kit::devices(), kit::device_name);

TEST_P(MaskBytes, Patterns) {
  for (const bool causal : {false, true}) {
    FullEdges full;
    WindowEdges window(3);
    BucketEdges buckets(BucketEdgesOptions{.rounds = 2, .chunk = 5});
    expect_same_choice(full, "full", causal);
    expect_same_choice(window, "window", causal);
    expect_same_choice(*buckets, "buckets", causal);
  }
  const TreeEdges tree({.tokens = kTokens});
  EXPECT_TRUE(at::equal(tree.node_mask(kit::other_bytes(mask())), tree.node_mask(mask())));
}

TEST_P(MaskBytes, Sbm) {
  for (const SbmPreset preset : {SbmPreset::kPaper, SbmPreset::kPublished, SbmPreset::kEdgewise}) {
    torch::manual_seed(1);
    SbmEdges source(SbmEdgesOptions(2, 4, preset));
    source->to(device());
    expect_same_choice(*source, std::string(to_string(preset)));
  }
}

TEST_P(MaskBytes, Sac) {
  for (const auto walk : {SacWalk::kRooted, SacWalk::kPairs})
    for (const bool fused : {true, false}) {
      SacEdgesOptions options = kit::sac_options(2, walk, 3);
      options.fused = fused;
      SacEdges source = kit::sac_predictor(options, 7, 1);
      source->to(device(), at::kFloat);
      expect_same_choice(
          *source, (walk == SacWalk::kRooted ? "rooted, fused " : "pairs, fused ") + std::to_string(fused));
    }
}

}  // namespace
}  // namespace edgewise
