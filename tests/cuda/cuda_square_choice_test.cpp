// A block model's choice of squares on a GPU: the draws of a CPU, means of groups, counts of pairs, and
// gradients of memberships, each against what a CPU makes of the same request.
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/graph/square_lists.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "edges/sbm/sbm_squares.h"
#include "kit/devices.h"
#include "kit/random_inputs.h"
#include "kit/row_errors.h"
#include "ops/squares/square_choice.h"
#include "ops/squares/square_edge_attention.h"

namespace edgewise::square_choice_on_cuda {
namespace {

class CudaSquareChoice : public kit::CudaTest {};

constexpr int64_t kBatch = 3, kHeads = 4, kQueries = 16 * 61 - 5, kKeys = 16 * 77 - 9;
constexpr EdgeShape kTokens{kBatch, kHeads, kQueries, kKeys};

// Probabilities about 0.3 in the mean, some of them 0 and some above 1.
ops::SquareSampling sampling_of(at::ScalarType dtype, int64_t clusters) {
  ops::SquareSampling sampling;
  sampling.shape = kTokens;
  sampling.query_membership = kit::rand({kBatch, kHeads, 61, clusters}, 1, at::kDouble).pow(3).to(dtype);
  sampling.key_side = (kit::rand({kBatch, kHeads, 77, clusters}, 2, at::kDouble).pow(3) *
                       (5.0 / static_cast<double>(clusters)))
                          .to(dtype);
  sampling.query_membership.select(2, 3).fill_(0);
  sampling.key_side.select(2, 7).fill_(10);
  sampling.options.random = {.seed = 5, .step = 3};
  sampling.options.query_mask = kit::rand({kBatch, 61}, 5, at::kDouble) < 0.8;
  sampling.options.key_mask = kit::rand({kBatch, 77}, 7, at::kDouble) < 0.7;
  return sampling;
}
ops::SquareSampling on_gpu(ops::SquareSampling sampling) {
  sampling.query_membership = sampling.query_membership.cuda();
  sampling.key_side = sampling.key_side.cuda();
  sampling.options.query_mask = sampling.options.query_mask->cuda();
  sampling.options.key_mask = sampling.options.key_mask->cuda();
  return sampling;
}
graph::Squares on_cpu(const graph::Squares& squares) {
  return {squares.shape, squares.begin.cpu(), squares.count.cpu(), squares.cols.cpu()};
}

TEST_F(CudaSquareChoice, DrawsWhatACpuDraws) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat})
    for (const int64_t clusters : {8, 32, 128})
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(c10::str(dtype, ", ", clusters, " clusters, causal: ", causal));
        ops::SquareSampling sampling = sampling_of(dtype, clusters);
        sampling.options.is_causal = causal;
        sampling.options.sampler = Sampler::kDirect;
        const ops::SquareSampling there = on_gpu(sampling);
        ASSERT_EQ(ops::cuda_choice_refusal(there), "");
        const EdgeSet expected =
            sample_sbm_edges(sampling.query_membership, sampling.key_side, sampling.options);
        const EdgeSet found = graph::groups_of_squares(on_cpu(ops::cuda_choose_squares(there).squares));
        EXPECT_GT(expected.edge_count(), 1000);
        EXPECT_TRUE(at::equal(found.row_offsets(), expected.row_offsets()));
        EXPECT_TRUE(at::equal(found.col_indices(), expected.col_indices()));
      }
}

TEST_F(CudaSquareChoice, ProbesAreAbsentAndThoseOfTheirRate) {
  ops::SquareSampling sampling = on_gpu(sampling_of(at::kBFloat16, 32));
  sampling.options.query_mask.reset();
  sampling.probe_rates = {0.1, 0.6, 0.3};
  const ops::ChosenSquares chosen = ops::cuda_choose_squares(sampling);
  const at::Tensor squares = graph::mask_of_squares(on_cpu(chosen.squares)),
                   probes = graph::mask_of_squares(on_cpu(*chosen.probes));
  EXPECT_FALSE(squares.logical_and(probes).any().item<bool>());
  const at::Tensor possible =
      squares.logical_not().logical_and(sampling.options.key_mask->cpu().view({kBatch, 1, 1, 77}));
  EXPECT_TRUE(at::equal(probes.logical_and(possible), probes));
  for (int64_t item = 0; item < kBatch; ++item) {
    const double count = possible[item].sum().item<double>(),
                 rate = sampling.probe_rates[static_cast<size_t>(item)];
    EXPECT_NEAR(probes[item].sum().item<double>() / count, rate, 5 * std::sqrt(rate * (1 - rate) / count));
  }
}

TEST_F(CudaSquareChoice, CountsThePairsOfHeads) {
  const ops::SquareSampling sampling = sampling_of(at::kFloat, 16);
  const graph::Squares there = ops::cuda_choose_squares(on_gpu(sampling)).squares, here = on_cpu(there);
  for (const bool causal : {false, true}) {
    graph::SquarePairs pairs;
    pairs.is_causal = causal, pairs.query_offset = kKeys - kQueries;
    EXPECT_TRUE(at::equal(graph::pairs_per_head(there, pairs).cpu(), graph::pairs_per_head(here, pairs)));
  }
}

TEST_F(CudaSquareChoice, MeansAndTheirGradientsAreThoseOfTorch) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    const auto tokens = [&](int64_t count, int64_t seed) {
      return kit::randn({kBatch, kHeads, count, 40}, seed).to(at::kCUDA, dtype).requires_grad_();
    };
    const at::Tensor query = tokens(kQueries, 1), key = tokens(kKeys, 2);
    const at::Tensor mask = (kit::rand({kBatch, kKeys}, 3) < 0.6).cuda();
    const auto means = ops::cuda_group_means(query, key, std::nullopt, mask);
    ASSERT_TRUE(means);
    const at::Tensor wide_query = query.detach().to(at::kDouble).requires_grad_(),
                     wide_key = key.detach().to(at::kDouble).requires_grad_();
    const at::Tensor expected_query = mean_of_groups(wide_query, std::nullopt),
                     expected_key = mean_of_groups(wide_key, mask);
    const double tolerance = dtype == at::kFloat ? 1e-6 : 1e-2;
    EXPECT_TRUE(at::allclose(means->query.to(at::kDouble), expected_query, tolerance, tolerance));
    EXPECT_TRUE(at::allclose(means->key.to(at::kDouble), expected_key, tolerance, tolerance));
    const at::Tensor query_grad = kit::randn(expected_query.sizes().vec(), 4).to(at::kCUDA, dtype),
                     key_grad = kit::randn(expected_key.sizes().vec(), 5).to(at::kCUDA, dtype);
    // Attention reads the tokens too: its gradient comes through the means.
    const at::Tensor token_grad = kit::randn(query.sizes().vec(), 6).to(at::kCUDA, dtype);
    torch::autograd::backward({means->query, means->key, means->query_tokens},
                              {query_grad, key_grad, token_grad});
    torch::autograd::backward(
        {expected_query, expected_key, wide_query},
        {query_grad.to(at::kDouble), key_grad.to(at::kDouble), token_grad.to(at::kDouble)});
    EXPECT_TRUE(at::allclose(query.grad().to(at::kDouble), wide_query.grad(), tolerance, tolerance));
    EXPECT_TRUE(at::allclose(key.grad().to(at::kDouble), wide_key.grad(), tolerance, tolerance));
  }
}

TEST_F(CudaSquareChoice, NumbersReachMembershipsAsOnACpu) {
  for (const double clip : {0.0, 0.5}) {
    ops::SquareSampling sampling = sampling_of(at::kFloat, 32);
    sampling.probe_rates = {0.1, 0.6, 0.3};
    const ops::ChosenSquares there = ops::cuda_choose_squares(on_gpu(sampling));
    const graph::Squares squares = on_cpu(there.squares), probes = on_cpu(*there.probes);
    const at::Tensor values = kit::randn({squares.cols.size(0)}, 8),
                     probe_values = kit::randn({probes.cols.size(0)}, 9);
    const auto grads = [&](at::Device device, const graph::Squares& present, const graph::Squares& absent) {
      EdgeLearner learner;
      learner.query_membership = sampling.query_membership.to(device);
      learner.key_side = sampling.key_side.to(device);
      learner.probe_rates = sampling.probe_rates;
      learner.gradient_clip = clip;
      learner.probes = EdgeSet::from_trusted_squares(absent, {});
      ops::SquareBackward backward;
      backward.credit = values.to(device), backward.probe_credit = probe_values.to(device);
      return ops::square_membership_grads(learner, EdgeSet::from_trusted_squares(present, {}), backward, {});
    };
    const ops::SquareMembershipGrads found = grads(at::kCUDA, there.squares, *there.probes),
                                     expected = grads(at::kCPU, squares, probes);
    EXPECT_TRUE(at::allclose(found.query.cpu(), expected.query, 1e-4, 1e-4));
    EXPECT_TRUE(at::allclose(found.key_side.cpu(), expected.key_side, 1e-4, 1e-4));
  }
}

}  // namespace
}  // namespace edgewise::square_choice_on_cuda
