// A bool tensor with bytes other than 0 and 1 means the same as one with zeros and ones: in every function of
// EdgeSet and every op that takes one.
#include <edgewise/graph/mask_counts.h>
#include <edgewise/ops/sample.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "kit/devices.h"
#include "kit/other_bytes.h"
#include "kit/random_inputs.h"
#include "ops/layers/state_rows.h"

namespace edgewise {
namespace {

using kit::other_bytes;

class BoolBytes : public kit::DeviceTest {
 protected:
  at::Tensor there(const at::Tensor& x) const { return x.to(device()); }
  at::Tensor token_mask(int64_t batch, int64_t length, int64_t seed) const {
    return there(kit::rand({batch, length}, seed) < 0.6);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, BoolBytes, kit::devices(), kit::device_name);

void expect_same(const EdgeSet& found, const EdgeSet& expected, const std::string& what) {
  EXPECT_TRUE(at::equal(found.row_offsets(), expected.row_offsets())) << what;
  EXPECT_TRUE(at::equal(found.col_indices(), expected.col_indices())) << what;
}

TEST_P(BoolBytes, EdgeSets) {
  const EdgeShape shape{3, 2, 37, 70};
  const at::Tensor mask = there(kit::random_mask(shape, 0.3, 1)), keys = token_mask(3, 70, 2),
                   queries = token_mask(3, 37, 3);
  const EdgeSet edges = EdgeSet::from_mask(mask), odd = EdgeSet::from_mask(other_bytes(mask));
  expect_same(odd, edges, "from_mask");
  EXPECT_TRUE(at::equal(odd.to_mask().view(at::kByte), mask.view(at::kByte))) << "to_mask holds odd bytes";
  expect_same(edges.restricted_to_keys(other_bytes(keys)), edges.restricted_to_keys(keys), "keys");
  expect_same(edges.restricted_to_queries(other_bytes(queries)), edges.restricted_to_queries(queries),
              "queries");
  const at::Tensor keep = there(kit::rand({edges.edge_count()}, 4) < 0.5);
  expect_same(edges.kept(other_bytes(keep)), edges.kept(keep), "kept");
  EXPECT_TRUE(
      at::equal(edges.density(other_bytes(keys), other_bytes(queries)), edges.density(keys, queries)));
  EXPECT_EQ(valid_pairs(shape, other_bytes(keys), other_bytes(queries)), valid_pairs(shape, keys, queries));
  EXPECT_TRUE(at::equal(mask_counts(other_bytes(keys)), keys.sum(1).cpu()));
}

// As memory from elsewhere comes in C++.
TEST(BoolBytesFromBlob, AreReadAsTheyAre) {
  std::vector<uint8_t> bytes(3 * 40);
  for (size_t n = 0; n < bytes.size(); ++n) bytes[n] = n % 3 == 0 ? 0 : static_cast<uint8_t>(100 + n);
  const at::Tensor odd = torch::from_blob(bytes.data(), {1, 1, 3, 40}, at::kBool);
  const EdgeSet edges = EdgeSet::from_mask(odd);
  EXPECT_EQ(edges.edge_count(), 80);
  EXPECT_TRUE(at::equal(edges.to_mask().flatten().to(at::kLong),
                        (torch::arange(120).remainder(3) != 0).to(at::kLong)));
  EXPECT_EQ(mask_counts(odd.view({3, 40})).sum().item<int64_t>(), 80);
}

TEST_P(BoolBytes, Samplers) {
  const at::Tensor query = there(kit::rand({3, 2, 150, 8}, 1) * 0.4),
                   key = there(kit::rand({3, 2, 150, 8}, 2) * 0.4), keys = token_mask(3, 150, 3),
                   queries = token_mask(3, 150, 4);
  for (const Sampler sampler :
       {Sampler::kAuto, Sampler::kDirect, Sampler::kFastRg, Sampler::kSqueezed, Sampler::kThinning})
    for (const bool causal : {false, true}) {
      SampleOptions options;
      options.sampler = sampler;
      options.is_causal = causal;
      options.self_loops = causal;
      options.exploration = 0.02;
      options.random = {.seed = 5, .step = 1};
      options.check_values = true;
      options.key_mask = keys, options.query_mask = queries;
      const EdgeSet expected = sample_sbm_edges(query, key, options);
      EXPECT_GT(expected.edge_count(), 500);
      options.key_mask = other_bytes(keys), options.query_mask = other_bytes(queries);
      expect_same(sample_sbm_edges(query, key, options), expected, std::string(to_string(sampler)));
    }
}

TEST_P(BoolBytes, Probes) {
  const EdgeShape shape{3, 2, 150, 130};
  const at::Tensor keys = token_mask(3, 130, 3), queries = token_mask(3, 150, 4);
  const EdgeSet edges = EdgeSet::from_mask(there(kit::random_mask(shape, 0.1, 5)));
  for (const int64_t unit : {1, 16}) {
    SampleOptions options;
    options.probe_unit = unit;
    options.random = {.seed = 5, .step = 7};
    options.key_mask = keys, options.query_mask = queries;
    const EdgeSet expected = sample_probe_edges(edges, {0.2, 0.4, 0.3}, options);
    EXPECT_GT(expected.edge_count(), 500);
    options.key_mask = other_bytes(keys), options.query_mask = other_bytes(queries);
    expect_same(sample_probe_edges(edges, {0.2, 0.4, 0.3}, options), expected, std::to_string(unit));
  }
}

TEST_P(BoolBytes, LayerNorm) {
  const at::Tensor x = there(kit::randn({2, 9, 64}, 1)).requires_grad_(), weight = there(at::ones({64})),
                   bias = there(at::ones({64})), mask = token_mask(2, 9, 2);
  const auto run = [&](const at::Tensor& rows) {
    const at::Tensor y = ops::layer_norm(x, weight, bias, 1e-5, ops::NormOutput::kFull, rows);
    return std::pair(y.detach(), torch::autograd::grad({y.square().sum()}, {x})[0]);
  };
  const auto [expected, expected_grad] = run(mask);
  const auto [found, grad] = run(other_bytes(mask));
  EXPECT_TRUE(at::equal(found, expected));
  EXPECT_TRUE(at::equal(grad, expected_grad));
}

}  // namespace
}  // namespace edgewise
