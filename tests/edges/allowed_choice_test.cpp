// Attention takes out what a request forbids, whatever the source: the contract of edge_source.h. And the
// sources that say they leave it out themselves do so.
#include <edgewise/attention/multihead_attention.h>
#include <edgewise/attention/special_cases.h>
#include <edgewise/edges/bucket_edges.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/edges/special_case_edges.h>

#include <gtest/gtest.h>

#include <functional>

#include "kit/devices.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

constexpr int64_t kBatch = 3, kHeads = 2, kDim = 8;

// Answers every request with edges drawn without a look at its masks; with tiles as a source on a GPU would,
// with values as a learner would.
class CarelessEdges : public EdgeSource {
 public:
  explicit CarelessEdges(bool tiles = false, bool learns = false) : tiles_(tiles), learns_(learns) {}

  static at::Tensor mask(const EdgeShape& shape) { return kit::random_mask(shape, 0.6, 5); }

  EdgeChoice choose(const EdgeRequest& request) override {
    const EdgeSet edges = EdgeSet::from_mask(mask(request.shape()).to(request.query.device()));
    EdgeChoice choice;
    choice.edges = tiles_ ? EdgeSet::from_trusted_tiles(edges.shape(), edges.tiles()) : edges;
    choice.density = at::full({kHeads}, 2.78, at::kDouble);  // its own count, of forbidden pairs too
    if (!learns_) return choice;
    values = at::zeros({edges.edge_count()}).requires_grad_();
    choice.learner.emplace().values = values;
    return choice;
  }

  at::Tensor values;

 private:
  bool tiles_, learns_;
};

// The same edges from a source that looks at the masks.
class CarefulEdges : public CarelessEdges {
 public:
  using CarelessEdges::CarelessEdges;
  EdgeChoice choose(const EdgeRequest& request) override {
    EdgeChoice choice;
    choice.edges = EdgeSet::from_mask(mask(request.shape()) & request.allowed());
    values = at::zeros({choice.edges.edge_count()}).requires_grad_();
    choice.learner.emplace().values = values;
    return choice;
  }
  bool respects_masks() const override { return true; }
};

// Item 0 whole, item 1 with holes, item 2 nothing but padding.
at::Tensor holes(int64_t keys) {
  at::Tensor mask = kit::rand({kBatch, keys}, 4) < 0.7;
  mask[0].fill_(true);
  mask[2].fill_(false);
  return mask;
}

EdgeRequest request_of(int64_t queries, int64_t before, bool masked, bool causal) {
  EdgeRequest request;
  const int64_t keys = before + queries;
  request.query = kit::randn({kBatch, kHeads, queries, kDim}, 1);
  request.key = kit::randn({kBatch, kHeads, keys, kDim}, 2);
  if (masked) request.key_mask = holes(keys);
  request.is_causal = causal;
  request.random = {.seed = 3};
  request.tokens = kit::randn({kBatch, queries, kHeads * kDim}, 6);
  request.key_tokens = kit::randn({kBatch, keys, kHeads * kDim}, 7);
  request.query_offset = before;
  return request;
}

// Pair by pair, without the code under test.
at::Tensor allowed_pairs(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  at::Tensor result = at::zeros({shape.batch, 1, shape.queries, shape.keys}, at::kBool);
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t i = 0; i < shape.queries; ++i)
      for (int64_t j = 0; j < shape.keys; ++j) {
        const auto valid = [&](int64_t key) {
          return !request.key_mask || (*request.key_mask)[b][key].item<bool>();
        };
        const int64_t place = request.query_offset + i;
        result[b][0][i][j] = valid(j) && valid(place) && (!request.is_causal || j <= place);
      }
  return result;
}

// For every number of queries and of keys before them.
std::vector<EdgeRequest> requests(const std::vector<std::pair<int64_t, int64_t>>& lengths) {
  std::vector<EdgeRequest> result;
  for (const auto& [queries, before] : lengths)
    for (const bool masked : {false, true})
      for (const bool causal : {false, true}) result.push_back(request_of(queries, before, masked, causal));
  return result;
}

class AllowedChoice : public kit::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(All, AllowedChoice, kit::devices(), kit::device_name);

TEST_P(AllowedChoice, TakesOutWhatACarelessSourceLeftIn) {
  for (const bool tiles : {false, true})
    for (EdgeRequest request : requests({{70, 0}, {9, 130}, {1, 5}})) {
      const at::Tensor allowed = allowed_pairs(request);
      EXPECT_TRUE(at::equal(request.allowed(), allowed));
      request.query = request.query.to(device());
      if (request.key_mask) request.key_mask = request.key_mask->to(device());
      CarelessEdges source(tiles);
      const EdgeChoice choice = allowed_choice(source, request);
      EXPECT_TRUE(at::equal(choice.edges.to_mask().cpu(), CarelessEdges::mask(request.shape()) & allowed))
          << to_string(request.shape()) << " tiles " << tiles << " causal " << request.is_causal;
      EXPECT_EQ(choice.density.defined(), !request.key_mask && !request.is_causal);
    }
}

TEST(AllowedChoice, SourcesThatPromiseToKeepToTheMasksDo) {
  const auto sbm = [](SbmPreset preset, bool self_loops = false) {
    SbmEdgesOptions options(kHeads, kDim, preset);
    options.self_loops = self_loops;
    return SbmEdges(options).ptr();
  };
  const auto sac = [](const std::function<void(SacEdgesOptions&)>& change) {
    SacEdgesOptions options(kHeads, kHeads * kDim);
    change(options);
    return SacEdges(options).ptr();
  };
  const std::vector<EdgeSourcePtr> sources = {
      std::make_shared<FullEdges>(),
      std::make_shared<WindowEdges>(3),
      std::make_shared<RandomEdges>(4),
      std::make_shared<UnionEdges>(
          std::vector<EdgeSourcePtr>{std::make_shared<CarelessEdges>(), sbm(SbmPreset::kEdgewise)}),
      std::make_shared<SegmentEdges>(SegmentEdgesOptions{.segment = 5, .memory = 7}),
      std::make_shared<SpanEdges>(SpanEdgesOptions{.num_heads = kHeads, .limit = 20, .ramp = 6}),
      sbm(SbmPreset::kPaper),
      sbm(SbmPreset::kPublished),
      sbm(SbmPreset::kEdgewise, true),
      sac([](SacEdgesOptions&) {}),
      sac([](SacEdgesOptions& o) { o.self_edges = SelfEdges::kAlways; }),
      sac([](SacEdgesOptions& o) { o.candidates = std::make_shared<CarelessEdges>(); }),
      sac([](SacEdgesOptions& o) {
        o.walk = SacWalk::kPairs;
        o.estimator = SacEstimator::kPaired;
      })};
  for (const EdgeSourcePtr& source : sources)
    for (const bool training : {true, false}) {
      source->train(training);
      ASSERT_TRUE(source->respects_masks()) << source->name();
      for (const EdgeRequest& request : requests({{12, 0}, {5, 17}, {1, 5}}))
        EXPECT_FALSE((source->choose(request).edges.to_mask() & allowed_pairs(request).logical_not())
                         .any()
                         .item<bool>())
            << source->name() << to_string(request.shape()) << " causal " << request.is_causal;
    }
}

TEST(AllowedChoice, SourcesOfOneShapeKeepToTheMasks) {
  for (const bool causal : {false, true}) {
    const EdgeRequest request = request_of(70, 0, true, causal);
    const at::Tensor forbidden = allowed_pairs(request).logical_not();
    const std::vector<EdgeSourcePtr> sources = {
        BucketEdges(BucketEdgesOptions{.rounds = 2, .chunk = 8}).ptr(),
        std::make_shared<GivenEdges>(EdgeSet::from_mask(CarelessEdges::mask(request.shape())))};
    for (const EdgeSourcePtr& source : sources) {
      ASSERT_TRUE(source->respects_masks());
      EXPECT_FALSE((source->choose(request).edges.to_mask() & forbidden).any().item<bool>())
          << source->name();
    }
  }
  TreeEdges tree({.tokens = 6, .step = 2});
  EdgeRequest nodes = request_of(tree.graph().nodes, 0, false, false);
  nodes.key_mask = tree.node_mask(holes(6));
  ASSERT_TRUE(tree.respects_masks());
  EXPECT_FALSE((tree.choose(nodes).edges.to_mask() & allowed_pairs(nodes).logical_not()).any().item<bool>());
}

MultiheadEdgeAttention attention_over(EdgeSourcePtr source, bool is_causal) {
  torch::manual_seed(7);
  MultiheadEdgeAttentionOptions options(kHeads * kDim, kHeads);
  options.source = std::move(source);
  options.is_causal = is_causal;
  return MultiheadEdgeAttention(options);
}

TEST(AllowedChoice, AttentionComputesNoForbiddenPair) {
  const at::Tensor x = kit::randn({kBatch, 20, kHeads * kDim}, 8), mask = holes(20);
  for (const bool tiles : {false, true})
    for (const bool causal : {false, true}) {
      auto careless = attention_over(std::make_shared<CarelessEdges>(tiles), causal);
      const auto found = careless->forward(x, mask, {}, /*keep_edges=*/true);
      EdgeRequest request = request_of(20, 0, false, causal);
      request.key_mask = mask;
      const at::Tensor allowed = allowed_pairs(request),
                       expected = CarelessEdges::mask(request.shape()) & allowed;
      EXPECT_TRUE(at::equal(found.edges->to_mask(), expected));
      EXPECT_TRUE(at::allclose(found.density,
                               expected.sum({0, 2, 3}).to(at::kDouble) / allowed.sum().to(at::kDouble)));
      // Neither padding nor the future reaches a valid token.
      at::Tensor changed = x.clone();
      changed.masked_fill_(mask.logical_not().unsqueeze(-1), 100);
      if (causal) changed.select(1, 19).fill_(-100);
      const at::Tensor seen = mask.slice(1, 0, 19).unsqueeze(-1);
      const auto rows = [&](const AttentionOutput& output) {
        return output.output.slice(1, 0, causal ? 19 : 20).masked_select(causal ? seen : mask.unsqueeze(-1));
      };
      EXPECT_TRUE(at::equal(rows(found), rows(careless->forward(changed, mask))));
    }
}

TEST(AllowedChoice, EffectsOfALearnerStayWithTheirEdges) {
  const at::Tensor x = kit::randn({kBatch, 20, kHeads * kDim}, 8), mask = holes(20);
  const auto careless = std::make_shared<CarelessEdges>(false, true);
  const auto careful = std::make_shared<CarefulEdges>(false, true);
  for (const auto& source : {careless, std::static_pointer_cast<CarelessEdges>(careful)})
    attention_over(source, true)->forward(x, mask).output.square().sum().backward();
  EdgeRequest request = request_of(20, 0, false, true);
  request.key_mask = mask;
  const at::Tensor drawn = CarelessEdges::mask(request.shape());
  const at::Tensor kept = request.allowed().expand_as(drawn).masked_select(drawn);
  EXPECT_TRUE(at::equal(careless->values.grad().masked_select(kept), careful->values.grad()));
  EXPECT_GT(careful->values.grad().abs().sum().item<float>(), 0);
  EXPECT_EQ(careless->values.grad().masked_select(kept.logical_not()).abs().sum().item<float>(), 0);
}

TEST(AllowedChoice, ProbesOfALearnerKeepToTheMasks) {
  class CarelessLearner : public EdgeSource {
   public:
    EdgeChoice choose(const EdgeRequest& request) override {
      const EdgeSet drawn = EdgeSet::from_mask(CarelessEdges::mask(request.shape()));
      EdgeChoice choice;
      choice.edges = drawn;
      choice.learner.emplace();
      choice.learner->probes = EdgeSet::full(request.shape()).minus(drawn);
      choice.learner->fixed = drawn;
      return choice;
    }
  } source;
  const EdgeRequest request = request_of(9, 2, true, true);
  const EdgeChoice choice = allowed_choice(source, request);
  const at::Tensor drawn = CarelessEdges::mask(request.shape()), allowed = allowed_pairs(request);
  EXPECT_TRUE(at::equal(choice.learner->probes->to_mask(), drawn.logical_not() & allowed));
  EXPECT_TRUE(at::equal(choice.learner->fixed->to_mask(), drawn & allowed));
}

TEST(AllowedChoice, WrongShapesAreRefused) {
  class OtherShape : public EdgeSource {
   public:
    EdgeChoice choose(const EdgeRequest&) override {
      EdgeChoice choice;
      choice.edges = EdgeSet::full({1, 1, 2, 2});
      return choice;
    }
  } source;
  EXPECT_THROW(allowed_choice(source, request_of(5, 0, false, false)), c10::ValueError);
}

// Its own tree has a type for every edge; another source may name pairs that have none.
TEST(AllowedChoice, TreeAttentionKeepsToItsTree) {
  const TreeEdgesOptions tree{.tokens = 6, .step = 2, .is_causal = true};
  TreeAttentionOptions options{.embed_dim = 16, .num_heads = kHeads, .tree = tree};
  torch::manual_seed(1);
  TreeAttention own(options);
  options.source = std::make_shared<FullEdges>();
  torch::manual_seed(1);
  TreeAttention given(options);
  const at::Tensor nodes = own->start(kit::randn({kBatch, 6, 16}, 9));
  EXPECT_TRUE(at::equal(own->forward(nodes), given->forward(nodes)));
}

}  // namespace
}  // namespace edgewise
