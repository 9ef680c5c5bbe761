// The edges of Reformer against sets built token by token.
#include <edgewise/edges/bucket_edges.h>

#include <algorithm>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/devices.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

constexpr int64_t kRounds = 3, kChunk = 5;

EdgeRequest request_of(int64_t batch, int64_t length, std::optional<at::Tensor> mask,
                       bool is_causal = false) {
  const at::Tensor query = kit::randn({batch, 2, length, 4}, 1);
  return {query, query, std::move(mask), is_causal, {.seed = 3, .step = 2, .layer = 1, .first_item = 4}};
}

at::Tensor ragged(int64_t length) {  // full, a hole, one token, padding only
  at::Tensor mask = torch::ones({4, length}, torch::kBool);
  mask[1].slice(0, 3, 8).fill_(false);
  mask[2].slice(0, 1).fill_(false);
  mask[3].fill_(false);
  return mask;
}

// One head of one item, as the header says it.
at::Tensor plain_edges(const at::Tensor& buckets, const at::Tensor& valid, bool is_causal) {
  const int64_t length = valid.size(0);
  at::Tensor edges = torch::zeros({length, length}, torch::kBool);
  for (int64_t r = 0; r < buckets.size(0); ++r) {
    std::vector<std::pair<int64_t, int64_t>> sorted;  // (bucket, position)
    for (int64_t i = 0; i < length; ++i)
      if (valid[i].item<bool>()) sorted.emplace_back(buckets[r][i].item<int64_t>(), i);
    std::sort(sorted.begin(), sorted.end());
    for (size_t a = 0; a < sorted.size(); ++a)
      for (size_t b = 0; b < sorted.size(); ++b) {
        const auto [bucket_a, i] = sorted[a];
        const auto [bucket_b, j] = sorted[b];
        const size_t chunk_a = a / kChunk, chunk_b = b / kChunk;
        const bool near = chunk_a == chunk_b || chunk_a == chunk_b + 1;
        if (near && bucket_a == bucket_b && i != j && (!is_causal || j < i)) edges[i][j] = true;
      }
  }
  for (int64_t i = 0; i < length; ++i)
    if (valid[i].item<bool>() && !edges[i].any().item<bool>()) edges[i][i] = true;
  return edges;
}

class BucketEdgesOf : public testing::TestWithParam<std::tuple<int64_t, bool>> {};  // length, causal

TEST_P(BucketEdgesOf, AreTheUnionOverRounds) {
  const auto [length, causal] = GetParam();
  BucketEdges source(BucketEdgesOptions{.rounds = kRounds, .chunk = kChunk});
  const EdgeRequest request = request_of(4, length, ragged(length), causal);
  const EdgeSet edges = source->choose(request).edges;
  // What was built unchecked passes the checks.
  EdgeSet::from_csr(edges.shape(), edges.row_offsets(), edges.col_indices());
  const at::Tensor found = edges.to_mask(), buckets = source->buckets(request);
  for (int64_t b = 0; b < 4; ++b)
    for (int64_t h = 0; h < 2; ++h)
      EXPECT_TRUE(torch::equal(found[b][h], plain_edges(buckets[b][h], ragged(length)[b], causal)))
          << "item " << b << " head " << h;
}
// Multiples of the chunk, none, and less than one chunk.
INSTANTIATE_TEST_SUITE_P(Lengths, BucketEdgesOf,
                         testing::Combine(testing::Values(30, 33, 9), testing::Bool()));

TEST(BucketEdges, AnItemDependsOnNeitherMatesNorPadding) {
  BucketEdges source(BucketEdgesOptions{.rounds = kRounds, .chunk = kChunk});
  const EdgeRequest whole = request_of(4, 33, ragged(33));
  const at::Tensor expected = source->choose(whole).edges.to_mask();
  EdgeRequest alone = whole;
  alone.query = alone.key = whole.query.slice(0, 1, 2);
  alone.key_mask = whole.key_mask->slice(0, 1, 2);
  alone.random.first_item += 1;
  EXPECT_TRUE(torch::equal(source->choose(alone).edges.to_mask()[0], expected[1]));
  EdgeRequest longer = whole;
  longer.query = longer.key = torch::cat({whole.query, kit::randn({4, 2, 20, 4}, 8)}, 2);
  longer.key_mask = torch::cat({*whole.key_mask, torch::zeros({4, 20}, torch::kBool)}, 1);
  const at::Tensor found = source->choose(longer).edges.to_mask();
  EXPECT_TRUE(torch::equal(found.slice(2, 0, 33).slice(3, 0, 33), expected));
  EXPECT_EQ(found.sum().item<int64_t>(), expected.sum().item<int64_t>());
}

TEST(BucketEdges, HashByAngleAndDrawAnew) {
  BucketEdges source(BucketEdgesOptions{.rounds = kRounds, .chunk = kChunk});
  EdgeRequest request = request_of(2, 30, std::nullopt);
  request.query.select(2, 1).copy_(request.query.select(2, 0) * 3);
  request.query.select(2, 2).copy_(-request.query.select(2, 0));
  const at::Tensor found = source->buckets(request);
  ASSERT_EQ(found.sizes(), (std::vector<int64_t>{2, 2, kRounds, 30}));
  EXPECT_TRUE(torch::equal(found.select(3, 0), found.select(3, 1)));
  EXPECT_TRUE(
      torch::equal((found.select(3, 0) + 6).remainder(12), found.select(3, 2)));  // 2 * 30 / 5 buckets
  // Every item and head has rotations of its own: the same vectors fall into other buckets.
  EdgeRequest same = request;
  same.query = request.query.slice(0, 0, 1).slice(1, 0, 1).expand({2, 2, 30, 4}).contiguous();
  const at::Tensor apart = source->buckets(same);
  EXPECT_FALSE(torch::equal(apart[0][0], apart[0][1]));
  EXPECT_FALSE(torch::equal(apart[0][0], apart[1][0]));
  request.random.step += 1;
  EXPECT_FALSE(torch::equal(found, source->buckets(request)));
}

TEST(BucketEdges, NumberOfEdgesIsLinearInTheLength) {
  BucketEdges source(BucketEdgesOptions{.rounds = 2, .chunk = 16});
  for (const int64_t length : {256, 1024}) {
    const EdgeSet edges = source->choose(request_of(1, length, std::nullopt)).edges;
    EXPECT_LE(edges.edge_count(), 2 * length * 2 * 2 * 16) << length;
    EXPECT_GE(edges.edge_count(), 2 * length) << length;
  }
}

TEST(BucketEdges, EmptyRequestsAndMistakes) {
  BucketEdges source;
  const EdgeRequest none = request_of(0, 5, std::nullopt);
  EXPECT_EQ(source->choose(none).edges.edge_count(), 0);
  EdgeRequest uneven = request_of(1, 6, std::nullopt);
  uneven.key = uneven.key.slice(2, 0, 4);
  EXPECT_THROW(source->choose(uneven), c10::ValueError);
  EXPECT_THROW(BucketEdges(BucketEdgesOptions{.rounds = 0, .chunk = 4}), c10::ValueError);
}

class BucketEdgesOn : public kit::DeviceTest {};
TEST_P(BucketEdgesOn, EveryDevice) {
  BucketEdges source(BucketEdgesOptions{.rounds = kRounds, .chunk = kChunk});
  EdgeRequest request = request_of(4, 33, ragged(33));
  const at::Tensor expected = source->choose(request).edges.to_mask();
  request.query = request.key = request.query.to(device());
  request.key_mask = request.key_mask->to(device());
  const EdgeSet edges = source->choose(request).edges;
  EXPECT_EQ(edges.device().type(), device().type());
  EXPECT_TRUE(torch::equal(edges.to_mask().cpu(), expected));
}
INSTANTIATE_TEST_SUITE_P(Devices, BucketEdgesOn, kit::devices(), kit::device_name);

}  // namespace
}  // namespace edgewise
