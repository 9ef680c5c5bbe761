// The CUDA sampler draws the edges of the CPU's direct sampler, bit for bit.
#include <edgewise/ops/sample.h>

#include <gtest/gtest.h>

#include "kit/devices.h"
#include "kit/random_inputs.h"
#include "ops/cuda_impl.h"

namespace edgewise {
namespace {

class CudaSample : public kit::CudaTest {};

TEST_F(CudaSample, EqualsTheDirectSamplerOnCpu) {
  for (const int64_t clusters : {3, 32, 128})
    for (const EdgeLaw law : {EdgeLaw::kBernoulli, EdgeLaw::kPoisson})
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
        for (const bool restricted : {false, true}) {
          const at::Tensor queries = kit::rand({2, 3, 150, clusters}, 1, dtype);
          const at::Tensor keys = (kit::rand({2, 3, 170, clusters}, 2) * 1.5 / clusters).to(dtype);
          SampleOptions options;
          options.law = law;
          options.sampler = Sampler::kDirect;
          options.exploration = 0.01;
          options.random = {.seed = 5, .step = 7, .layer = 1};
          if (restricted) {
            options.is_causal = true;
            options.key_mask = kit::rand({2, 170}, 3) < 0.8;
            options.query_mask = kit::rand({2, 150}, 4) < 0.8;
          }
          const EdgeSet expected = sample_sbm_edges(queries, keys, options);
          EXPECT_EQ(ops::cuda_sample_refusal(queries.cuda(), expected.shape(), options.sampler), "");
          const EdgeSet found = sample_sbm_edges(queries.cuda(), keys.cuda(), options);
          EXPECT_FALSE(found.has_csr());
          EXPECT_TRUE(at::equal(found.edges_per_head().cpu(), expected.edges_per_head()));
          EXPECT_TRUE(at::equal(found.col_indices().cpu(), expected.col_indices()))
              << clusters << to_string(law) << dtype << restricted;
          EXPECT_TRUE(at::equal(found.row_offsets().cpu(), expected.row_offsets()));
        }
}

TEST_F(CudaSample, DrawsProbesAtTheirRateAndOnlyAmongAbsentPairs) {
  const at::Tensor queries = kit::rand({2, 4, 512, 32}, 1).cuda(),
                   keys = (kit::rand({2, 4, 512, 32}, 2) / 32).cuda();
  SampleOptions options;
  options.random = {.seed = 5};
  options.key_mask = (kit::rand({2, 512}, 3) < 0.8).cuda();
  const EdgeSet edges = sample_sbm_edges(queries, keys, options);
  const EdgeSet probes = sample_probe_edges(edges, {0.02, 0.3}, options);
  EXPECT_FALSE(probes.has_csr());
  const at::Tensor absent = edges.to_mask().logical_not().logical_and(options.key_mask->view({2, 1, 1, 512}));
  EXPECT_EQ(probes.to_mask().logical_and(absent.logical_not()).sum().item<int64_t>(), 0);
  for (int64_t item = 0; item < 2; ++item) {
    const double rate = item == 0 ? 0.02 : 0.3, count = absent[item].sum().item<double>();
    const double found = probes.to_mask()[item].sum().item<double>();
    EXPECT_NEAR(found, rate * count, 5 * std::sqrt(rate * (1 - rate) * count));
  }
}

}  // namespace
}  // namespace edgewise
