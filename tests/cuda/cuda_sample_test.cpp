// The CUDA sampler draws the edges of the CPU's direct sampler, bit for bit.
#include <edgewise/ops/sample.h>

#include <gtest/gtest.h>

#include <ATen/ops/constant_pad_nd.h>

#include "graph/edge_plan.h"
#include "kit/devices.h"
#include "kit/probe_options.h"
#include "kit/random_inputs.h"
#include "ops/sample/cuda_sampling.h"

namespace edgewise::sampling_on_cuda {
namespace {

using graph::EdgePlan;

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

// Probes in units are those of the CPU, and the flags by queries and by keys name their squares.
TEST_F(CudaSample, DrawsTheUnitsOfTheCpu) {
  const EdgeShape shape{2, 3, 150, 290};
  const EdgeSet edges = EdgeSet::from_mask(kit::random_mask(shape, 0.2, 1)), on_device = edges.to(at::kCUDA);
  for (const bool restricted : {false, true})
    for (const bool tiles : {false, true}) {
      const SampleOptions options = kit::probe_options(shape, restricted);
      const EdgeSet expected = sample_probe_edges(edges, {0.1, 0.3}, options);
      const EdgeSet found = sample_probe_edges(
          tiles ? EdgeSet::from_trusted_tiles(shape, on_device.tiles()) : on_device, {0.1, 0.3}, options);
      EXPECT_TRUE(at::equal(found.to_mask().cpu(), expected.to_mask())) << restricted << tiles;
      ASSERT_EQ(EdgePlan::of(found).units() != nullptr, tiles);
      if (!tiles || restricted) continue;
      // Every square that exists, by the probes it holds; none of them is without absent pairs.
      const auto flags = [](const at::Tensor& mask) {  // [B*H, squares, squares]
        const int64_t rows = (mask.size(2) + 15) / 16, columns = (mask.size(3) + 15) / 16;
        const at::Tensor filled =
            at::constant_pad_nd(mask, {0, columns * 16 - mask.size(3), 0, rows * 16 - mask.size(2)});
        return filled.reshape({6, rows, 16, columns, 16}).any(4).any(2);
      };
      const auto agree = [](const at::Tensor& bytes, const at::Tensor& expected_flags) {
        const at::Tensor bits = bytes.cpu()
                                    .unsqueeze(-1)
                                    .bitwise_right_shift(at::arange(4, at::kByte))
                                    .bitwise_and(1)
                                    .flatten(-2)
                                    .to(at::kBool);
        return at::equal(bits.narrow(1, 0, expected_flags.size(1)).narrow(2, 0, expected_flags.size(2)),
                         expected_flags);
      };
      EXPECT_TRUE(agree(EdgePlan::of(found).units()->by_queries, flags(expected.to_mask())));
      EXPECT_TRUE(agree(EdgePlan::of(found).units()->by_keys, flags(expected.to_mask().transpose(2, 3))));
    }
}

// Words without a square may be anything until somebody asks for tiles, of all heads or of some.
TEST_F(CudaSample, ClearsWhatIsOutsideOfUnits) {
  const EdgeShape shape{2, 3, 150, 290};
  const EdgeSet edges = EdgeSet::from_mask(kit::random_mask(shape, 0.2, 1)).to(at::kCUDA);
  const EdgeSet probes = sample_probe_edges(EdgeSet::from_trusted_tiles(shape, edges.tiles()), {0.02, 0.05},
                                            kit::probe_options(shape, /*restricted=*/false));
  ASSERT_NE(EdgePlan::of(probes).units(), nullptr);
  const at::Tensor whole = probes.tiles().clone();  // [6, row tiles, column tiles, 4 x 32]
  const int64_t rows = whole.size(1), columns = whole.size(2);
  const at::Tensor chosen = EdgePlan::of(probes)
                                .units()
                                ->by_queries.narrow(2, 0, columns)
                                .ne(0)
                                .view({6, rows, 4, columns})
                                .permute({0, 1, 3, 2})
                                .unsqueeze(-1);
  const at::Tensor dirt =
      at::where(chosen, whole.view({6, rows, columns, 4, 32}), at::full({}, -1, whole.options()))
          .reshape(whole.sizes());
  ASSERT_FALSE(at::equal(dirt, whole));
  const EdgeSet set = graph::edges_in_units(shape, dirt.clone(), *EdgePlan::of(probes).units());
  EdgePlan& plan = EdgePlan::of(set);
  EXPECT_TRUE(at::equal(plan.unit_tiles(), dirt));
  const graph::SparseHeads few{at::arange(6, whole.options().dtype(at::kLong)).view({2, 3}), 2};
  EXPECT_TRUE(at::equal(plan.tiles(few).narrow(0, 3, 3), whole.narrow(0, 3, 3)));
  EXPECT_TRUE(at::equal(plan.unit_tiles().narrow(0, 0, 3), dirt.narrow(0, 0, 3)));
  EXPECT_TRUE(at::equal(plan.transposed_tiles(few).narrow(0, 3, 3),
                        EdgePlan::of(probes).transposed_tiles().narrow(0, 3, 3)));
  EXPECT_TRUE(at::equal(set.tiles(), whole));
  EXPECT_TRUE(at::equal(plan.transposed_tiles(), EdgePlan::of(probes).transposed_tiles()));
}

}  // namespace
}  // namespace edgewise::sampling_on_cuda
