// The operation that Python calls gives, bit for bit, what the C++ modules give: output, penalty, density and
// the gradients of all parameters.
#include <edgewise/attention/multihead_attention.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sbm_edges.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/random_inputs.h"
#include "ops/layers/state_rows.h"
#include "python/source_attention.h"

namespace edgewise {
namespace sbm_operation {

constexpr int64_t kHeads = 2, kDim = 8, kTokens = 40, kItems = 3;

struct Case {
  const char* preset;
  int64_t unit;
  bool is_causal, masked, training;
  int64_t window;
};

std::string name_of(const Case& c) {
  return std::string(c.preset) + "_unit" + std::to_string(c.unit) + (c.is_causal ? "_causal" : "") +
         (c.masked ? "_masked" : "") + (c.training ? "_training" : "_evaluation") +
         (c.window >= 0 ? "_window" : "");
}

class SbmOperation : public testing::TestWithParam<Case> {};

TEST_P(SbmOperation, IsTheModuleBitForBit) {
  const Case& c = GetParam();
  torch::manual_seed(3);
  SbmEdgesOptions sbm(kHeads, kDim, parse_sbm_preset(c.preset), c.unit);
  SbmEdges source(sbm);
  MultiheadEdgeAttentionOptions options(kHeads * kDim, kHeads);
  options.is_causal = c.is_causal;
  options.dropout_p = 0.1;
  options.source = source.ptr();
  if (c.window >= 0)
    options.source = std::make_shared<UnionEdges>(
        std::vector<EdgeSourcePtr>{std::make_shared<WindowEdges>(c.window, c.unit), source.ptr()});
  MultiheadEdgeAttention module(options);
  module->train(c.training);
  const at::Tensor x = kit::randn({kItems, kTokens, kHeads * kDim}, 1);
  std::optional<at::Tensor> mask;
  if (c.masked) {
    mask = torch::ones({kItems, kTokens}, torch::kBool);
    (*mask)[1].slice(0, 21).fill_(false);
  }
  const AttentionOutput expected =
      module->forward(x, mask, {.seed = 5, .step = 2, .layer = 1, .first_item = 4});
  const at::Tensor weight = kit::randn({kItems, kTokens, kHeads * kDim}, 2);
  ((expected.output * weight).sum() + 0.3 * expected.penalty.sum()).backward();

  const std::vector<at::Tensor> parameters = {source->clusters, source->mlp_weight1, source->mlp_bias1,
                                              source->mlp_weight2, source->mlp_bias2};
  const auto heads = ops::linear(x, module->in_proj_weight, module->in_proj_bias)
                         .detach()
                         .view({kItems, kTokens, 3, kHeads, kDim})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);
  const at::Tensor seed = torch::tensor({5, 2, 1, 4}, torch::kLong);
  std::string text = "preset=" + std::string(c.preset) + " unit=" + std::to_string(c.unit);
  if (c.window >= 0) text += " window=" + std::to_string(c.window);
  const double dropout_p = c.training ? 0.1 : 0;
  auto [output, penalty, density, tape] =
      python::sbm_attention(heads[0], heads[1], heads[2], parameters, mask, seed, text, c.training,
                            c.is_causal, std::nullopt, dropout_p, std::nullopt, /*keep=*/true);
  output.requires_grad_();
  const at::Tensor projected =
      ops::linear(output.transpose(1, 2).flatten(2), module->out_proj->weight, module->out_proj->bias);
  EXPECT_TRUE(torch::equal(projected, expected.output));
  EXPECT_TRUE(torch::equal(penalty, expected.penalty.to(torch::kFloat)));
  EXPECT_TRUE(torch::equal(density, expected.density));
  EXPECT_GT(density.min().item<double>(), 0);

  const at::Tensor grad = torch::autograd::grad({(projected * weight).sum()}, {output})[0];
  // With its tape, and with the work done again.
  for (const at::Tensor& ticket : {tape, torch::zeros({1}, torch::kLong)}) {
    const auto [query, key, value, learned] = python::sbm_attention_backward(
        grad, torch::full({kHeads}, 0.3), ticket, heads[0], heads[1], heads[2], parameters, mask, seed, text,
        c.training, c.is_causal, std::nullopt, dropout_p, std::nullopt);
    for (size_t n = 0; n < parameters.size(); ++n)
      EXPECT_TRUE(torch::equal(learned[n], parameters[n].grad())) << "parameter " << n;
    // Of the projection: its weight's gradient is made of those of query, key and value.
    const at::Tensor grads =
        torch::stack({query, key, value}).permute({1, 3, 0, 2, 4}).reshape({kItems * kTokens, -1});
    const at::Tensor in_proj = torch::matmul(grads.t(), x.reshape({kItems * kTokens, -1}));
    EXPECT_TRUE(torch::allclose(in_proj, module->in_proj_weight.grad(), 1e-4, 1e-5));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Presets, SbmOperation,
    testing::Values(Case{"edgewise", 1, false, false, true, -1}, Case{"edgewise", 1, true, false, true, -1},
                    Case{"edgewise", 1, false, true, true, 3}, Case{"edgewise", 1, false, true, false, -1},
                    Case{"edgewise", 16, false, false, true, -1}, Case{"edgewise", 16, false, true, true, 5},
                    Case{"edgewise", 16, true, false, true, 0}, Case{"edgewise", 16, true, true, false, 0},
                    Case{"paper", 1, false, false, true, -1}, Case{"paper", 1, true, true, true, -1},
                    Case{"published", 1, false, false, true, -1}, Case{"published", 1, false, true, true, -1},
                    Case{"published", 1, false, true, false, -1}),
    [](const auto& each) { return name_of(each.param); });

}  // namespace sbm_operation
}  // namespace edgewise
