// Edges as lists on a GPU: the edges of the other samplers, when they are chosen, and a learned layer over a
// sequence that is too long for a bit per pair.
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <gtest/gtest.h>

#include <c10/core/CachingDeviceAllocator.h>

#include "graph/edge_plan.h"
#include "kit/devices.h"
#include "kit/probe_options.h"
#include "kit/random_inputs.h"
#include "ops/attention/kernel_table.h"
#include "ops/sample/cuda_sampling.h"

namespace edgewise::lists_on_cuda {
namespace {

class CudaLists : public kit::CudaTest {};

EdgeShape shape_of(const at::Tensor& query, const at::Tensor& key) {
  return {query.size(0), query.size(1), query.size(2), key.size(2)};
}
EdgeSet draw_lists(const at::Tensor& query, const at::Tensor& key, const SampleOptions& options) {
  return ops::cuda_sample_lists(query.cuda(), key.cuda(), shape_of(query, key), options);
}
void expect_same(const EdgeSet& found, const EdgeSet& expected, const std::string& what) {
  EXPECT_TRUE(at::equal(found.row_offsets().cpu(), expected.row_offsets().cpu())) << what;
  EXPECT_TRUE(at::equal(found.col_indices().cpu(), expected.col_indices().cpu())) << what;
}

// However edges are kept they are the same: blocks of rows that thin (bounds below 1/2 of `thinning`, small
// ones of `auto`), blocks that do not, and both in one call.
TEST_F(CudaLists, AreTheEdgesOfTheTiles) {
  for (const Sampler sampler : {Sampler::kThinning, Sampler::kAuto})
    for (const int64_t clusters : {8, 100})
      for (const EdgeLaw law : {EdgeLaw::kBernoulli, EdgeLaw::kPoisson})
        for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
          for (const bool restricted : {false, true}) {
            at::Tensor query = kit::rand({2, 3, 300, clusters}, 1) * 0.5;
            query.narrow(2, 0, 128).mul_(0.05);
            query = query.to(dtype);
            const at::Tensor key =
                (kit::rand({2, 3, 290, clusters}, 2) * (0.9 / static_cast<double>(clusters))).to(dtype);
            SampleOptions options;
            options.law = law;
            options.sampler = sampler;
            options.exploration = restricted ? 0.02 : 0;
            options.random = {.seed = 5, .step = 7, .layer = 1};
            if (restricted) {
              options.is_causal = true;
              options.key_mask = (kit::rand({2, 290}, 3) < 0.8).cuda();
              options.query_mask = (kit::rand({2, 300}, 4) < 0.8).cuda();
            }
            const EdgeSet tiles = sample_sbm_edges(query.cuda(), key.cuda(), options);
            ASSERT_FALSE(tiles.has_csr());
            const EdgeSet lists = draw_lists(query, key, options);
            EXPECT_TRUE(lists.has_csr());
            EXPECT_GT(lists.edge_count(), 0);
            expect_same(lists, tiles,
                        c10::str(to_string(sampler), ", ", clusters, " clusters, ", to_string(law), ", ",
                                 dtype, ", ", restricted));
          }
}

// Dense rows: all of them as the direct sampler on CPU draws them.
TEST_F(CudaLists, OfDenseRowsAreTheDirectSamplers) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor query = kit::rand({1, 2, 150, 32}, 1).to(dtype),
                     key = (kit::rand({1, 2, 170, 32}, 2) / 16).to(dtype);
    SampleOptions options;
    options.random = {.seed = 3};
    options.is_causal = true;
    const EdgeSet lists = draw_lists(query, key, options);
    options.sampler = Sampler::kDirect;
    expect_same(lists, sample_sbm_edges(query, key, options), c10::str(dtype));
  }
}

// More squares than 128 a row, and rows and columns that fill no square.
TEST_F(CudaLists, ProbesAreTheCpus) {
  const EdgeShape shape{2, 1, 150, 2105};
  const EdgeSet edges = EdgeSet::from_mask(kit::random_mask(shape, 0.1, 1));
  for (const bool restricted : {false, true}) {
    const SampleOptions options = kit::probe_options(shape, restricted);
    const EdgeSet expected = sample_probe_edges(edges, {0.05, 0.2}, options),
                  found = sample_probe_edges(edges.to(at::kCUDA), {0.05, 0.2}, options);
    EXPECT_TRUE(found.has_csr());
    expect_same(found, expected, restricted ? "restricted" : "all pairs");
  }
  const EdgeSet nothing = sample_probe_edges(EdgeSet::none({1, 1, 5, 0}, at::kCUDA), {0.5}, [] {
    SampleOptions options;
    options.probe_unit = 16;
    return options;
  }());
  EXPECT_EQ(nothing.edge_count(), 0);
}

// Keys with no row, with few, with more than a warp sorts, and with more than fit into a block's bits.
TEST_F(CudaLists, ByKeysAreTheCpus) {
  for (const EdgeShape& shape :
       {EdgeShape{2, 2, 300, 70}, EdgeShape{1, 1, 3000, 20}, EdgeShape{1, 2, 300000, 3}}) {
    at::Tensor mask = kit::random_mask(shape, shape.queries > 100000 ? 0.003 : 0.2, 5);
    mask.select(3, 1).fill_(true);
    mask.select(3, 2).fill_(false);
    const EdgeSet edges = EdgeSet::from_mask(mask), on_device = edges.to(at::kCUDA);
    const graph::TransposedEdges &expected = graph::EdgePlan::of(edges).transposed(),
                                 &found = graph::EdgePlan::of(on_device).transposed();
    EXPECT_TRUE(at::equal(found.column_offsets.cpu(), expected.column_offsets)) << to_string(shape);
    EXPECT_TRUE(at::equal(found.row_indices.cpu(), expected.row_indices)) << to_string(shape);
  }
}

TEST_F(CudaLists, AreChosenForLongSequencesWithFewEdges) {
  const auto chosen = [](int64_t n, double edges_per_row, const SampleOptions& options, double top = 0,
                         int64_t heads = 1) {
    const auto bf16 = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
    const at::Tensor query = at::full({1, heads, n, 8}, 0.5, bf16);
    at::Tensor key = at::full({1, heads, n, 8}, edges_per_row / static_cast<double>(n) / 4, bf16);
    if (top > 0) key.select(2, 0).fill_(top);
    return ops::cuda_samples_lists(query, key, shape_of(query, key), options);
  };
  const SampleOptions automatic;
  SampleOptions direct, exploring, causal;
  direct.sampler = Sampler::kDirect;
  exploring.exploration = 0.01;
  causal.is_causal = true;
  EXPECT_FALSE(chosen(8192, 4, automatic));
  EXPECT_TRUE(chosen(65536, 32, automatic));
  EXPECT_FALSE(chosen(65536, 32, direct));
  EXPECT_FALSE(chosen(65536, 32, exploring));
  EXPECT_FALSE(chosen(65536, 200, automatic));
  EXPECT_TRUE(chosen(65536, 200, causal)) << "half of the edges and probes, but all of the tiles";
  EXPECT_FALSE(chosen(16384, 16, automatic, 0, 64)) << "many pairs, but windows draw 16,384 keys faster";
  EXPECT_FALSE(chosen(140000, 1000, automatic));
  EXPECT_TRUE(chosen(300000, 1500, automatic)) << "no windows for so many pairs";
  EXPECT_FALSE(chosen(300000, 6000, automatic));
  EXPECT_FALSE(chosen(65536, 32, automatic, 0.1)) << "bounds of 0.4, though edges are rare";
  EXPECT_TRUE(chosen(400000, 32, automatic, 0.1)) << "more than 16 GiB of tiles";
}

// Forward and backward over 65,536 tokens: the gradients of the memberships too, in less memory than two bits
// a pair (512 MiB a plane).
TEST_F(CudaLists, ServeALearnedLayerOverALongSequence) {
  const int64_t n = 65536, clusters = 32;
  const auto bf16 = [](const at::Tensor& x) { return x.cuda().to(at::kBFloat16).requires_grad_(); };
  const at::Tensor membership = bf16(kit::rand({1, 1, n, clusters}, 1) * 0.5 + 0.25),
                   side = bf16((kit::rand({1, 1, n, clusters}, 2) + 0.5) * (2 * 32.0 / clusters / n));
  const at::Tensor query = bf16(kit::randn({1, 1, n, 32}, 3)), key = bf16(kit::randn({1, 1, n, 32}, 4)),
                   value = bf16(kit::randn({1, 1, n, 32}, 5));
  SampleOptions options;
  options.random = {.seed = 5};
  options.probe_unit = 16;
  EdgeLearner credit;
  credit.query_membership = membership;
  credit.key_side = side;
  credit.probe_rates = {64.0 / static_cast<double>(n)};
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(at::kCUDA);
  const auto held = [&] { return allocator->getDeviceStats(query.get_device()).allocated_bytes[0]; };
  allocator->resetPeakStats(query.get_device());
  const int64_t before = held().current;
  const EdgeSet edges = sample_sbm_edges(membership, side, options);
  ASSERT_TRUE(edges.has_csr());
  credit.probes = sample_probe_edges(edges, credit.probe_rates, options);
  ASSERT_TRUE(credit.probes->has_csr());
  ops::AttentionInputs inputs = ops::attention_inputs(query, key, value, edges, {}, &credit);
  inputs.gradients_follow = true;
  ASSERT_STREQ(ops::choose_kernel(inputs).name, "cuda gather");
  functional::edge_attention(query, key, value, edges, credit).output.sum().backward();
  EXPECT_LT(held().peak - before, int64_t{1} << 30);
  const double expected =
      (membership.detach().to(at::kFloat).sum(2) * side.detach().to(at::kFloat).sum(2)).sum().item<double>();
  EXPECT_NEAR(static_cast<double>(edges.edge_count()), expected, 5 * std::sqrt(expected));

  // The same on the CPU, in fp32, with the same edges; and probes of its own, which are the same too.
  const auto fp32 = [](const at::Tensor& x) { return x.detach().cpu().to(at::kFloat).requires_grad_(); };
  EdgeLearner on_cpu = credit;
  on_cpu.query_membership = fp32(membership);
  on_cpu.key_side = fp32(side);
  const EdgeSet cpu_edges = edges.to(at::kCPU);
  on_cpu.probes = sample_probe_edges(cpu_edges, credit.probe_rates, options);
  expect_same(*credit.probes, *on_cpu.probes, "probes");
  const at::Tensor q = fp32(query), k = fp32(key), v = fp32(value);
  functional::edge_attention(q, k, v, cpu_edges, on_cpu).output.sum().backward();
  const auto expect_near = [](const at::Tensor& found, const at::Tensor& wanted, const char* what) {
    const double error = (found.cpu().to(at::kFloat) - wanted).norm().item<double>();
    EXPECT_LT(error, 0.02 * wanted.norm().item<double>()) << what;
  };
  expect_near(query.grad(), q.grad(), "query");
  expect_near(key.grad(), k.grad(), "key");
  expect_near(value.grad(), v.grad(), "value");
  expect_near(membership.grad(), on_cpu.query_membership.grad(), "query membership");
  expect_near(side.grad(), on_cpu.key_side.grad(), "key side");
}

}  // namespace
}  // namespace edgewise::lists_on_cuda
