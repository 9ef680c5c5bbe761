// Batches with features and relations: what is done to one is done to all of it, and a model hands it on to
// its edge sources.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/data/prefetcher.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/models/classifier.h>

#include "kit/message_of.h"
#include "models/tiny_model.h"

namespace edgewise {
namespace {

using kit::message_of;
using testing::HasSubstr;
using namespace testing_kit;

constexpr int64_t kItems = 4, kTokens = 6, kFeatures = 3;

// Item i has i + 1 valid tokens, and for each of them a relation 1 + i % 2 to the first.
Batch full_batch() {
  torch::manual_seed(3);
  const at::Tensor relations = torch::zeros({kItems, kTokens, 3}, at::kLong);
  for (int64_t item = 0; item < kItems; ++item)
    for (int64_t token = 0; token <= item; ++token) {
      relations[item][token][0] = token;
      relations[item][token][2] = 1 + item % 2;
    }
  return {.towers = {{.tokens = torch::randint(1, 11, {kItems, kTokens}, at::kLong),
                      .features = torch::randn({kItems, kTokens, kFeatures}),
                      .mask = length_mask({1, 2, 3, 4}, kTokens),
                      .positions = torch::randint(0, 20, {kItems, kTokens}, at::kLong),
                      .relations = relations}},
          .labels = torch::arange(kItems) % 3,
          .more = {{"weight", torch::rand({kItems})}},
          .trim_multiple = 2};
}

TEST(Batch, EveryTensorIsMappedInOneOrder) {
  const Batch batch = full_batch();
  int64_t seen = 0;
  const Batch marked = batch.map(
      [&](const at::Tensor& tensor) { return torch::full(tensor.sizes(), static_cast<double>(++seen)); });
  EXPECT_EQ(seen, 7);
  int64_t next = 0;
  for (const at::Tensor& tensor : marked.tensors()) EXPECT_EQ(tensor.flatten()[0].item<double>(), ++next);
  EXPECT_EQ(next, 7);
  EXPECT_EQ(marked.trim_multiple, 2);
  for (const at::Tensor& tensor : to_device(batch, at::kMeta).tensors()) EXPECT_TRUE(tensor.is_meta());
  Batch some = batch;
  some.towers[0].tokens = some.towers[0].mask = at::Tensor();
  EXPECT_EQ(some.tensors().size(), 5u);
  EXPECT_EQ(some.size(), kItems);
  EXPECT_EQ(some.towers[0].length(), kTokens);
}

TEST(Batch, ASliceHasItsItemsAndTheirTokens) {
  const Batch batch = full_batch(), part = slice_items(batch, 1, 2);  // 2 and 3 valid tokens
  const Tower &tower = part.towers[0], &whole = batch.towers[0];
  EXPECT_EQ(part.size(), 2);
  const auto cut = [](const at::Tensor& tensor) { return tensor.narrow(0, 1, 2).narrow(1, 0, 4); };
  EXPECT_TRUE(at::equal(tower.tokens, cut(whole.tokens)));
  EXPECT_TRUE(at::equal(tower.features, cut(whole.features)));
  EXPECT_TRUE(at::equal(tower.mask, cut(whole.mask)));
  EXPECT_TRUE(at::equal(tower.positions, cut(whole.positions)));
  EXPECT_TRUE(at::equal(tower.relations, whole.relations.narrow(0, 1, 2)));
  EXPECT_TRUE(at::equal(part.labels, batch.labels.narrow(0, 1, 2)));
  EXPECT_TRUE(at::equal(part.more.at("weight"), batch.more.at("weight").narrow(0, 1, 2)));
}

TEST(Relations, AreEdgesInOrderWithTheirIds) {
  Tower tower;
  tower.features = torch::zeros({2, 3, 1});
  EXPECT_FALSE(relations_of(tower));
  tower.relations =
      torch::tensor({{{2, 0, 7}, {0, 1, 5}, {0, 0, 6}}, {{1, 2, 9}, {0, 0, 0}, {0, 0, 0}}}, at::kLong);
  const EdgeRelations found = *relations_of(tower);
  EXPECT_EQ(found.edges.shape(), (EdgeShape{2, 1, 3, 3}));
  EXPECT_TRUE(at::equal(found.edges.row_offsets(), torch::tensor({0, 2, 2, 3, 3, 4, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(found.edges.col_indices(), torch::tensor({0, 1, 0, 2}, at::kInt)));
  EXPECT_TRUE(at::equal(found.ids, torch::tensor({6, 5, 7, 9}, at::kLong)));
  tower.relations = torch::zeros({2, 0, 3}, at::kLong);
  EXPECT_EQ(relations_of(tower)->edges.edge_count(), 0);
}

TEST(Relations, MistakesAreExplained) {
  Tower tower;
  tower.tokens = torch::ones({1, 3}, at::kLong);
  tower.relations = torch::tensor({0, 3, 1}, at::kLong).view({1, 1, 3});
  EXPECT_THAT(message_of([&] { relations_of(tower); }), HasSubstr("in [0, 3); found 0 to 3"));
  tower.relations = torch::tensor({0, 1, 1, 0, 1, 2}, at::kLong).view({1, 2, 3});
  EXPECT_THAT(message_of([&] { relations_of(tower); }), HasSubstr("one relation for a pair"));
  tower.relations = torch::zeros({1, 3, 2}, at::kLong);
  EXPECT_THAT(message_of([&] { relations_of(tower); }), HasSubstr("expected relations [1, R, 3] as int64"));
}

ClassifierOptions featured_options(EdgeSourceFactory edges) {
  ClassifierOptions options = tiny_options(std::move(edges));
  options.encoder.features = kFeatures;
  return options;
}

// Every edge; keeps what it was asked.
class Listener : public EdgeSource {
 public:
  EdgeChoice choose(const EdgeRequest& request) override {
    asked.push_back(request);
    EdgeChoice choice;
    choice.edges = EdgeSet::full(request.shape());
    return choice;
  }
  std::vector<EdgeRequest> asked;
};

TEST(Batch, ReachesTheEdgeSourceFromABackgroundThread) {
  const auto listener = std::make_shared<Listener>();
  torch::manual_seed(5);
  SequenceClassifier model(featured_options([&](int64_t) { return listener; }));
  model->eval();
  data::Prefetcher prefetcher([](int64_t) { return full_batch(); }, 0, 1);
  const Batch part = to_device(slice_items(prefetcher.next(), 1, 2), at::kCPU);
  const at::Tensor logits = model->forward({.batch = part}).logits;
  ASSERT_EQ(listener->asked.size(), 2u);  // layers
  for (const EdgeRequest& request : listener->asked) {
    ASSERT_TRUE(request.relations);
    EXPECT_EQ(request.relations->edges.shape(), (EdgeShape{2, 1, 4, 4}));
    EXPECT_TRUE(at::equal(request.relations->ids, torch::tensor({2, 2, 1, 1, 1}, at::kLong)));
    EXPECT_TRUE(at::equal(request.relations->edges.to_mask().sum(3).squeeze(1),
                          torch::tensor({{1, 1, 0, 0}, {1, 1, 1, 0}}, at::kLong)));
  }
  Batch other = part;
  other.towers[0].features = other.towers[0].features + 1;
  EXPECT_FALSE(at::allclose(model->forward({.batch = other}).logits, logits));
  other = part;
  other.towers[0].features = at::Tensor();
  EXPECT_THAT(message_of([&] { model->forward({.batch = other}); }),
              HasSubstr("expected features [B, N, 3]; got none"));
}

// With a vocabulary or without: positions and dropout as for tokens.
TEST(Features, MayStandAlone) {
  ClassifierOptions options = featured_options({});
  options.encoder.vocabulary = 0;
  torch::manual_seed(5);
  TokenClassifier model(options);
  model->eval();
  Batch batch = full_batch();
  batch.towers[0].tokens = at::Tensor();
  batch.towers[0].relations = at::Tensor();
  const at::Tensor logits = model->forward({.batch = batch}).logits;
  EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{kItems, kTokens, 3}));
  EXPECT_FALSE(model->named_parameters().contains("encoder.token_embedding.weight"));
  Batch moved = batch;
  moved.towers[0].positions = batch.towers[0].positions + 1;
  EXPECT_FALSE(at::allclose(model->forward({.batch = moved}).logits, logits));
  EXPECT_THAT(message_of([&] { model->forward({.batch = full_batch()}); }),
              HasSubstr("features alone, without a vocabulary"));
}

// A walk of one step that cares for relation 2 above all goes where relation 2 leads.
TEST(Relations, SacEncodesThem) {
  SacEdgesOptions sac(2, 16);
  sac.alpha = 1;
  sac.relations = 2;
  sac.test_decoding = WalkDecoding::kGreedy;
  torch::manual_seed(5);
  SequenceClassifier model(tiny_options([&](int64_t) {
    SacEdges source(sac);
    const torch::NoGradGuard guard;
    source->relation_table.zero_().select(1, 2).fill_(1000);
    return source.ptr();
  }));
  model->eval();
  Batch batch{.towers = {{.tokens = random_tokens(1, 5, 1)}}};
  batch.towers[0].relations =
      torch::tensor({{0, 3, 2}, {1, 4, 2}, {2, 0, 2}, {3, 1, 2}, {4, 2, 2}}, at::kLong).unsqueeze(0);
  const ModelOutput output = model->forward({.batch = batch, .keep_edges = true});
  ASSERT_EQ(output.edges.size(), 2u);
  for (const EdgeSet& edges : output.edges)
    EXPECT_TRUE(
        at::equal(edges.to_mask(), relations_of(batch.towers[0])->edges.to_mask().expand({1, 2, 5, 5})));
}

}  // namespace
}  // namespace edgewise
