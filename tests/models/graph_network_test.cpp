// Graph attention networks: equations on dense matrices, gradients, parameters, learned edges.
#include <edgewise/edges/graph_edges.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/models/graph_network.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/small_graph.h"

namespace edgewise {
namespace {

ModelInput small_batch(bool keep_edges = false) {
  return {.batch = {.towers = {{.tokens = torch::arange(7).unsqueeze(0), .graph = kit::small_input()}}},
          .random = {.seed = 2},
          .keep_edges = keep_edges};
}

GraphNetworkOptions options_of(int64_t features, int64_t classes) {
  GraphNetworkOptions options;
  options.features = features, options.classes = classes;
  return options;
}
GraphNetworkOptions small_options() {
  GraphNetworkOptions options = options_of(4, 3);
  options.dim = 6, options.heads = 2;
  options.dropout = options.attention_dropout = 0;
  return options;
}

// A layer as the paper has it, over the whole matrix. With dropout the global generator is asked as the layer
// asks it: x for every head, then z as what is summed; scores read z before its dropout.
at::Tensor dense_layer(GraphAttentionImpl& layer, const at::Tensor& x, double dropout = 0) {
  at::Tensor mask = torch::eye(7, at::kBool);
  const at::Tensor edges = kit::small_edges().to(at::kLong);
  mask.index_put_({edges.select(1, 0), edges.select(1, 1)}, torch::ones({}, at::kBool));
  mask = mask | mask.t();
  std::vector<at::Tensor> heads, all_z;
  const int64_t dim = layer.options.head_dim, count = layer.options.heads;
  const at::Tensor seen = torch::dropout(x.unsqueeze(0).expand({count, -1, -1}), dropout, true);
  for (int64_t h = 0; h < count; ++h)
    all_z.push_back(at::mm(seen[h], layer.weight.slice(1, h * dim, (h + 1) * dim)));
  const at::Tensor values = torch::dropout(at::stack(all_z), dropout, true);
  for (int64_t h = 0; h < count; ++h) {
    const at::Tensor& z = all_z[static_cast<size_t>(h)];
    at::Tensor scores;
    if (layer.score_weight.defined()) {
      scores = at::mm(at::mm(z, layer.score_weight[h]), z.t()) / std::sqrt(static_cast<double>(dim));
    } else {
      const at::Tensor left = at::mv(z, layer.query_weight[h]) + layer.query_bias[h],
                       right = at::mv(z, layer.key_weight[h]) + layer.key_bias[h];
      scores = at::leaky_relu(left.unsqueeze(1) + right.unsqueeze(0), 0.2);
    }
    heads.push_back(at::mm(scores.masked_fill(mask.logical_not(), -INFINITY).softmax(1), values[h]));
  }
  const at::Tensor output = layer.options.concatenate ? at::cat(heads, 1) : at::stack(heads).mean(0);
  at::Tensor result = output + layer.bias;
  if (layer.options.skip) result = result + (layer.skip.is_empty() ? x : layer.skip->forward(x));
  return result;
}

TEST(GraphNetwork, EqualsThePapersEquationsOnDenseMatrices) {
  for (const int form : {0, 1, 2, 3}) {
    const bool with_skip = form % 2 == 1;
    torch::manual_seed(3);
    GraphNetworkOptions options = small_options();
    options.layers = 3, options.output_heads = 2;
    options.skip = with_skip ? GraphSkip::kAll : GraphSkip::kNone;
    options.learned_skip = form == 3;
    options.scores = form >= 2 ? GraphScores::kDot : GraphScores::kAdditive;
    GraphNetwork model(options);
    EXPECT_EQ(model->layers[1]->skip.is_empty(), form != 3) << "from 6 to 6 numbers";
    model->to(at::kDouble);
    torch::NoGradGuard no_grad;
    for (auto& item : model->named_parameters())
      if (item.key().ends_with("bias")) item.value().normal_();
    at::Tensor x = kit::small_features().to(at::kDouble);
    for (size_t n = 0; n < 3; ++n) {
      x = dense_layer(*model->layers[n], x);
      if (n < 2) x = torch::elu(x);
    }
    EXPECT_TRUE(at::allclose(model->forward(small_batch()).logits, x.unsqueeze(0), 1e-10, 1e-12));
  }
}

// Dropout of x, anew for every head, and of z, behind the scores.
TEST(GraphAttention, DropsWhatTheAuthorsDrop) {
  for (const GraphScores scores : {GraphScores::kAdditive, GraphScores::kDot}) {
    torch::manual_seed(7);
    GraphAttentionOptions options;
    options.in_features = 4, options.head_dim = 3, options.heads = 2, options.dropout = 0.5;
    options.scores = scores;
    GraphAttention layer(options);
    layer->to(at::kDouble);
    const auto graph = kit::small_input();
    GraphAttentionInput input;
    input.x = kit::small_features().to(at::kDouble);
    input.relations = &graph->on(at::kCPU, at::kDouble).relations;
    torch::NoGradGuard no_grad;
    torch::manual_seed(9);
    const at::Tensor found = layer->forward(input).output;
    torch::manual_seed(9);
    EXPECT_TRUE(at::allclose(found, dense_layer(*layer, input.x, 0.5), 1e-10, 1e-12));
    EXPECT_FALSE(at::allclose(found, dense_layer(*layer, input.x), 1e-2, 1e-2));
  }
}

TEST(GraphNetwork, GradientsMatchFiniteDifferences) {
  torch::manual_seed(5);
  GraphNetworkOptions options = small_options();
  options.layers = 3, options.norm = true, options.skip = GraphSkip::kHidden;
  GraphNetwork model(options);
  model->to(at::kDouble);
  {
    // Node 6 has no features: without biases its LayerNorm would divide by nothing but epsilon.
    torch::NoGradGuard no_grad;
    for (auto& item : model->named_parameters())
      if (item.key().ends_with("bias")) item.value().normal_();
  }
  const at::Tensor direction = torch::randn({1, 7, 3}, at::kDouble);
  const auto loss = [&] { return (model->forward(small_batch()).logits * direction).sum(); };
  loss().backward();
  torch::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  for (const auto& item : model->named_parameters()) {
    at::Tensor flat = item.value().view(-1);
    const at::Tensor gradient = item.value().grad().view(-1);
    for (int64_t i = 0; i < flat.numel(); i += std::max<int64_t>(1, flat.numel() / 6)) {
      const double value = flat[i].item<double>();
      flat[i] = value + kStep;
      const double above = loss().item<double>();
      flat[i] = value - kStep;
      const double below = loss().item<double>();
      flat[i] = value;
      EXPECT_NEAR(gradient[i].item<double>(), (above - below) / (2 * kStep), 1e-6) << item.key() << " " << i;
    }
  }
}

// 92,391 on Cora, as the authors' code has.
TEST(GraphNetwork, HasTheAuthorsParameters) {
  const auto count = [](const GraphNetworkOptions& options) {
    int64_t total = 0;
    for (const at::Tensor& each : GraphNetwork(options)->parameters()) total += each.numel();
    return total;
  };
  EXPECT_EQ(count(options_of(1433, 7)), 92391);
  EXPECT_EQ(count(options_of(3703, 6)), 237604);
}

TEST(GraphNetwork, DropoutIsDrawnInTrainingAloneAndRepeats) {
  GraphNetworkOptions options = small_options();
  options.dropout = options.attention_dropout = 0.5;
  GraphNetwork model(options);
  const auto logits = [&] {
    torch::manual_seed(1);
    return model->forward(small_batch()).logits;
  };
  const at::Tensor drawn = logits();
  EXPECT_TRUE(at::equal(drawn, logits()));
  model->eval();
  EXPECT_FALSE(at::allclose(drawn, logits()));
  EXPECT_TRUE(at::equal(logits(), model->forward(small_batch()).logits));
}

// The graph's edges stay; every parameter of the block models learns; edges of the graph get no credit.
TEST(GraphNetwork, LearnsEdgesBesideTheGraphs) {
  torch::manual_seed(2);
  GraphNetworkOptions options = small_options();
  options.edges_learn = true;
  options.edges = [](int64_t layer) -> EdgeSourcePtr {
    SbmEdgesOptions sbm(/*num_heads=*/layer == 0 ? 2 : 1, /*head_dim=*/3);
    sbm.clusters = 4, sbm.probe_unit = 1, sbm.probe_rate = 0.5;
    return std::make_shared<UnionEdges>(
        std::vector<EdgeSourcePtr>{std::make_shared<GraphEdges>(), SbmEdges(sbm).ptr()});
  };
  GraphNetwork model(options);
  const ModelOutput output = model->forward(small_batch(true));
  const at::Tensor graph = kit::small_input()->on(at::kCPU).relations.edges.to_mask();
  ASSERT_EQ(output.edges.size(), 2u);
  for (const EdgeSet& edges : output.edges)
    EXPECT_TRUE((edges.to_mask() | graph.logical_not()).all().item<bool>());
  EXPECT_EQ(output.edges[0].shape().heads, 2);
  EXPECT_EQ(output.edges[1].shape().heads, 1);
  EXPECT_EQ(output.densities.sizes(), (std::vector<int64_t>{2, 2}));
  (output.logits.square().sum() + output.penalty).backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    if (item.key().find("edges") != std::string::npos) {
      EXPECT_GT(item.value().grad().abs().sum().item<double>(), 0) << item.key();
    }
  }
}

}  // namespace
}  // namespace edgewise
