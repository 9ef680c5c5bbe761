// Memberships by one kernel on a GPU against the module's own products in fp64.
#include <edgewise/edges/sbm_edges.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/autocast.h"
#include "kit/devices.h"
#include "kit/random_inputs.h"
#include "ops/sample/memberships.h"

namespace edgewise::memberships_on_cuda {
namespace {

class CudaMemberships : public kit::CudaTest {};

double distance(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor wide = expected.to(at::kDouble).cpu();
  return ((found.to(at::kDouble).cpu() - wide).norm() / wide.norm()).item<double>();
}

// Queries and keys side by side, as a projection leaves them: [B, N, 3 H D].
struct Projected {
  at::Tensor all;
  int64_t heads, dim;

  Projected(int64_t batch, int64_t given_heads, int64_t tokens, int64_t given_dim = 32)
      : all(kit::randn({batch, tokens, 3 * given_heads * given_dim}, 1)
                .to(at::kCUDA, at::kBFloat16)
                .requires_grad_()),
        heads(given_heads),
        dim(given_dim) {}
  at::Tensor part(const at::Tensor& from, int64_t n) const {
    return from.unflatten(2, {3, heads, dim}).select(2, n).transpose(1, 2);
  }
  at::Tensor query() const { return part(all, 0); }
  at::Tensor key() const { return part(all, 1); }
};

SbmEdges module(int64_t heads, int64_t dim = 32, int64_t clusters = 32) {
  torch::manual_seed(3);
  SbmEdgesOptions options(heads, dim, SbmPreset::kEdgewise);
  options.clusters = clusters;
  options.cluster_std = 0.3;
  SbmEdges sbm(options);
  // Weights that bf16 holds: rounding them would turn some units of the MLP on or off, each worth a whole
  // gradient.
  const at::NoGradGuard guard;
  for (at::Tensor& p : sbm->parameters()) p.copy_(p.to(at::kBFloat16));
  sbm->to(at::kCUDA);
  return sbm;
}
ops::MembershipInput input_of(const SbmEdges& sbm, const at::Tensor& query, const at::Tensor& key,
                              const std::optional<at::Tensor>& mask = {}) {
  return {query,          key,          mask, mask, sbm->mlp_weight1, sbm->mlp_bias1, sbm->mlp_weight2,
          sbm->mlp_bias2, sbm->clusters};
}

TEST_F(CudaMemberships, AreThoseOfTheModule) {
  for (const auto& [tokens, dim] :
       {std::pair<int64_t, int64_t>{1, 32}, {40, 32}, {513, 32}, {3000, 32}, {1, 64}, {40, 64}, {3000, 64}}) {
    const SbmEdges sbm = module(3, dim);
    const Projected nodes(2, 3, tokens, dim);
    const at::Tensor mask = at::arange(tokens, at::kCUDA).remainder(3).eq(0).expand({2, tokens}),
                     weights = kit::randn({2, 2, 3, tokens, 32}, 5).to(at::kCUDA),
                     of_expected = kit::randn({3}, 6).to(at::kCUDA) / static_cast<double>(tokens);
    const auto loss = [&](const at::Tensor& query, const at::Tensor& side, const at::Tensor& expected) {
      const auto of = [&](const at::Tensor& w) { return w.to(expected.device(), expected.scalar_type()); };
      return (query * of(weights[0])).sum() + (side * of(weights[1])).sum() +
             (expected * of(of_expected)).sum();
    };
    std::vector<at::Tensor> leaves = {nodes.all};
    for (const at::Tensor& p : sbm->parameters()) leaves.push_back(p);
    std::vector<at::Tensor> found, again;
    ops::Memberships memberships;
    for (auto* grads : {&found, &again}) {
      {
        const kit::CudaAutocast autocast;
        const ops::MembershipInput input = input_of(sbm, nodes.query(), nodes.key(), mask);
        ASSERT_TRUE(ops::cuda_takes_memberships(input));
        memberships = ops::cuda_memberships(input);
      }
      *grads = torch::autograd::grad({loss(memberships.query, memberships.key_side, memberships.expected)},
                                     leaves);
    }
    for (size_t n = 0; n < found.size(); ++n)
      EXPECT_TRUE(at::equal(found[n], again[n])) << tokens << " " << n;

    SbmEdges wide = module(3, dim);
    wide->to(at::kCPU, at::kDouble);
    const at::Tensor all = nodes.all.detach().to(at::kCPU, at::kDouble).requires_grad_();
    const at::Tensor query = wide->membership(nodes.part(all, 0)),
                     side = wide->key_side(wide->membership(nodes.part(all, 1)));
    const at::Tensor valid = mask.to(at::kCPU, at::kDouble).view({2, 1, tokens, 1});
    const at::Tensor edges = ((query * valid).sum(2) * (side * valid).sum(2)).sum(2).sum(0);
    EXPECT_LT(distance(memberships.query, query), 4e-3) << tokens;
    EXPECT_LT(distance(memberships.key_side, side), 6e-3) << tokens;
    EXPECT_LT(distance(memberships.expected, edges), 6e-3) << tokens;
    std::vector<at::Tensor> wide_leaves = {all};
    for (const at::Tensor& p : wide->parameters()) wide_leaves.push_back(p);
    const auto expected = torch::autograd::grad({loss(query, side, edges)}, wide_leaves);
    for (size_t n = 0; n < expected.size(); ++n)
      EXPECT_LT(distance(found[n], expected[n]), 1e-2) << tokens << " " << n;
  }
}

TEST_F(CudaMemberships, GiveAChoiceItsPenalty) {
  SbmEdges sbm = module(2);
  const Projected nodes(2, 2, 200);
  EdgeRequest request;
  request.query = nodes.query(), request.key = nodes.key();
  request.key_mask = (at::arange(200, at::kCUDA) < 150).expand({2, 200});
  EdgeChoice choice;
  {
    const kit::CudaAutocast autocast;
    choice = sbm->choose(request);
  }
  const auto counted = [&](const at::Tensor& x) {
    return x.to(at::kDouble).masked_fill(request.key_mask->logical_not().view({2, 1, 200, 1}), 0).sum(2);
  };
  const at::Tensor expected =
      (counted(choice.learner->query_membership) * counted(choice.learner->key_side)).sum(2).sum(0) /
      (2.0 * 150 * 150);
  EXPECT_LT(distance(choice.density_penalty, expected), 1e-5);
  const auto grads = torch::autograd::grad({choice.density_penalty.sum()}, {nodes.all, sbm->clusters});
  EXPECT_GT(grads[0].abs().sum().item<double>(), 0);
  EXPECT_GT(grads[1].abs().sum().item<double>(), 0);
}

TEST_F(CudaMemberships, OfOtherShapesAreLeftToTorch) {
  const Projected nodes(1, 2, 50);
  EXPECT_FALSE(ops::cuda_takes_memberships(input_of(module(2), nodes.query(), nodes.key())));  // no autocast
  const kit::CudaAutocast autocast;
  EXPECT_TRUE(ops::cuda_takes_memberships(input_of(module(2), nodes.query(), nodes.key())));
  EXPECT_FALSE(ops::cuda_takes_memberships(input_of(module(2, 32, 16), nodes.query(), nodes.key())));
  // What does not fit together is left to those who say so.
  const auto with_mask = [&](const at::Tensor& mask) {
    return ops::cuda_takes_memberships(input_of(module(2), nodes.query(), nodes.key(), mask));
  };
  EXPECT_TRUE(with_mask(at::ones({1, 50}, at::TensorOptions(at::kCUDA).dtype(at::kBool))));
  EXPECT_FALSE(with_mask(at::ones({1, 49}, at::TensorOptions(at::kCUDA).dtype(at::kBool))));
  EXPECT_FALSE(with_mask(at::ones({1, 50}, at::kBool)));
  EXPECT_FALSE(ops::cuda_takes_memberships(input_of(module(2), nodes.query(), Projected(2, 2, 50).key())));
  const at::Tensor wide = at::zeros({1, 2, 50, 128}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  EXPECT_FALSE(ops::cuda_takes_memberships(input_of(module(2, 128), wide, wide)));
  EXPECT_FALSE(ops::cuda_takes_memberships(
      input_of(module(2), nodes.query().to(at::kFloat), nodes.key().to(at::kFloat))));
}

}  // namespace
}  // namespace edgewise::memberships_on_cuda
