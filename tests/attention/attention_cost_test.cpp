// The formulas of attention/cost.h against what torch is seen to run.
#include <edgewise/attention/attention_cost.h>

#include <gtest/gtest.h>

#include <edgewise/edges/bucket_edges.h>
#include <edgewise/edges/sbm_edges.h>

#include "attention/method_inputs.h"
#include "kit/multiply_adds.h"

namespace edgewise {
namespace {

using namespace kit;

double multiply_adds(const Operations& operations) {
  return flops(operations) / 2;
}

constexpr int64_t kLength = 24;
constexpr double kN = kLength, kD = kDim;

double counted(const AttentionMethodPtr& method, int64_t length = kLength) {
  const MethodInput input = method_input(1, length, std::nullopt);
  return MultiplyAdds::of([&] { method->attend(input); }) / kHeads;
}

TEST(Cost, OfEveryMethodIsWhatTorchRuns) {
  constexpr MethodMode kPaper = MethodMode::kPaper, kHarness = MethodMode::kHarness;
  EXPECT_EQ(counted(linear<kPaper>()), multiply_adds(linear_operations(kN, kD, true)));
  EXPECT_EQ(counted(linear<kHarness>()), multiply_adds(linear_operations(kN, kD, false)));
  for (const auto& method : {performer<kPaper>(), performer<kHarness>()})
    EXPECT_EQ(counted(method), multiply_adds(performer_operations(kN, kD, 6)));
  for (const auto& method : {linformer<kPaper>(), linformer<kHarness>()})
    EXPECT_EQ(counted(method), multiply_adds(linformer_operations(kN, kD, 5)));
  for (const auto& method : {nystromformer<kPaper>(), nystromformer<kHarness>()})
    EXPECT_EQ(counted(method), multiply_adds(nystrom_operations(kN, kD, 4, 6, 3)));
  EXPECT_EQ(counted(reformer()), multiply_adds(reformer_operations(kN, kD, 3, 4, kHeads)));
  EXPECT_EQ(counted(reformer(), 3), multiply_adds(reformer_operations(3, kD, 3, 4, kHeads)));
}

TEST(Cost, OfDenseAttentionIsWhatTorchRuns) {
  const MethodInput input = method_input(1, kLength, std::nullopt);
  const double found =
      MultiplyAdds::of([&] { at::_scaled_dot_product_attention_math(input.query, input.key, input.value); });
  EXPECT_EQ(found / kHeads, multiply_adds(dense_operations(kN, kD)));
}

// Of SbmEdges and BucketEdges all but the edges, which our kernels sample and attend over.
TEST(Cost, OfChoosingEdgesIsWhatTorchRuns) {
  const MethodInput input = method_input(1, kLength, std::nullopt);
  const EdgeRequest request{
      input.query.to(at::kFloat), input.query.to(at::kFloat), std::nullopt, false, {.seed = 1}};
  SbmEdgesOptions options(kHeads, kDim);
  options.clusters = 6;
  SbmEdges sbm(options);
  EXPECT_EQ(MultiplyAdds::of([&] { sbm->choose(request); }) / kHeads,
            multiply_adds(sbm_operations(kN, kD, 6, 0, SamplingCost::kPerEdge)));
  BucketEdges buckets(BucketEdgesOptions{.rounds = 3, .chunk = 5});
  EXPECT_EQ(MultiplyAdds::of([&] { buckets->choose(request); }) / kHeads,
            multiply_adds(bucket_operations(kN, kD, 3, 5)));
}

// Known values: 128 clusters and head dim 32 at 1, 5 and 26 % density, over dense attention, without the key
// side and the sampling.
TEST(Cost, OfTheSbmMatchesKnownValues) {
  const auto ratio = [](double n, double density) {
    double sum = multiply_adds(edge_operations(n, 32, density));
    for (const Operation& operation : sbm_operations(n, 32, 128, density, SamplingCost::kPerEdge))
      if (operation.name != "key side" && operation.name != "sampling, per edge")
        sum += operation.multiply_adds;
    return sum / multiply_adds(dense_operations(n, 32));
  };
  EXPECT_NEAR(ratio(1024, 0.01), 0.205, 6e-4);
  EXPECT_NEAR(ratio(1024, 0.26), 0.455, 6e-4);
  EXPECT_NEAR(ratio(2048, 0.05), 0.146, 6e-4);
  EXPECT_NEAR(ratio(4096, 0.26), 0.307, 6e-4);
  const double direct = multiply_adds(sbm_operations(1024, 32, 128, 0.1, SamplingCost::kDirect)),
               per_edge = multiply_adds(sbm_operations(1024, 32, 128, 0.1, SamplingCost::kPerEdge));
  EXPECT_NEAR(direct - per_edge, 0.9 * 1024 * 1024 * 128, 1);
}

}  // namespace
}  // namespace edgewise
