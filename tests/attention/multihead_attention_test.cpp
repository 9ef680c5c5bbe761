// Multi-head attention over edges against dense attention, its own formula written out, and Python's
// parameter names.
#include <edgewise/attention/multihead_attention.h>

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sbm_edges.h>

#include "kit/other_bytes.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

MultiheadEdgeAttention make(EdgeSourcePtr source, bool is_causal = false, double dropout_p = 0) {
  torch::manual_seed(7);
  MultiheadEdgeAttentionOptions options(16, 2);
  options.source = std::move(source);
  options.is_causal = is_causal;
  options.dropout_p = dropout_p;
  return MultiheadEdgeAttention(options);
}

// Item 0 full, item 1 short, item 2 nothing but padding.
at::Tensor ragged_mask() {
  at::Tensor mask = torch::ones({3, 10}, torch::kBool);
  mask[1].slice(0, 6).fill_(false);
  mask[2].fill_(false);
  return mask;
}

TEST(MultiheadEdgeAttention, HasPythonsParameterNamesAndShapes) {
  auto attention = make(nullptr);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& item : attention->named_parameters()) shapes[item.key()] = item.value().sizes().vec();
  const std::map<std::string, std::vector<int64_t>> expected = {{"in_proj_weight", {48, 16}},
                                                                {"in_proj_bias", {48}},
                                                                {"out_proj.weight", {16, 16}},
                                                                {"out_proj.bias", {16}}};
  EXPECT_EQ(shapes, expected);
}

TEST(MultiheadEdgeAttention, StartsAsThreeTorchLinears) {
  torch::manual_seed(1);
  MultiheadEdgeAttention attention(MultiheadEdgeAttentionOptions(64, 2));
  for (const auto& tensor : {attention->in_proj_weight, attention->in_proj_bias}) {
    EXPECT_LE(tensor.abs().max().item<float>(), 0.125f);  // 1 / sqrt(64)
    EXPECT_GT(tensor.abs().max().item<float>(), 0.11f);
  }
  EXPECT_NEAR(attention->in_proj_weight.std().item<double>(), 0.125 / std::sqrt(3.0), 2e-3);
}

TEST(MultiheadEdgeAttention, MaskBytesOtherThanOneAreTrue) {
  const at::Tensor x = kit::randn({3, 10, 16}, 1), mask = ragged_mask();
  for (const EdgeSourcePtr& source :
       {EdgeSourcePtr(), EdgeSourcePtr(std::make_shared<WindowEdges>(2)),
        EdgeSourcePtr(SbmEdges(SbmEdgesOptions(2, 8, SbmPreset::kEdgewise)).ptr())}) {
    auto attention = make(source);
    const AttentionOutput expected = attention->forward(x, mask),
                          found = attention->forward(x, kit::other_bytes(mask));
    EXPECT_TRUE(at::equal(found.output, expected.output));
    if (expected.density.defined()) {
      EXPECT_TRUE(at::equal(found.density, expected.density));
    }
  }
}

// The definition, written out with no shared code: softmax(q k^T / sqrt(D)) v per head, then the output
// projection.
TEST(MultiheadEdgeAttention, DenseIsTheTextbookFormula) {
  auto attention = make(nullptr);
  const at::Tensor x = torch::randn({2, 5, 16});
  const auto parts = (x.matmul(attention->in_proj_weight.t()) + attention->in_proj_bias).chunk(3, 2);
  std::vector<at::Tensor> heads;
  for (int64_t head = 0; head < 2; ++head) {
    const auto slice = [&](const at::Tensor& t) { return t.slice(2, head * 8, head * 8 + 8); };
    const at::Tensor weights =
        (slice(parts[0]).matmul(slice(parts[1]).transpose(1, 2)) / std::sqrt(8.0)).softmax(-1);
    heads.push_back(weights.matmul(slice(parts[2])));
  }
  const at::Tensor expected =
      torch::cat(heads, 2).matmul(attention->out_proj->weight.t()) + attention->out_proj->bias;
  const AttentionOutput found = attention->forward(x);
  EXPECT_TRUE(torch::allclose(found.output, expected, 1e-5, 1e-6));
  EXPECT_TRUE(torch::equal(found.density, torch::ones({2}, torch::kDouble)));
  EXPECT_EQ(found.edge_count.item<int64_t>(), 2 * 2 * 5 * 5);
  EXPECT_FALSE(found.penalty.defined());
}

class FullAgainstDense : public testing::TestWithParam<std::tuple<bool, bool>> {};  // causal, masked

TEST_P(FullAgainstDense, OutputsAndGradientsAgree) {
  const auto [causal, masked] = GetParam();
  auto dense = make(nullptr, causal);
  auto full = make(std::make_shared<FullEdges>(), causal);
  const std::optional<at::Tensor> mask = masked ? std::optional(ragged_mask()) : std::nullopt;
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({3, 10, 16}), weight = torch::randn({3, 10, 16});
  at::Tensor x1 = x.clone().requires_grad_(), x2 = x.clone().requires_grad_();
  const AttentionOutput a = dense->forward(x1, mask), b = full->forward(x2, mask);
  EXPECT_TRUE(torch::allclose(a.output, b.output, 1e-5, 1e-5)) << (a.output - b.output).abs().max();
  EXPECT_EQ(a.edge_count.item<int64_t>(), b.edge_count.item<int64_t>());
  EXPECT_TRUE(torch::allclose(a.density, b.density));
  (a.output * weight).sum().backward();
  (b.output * weight).sum().backward();
  EXPECT_TRUE(torch::allclose(x1.grad(), x2.grad(), 1e-5, 1e-5));
  EXPECT_TRUE(torch::allclose(dense->in_proj_weight.grad(), full->in_proj_weight.grad(), 1e-4, 1e-5));
}
INSTANTIATE_TEST_SUITE_P(All, FullAgainstDense, testing::Combine(testing::Bool(), testing::Bool()));

// A softmax over nothing is where NaN comes from; the row must carry only the output projection's bias.
TEST(MultiheadEdgeAttention, RowsWithoutKeysGiveTheBiasAndNoNan) {
  for (const EdgeSourcePtr& source : {EdgeSourcePtr(), EdgeSourcePtr(std::make_shared<FullEdges>())}) {
    auto attention = make(source);
    at::Tensor x = torch::randn({3, 10, 16}).requires_grad_();
    const at::Tensor output = attention->forward(x, ragged_mask()).output;
    EXPECT_TRUE(torch::equal(output[2], attention->out_proj->bias.expand({10, 16})));
    output.sum().backward();
    EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
    EXPECT_TRUE(torch::equal(x.grad()[2], torch::zeros({10, 16})));
  }
}

TEST(MultiheadEdgeAttention, DropsWeightsOnlyInTraining) {
  for (const EdgeSourcePtr& source : {EdgeSourcePtr(), EdgeSourcePtr(std::make_shared<FullEdges>())}) {
    auto attention = make(source, false, 0.5), plain = make(source);
    const at::Tensor x = torch::randn({2, 10, 16});
    attention->eval();
    EXPECT_TRUE(torch::equal(attention->forward(x).output, plain->forward(x).output));
    attention->train();
    EXPECT_FALSE(torch::allclose(attention->forward(x).output, plain->forward(x).output, 1e-3, 1e-3));
  }
}

TEST(MultiheadEdgeAttention, ReportsDensityOverValidPairsOnly) {
  auto attention = make(std::make_shared<WindowEdges>(0));  // self-loops
  const AttentionOutput found = attention->forward(torch::randn({3, 10, 16}), ragged_mask(), {}, true);
  const double expected = (10.0 + 6.0) / (100.0 + 36.0);
  EXPECT_NEAR(found.density[0].item<double>(), expected, 1e-12);
  EXPECT_EQ(found.edge_count.item<int64_t>(), 2 * 16);
  ASSERT_TRUE(found.edges.has_value());
  EXPECT_EQ(found.edges->edge_count(), 2 * 16);
}

TEST(MultiheadEdgeAttention, PenaltyTeachesTheSbm) {
  for (const DensityPenalty penalty : {DensityPenalty::kExact, DensityPenalty::kSampled}) {
    SbmEdgesOptions options(2, 8);
    options.density_penalty = penalty;
    SbmEdges source(options);
    auto attention = make(source.ptr());
    const AttentionOutput found = attention->forward(torch::randn({3, 10, 16}), ragged_mask(), {.seed = 1});
    ASSERT_TRUE(found.penalty.defined());
    EXPECT_EQ(found.penalty.sizes(), (std::vector<int64_t>{2}));
    found.penalty.sum().backward();
    EXPECT_GT(source->clusters.grad().abs().sum().item<double>(), 0) << to_string(penalty);
  }
}

TEST(MultiheadEdgeAttention, MistakesAreExplained) {
  EXPECT_THROW(MultiheadEdgeAttention(MultiheadEdgeAttentionOptions(10, 3)), c10::ValueError);
  auto attention = make(nullptr);
  EXPECT_THROW(attention->forward(torch::randn({2, 5, 8})), c10::ValueError);
  EXPECT_THROW(attention->forward(torch::randn({2, 5, 16}), torch::ones({2, 4}, torch::kBool)),
               c10::ValueError);
  try {
    attention->forward(torch::randn({2, 5, 16}), torch::ones({2, 5}));
    FAIL();
  } catch (const c10::TypeError& error) {
    EXPECT_THAT(error.what_without_backtrace(), testing::HasSubstr("expected a bool key_mask"));
  }
}

}  // namespace
}  // namespace edgewise
