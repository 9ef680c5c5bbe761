// The gradients of the memberships from the CUDA kernels against the reference, for each estimator and with
// probes.
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "kit/devices.h"
#include "kit/float32_matmul_guard.h"
#include "kit/random_inputs.h"
#include "kit/row_errors.h"
#include "ops/attention/kernel_table.h"

namespace edgewise::learner_on_cuda {
namespace {

class CudaLearner : public kit::CudaTest {};

struct Case {
  const char* name;
  Estimator estimator;
  double clip;
  bool probes, density;
  int64_t clusters;
  double edge_density;
  int64_t dim = 32;
  bool fixed = false,
       discarded = false;  // edges that the learner did not decide; pairs drawn but not attended
  bool blocks = false;     // only pairs of the same 64 queries and keys
  bool windows = false;    // edges as tiles that nobody counted, and probes in units
  double dropout = 0;
  int64_t tokens = 0;  // instead of the usual shape

  bool has_windows() const { return windows && (dim == 32 || dim == 64); }
};
const std::vector<Case> kCases = {
    {"logit", Estimator::kLogit, 0, false, false, 32, 0.2},
    {"logit, clipped", Estimator::kLogit, 0.01, false, false, 128, 0.2},
    {"paper", Estimator::kPaper, 0, false, true, 32, 0.2},
    {"counterfactual", Estimator::kCounterfactual, 0, true, false, 32, 0.2},
    {"counterfactual, 20 clusters", Estimator::kCounterfactual, 0, true, true, 20, 0.2},
    {"logit, rare edges", Estimator::kLogit, 0.01, false, true, 32, 0.01},
    {"counterfactual, rare edges", Estimator::kCounterfactual, 0, true, false, 128, 0.01},
    {"counterfactual, head dim 16", Estimator::kCounterfactual, 0, true, false, 32, 0.2, 16},
    {"counterfactual, head dim 64", Estimator::kCounterfactual, 0, true, true, 32, 0.2, 64},
    {"counterfactual, head dim 64, 128 clusters", Estimator::kCounterfactual, 0, true, false, 128, 0.2, 64},
    {"logit, clipped, head dim 64, 128 clusters", Estimator::kLogit, 0.01, false, false, 128, 0.2, 64},
    {"logit, head dim 128", Estimator::kLogit, 0, false, false, 32, 0.2, 128},
    {"counterfactual, head dim 128, 128 clusters", Estimator::kCounterfactual, 0, true, true, 128, 0.2, 128},
    {"logit, fixed edges", Estimator::kLogit, 0, false, false, 32, 0.2, 32, true, false},
    {"counterfactual, fixed edges", Estimator::kCounterfactual, 0, true, true, 128, 0.2, 32, true, false},
    {"logit, clipped, discarded pairs", Estimator::kLogit, 0.01, false, true, 128, 0.2, 32, false, true},
    {"paper, both", Estimator::kPaper, 0, false, true, 32, 0.2, 32, true, true},
    {"logit, clipped, both, head dim 64, 128 clusters", Estimator::kLogit, 0.01, false, true, 128, 0.2, 64,
     true, true},
    // Most tiles hold no edge.
    {"logit, clipped, fixed, in blocks", Estimator::kLogit, 0.01, false, true, 32, 0.6, 32, true, false,
     true},
    {"logit, both, in blocks", Estimator::kLogit, 0, false, true, 32, 0.6, 32, true, true, true},
    {"logit, fixed, in blocks, head dim 64, 128 clusters", Estimator::kLogit, 0, false, false, 128, 0.6, 64,
     true, false, true},
    {"counterfactual, units", Estimator::kCounterfactual, 0, true, true, 128, 0.2, 32, false, false, false,
     true},
    {"counterfactual, windows", Estimator::kCounterfactual, 0, true, false, 32, 0.02, 32, false, false, false,
     true},
    {"counterfactual, windows, 128 clusters", Estimator::kCounterfactual, 0, true, false, 128, 0.02, 32,
     false, false, false, true},
    {"counterfactual, density, windows", Estimator::kCounterfactual, 0, true, true, 20, 0.02, 32, false,
     false, false, true},
    {"paper, windows", Estimator::kPaper, 0, false, true, 32, 0.02, 32, false, false, false, true},
    {"logit, clipped, windows", Estimator::kLogit, 0.01, false, true, 128, 0.02, 32, false, false, false,
     true},
    {"logit, windows, head dim 64", Estimator::kLogit, 0, false, false, 32, 0.01, 64, false, false, false,
     true},
    {"counterfactual, windows, head dim 64", Estimator::kCounterfactual, 0, true, false, 32, 0.02, 64, false,
     false, false, true},
    {"counterfactual, windows, head dim 64, 128 clusters", Estimator::kCounterfactual, 0, true, false, 128,
     0.02, 64, false, false, false, true},
    // Probes in units beside tiles.
    {"counterfactual, units, head dim 16", Estimator::kCounterfactual, 0, true, false, 32, 0.2, 16, false,
     false, false, true},
    {"counterfactual, units, 32 clusters", Estimator::kCounterfactual, 0, true, false, 32, 0.2, 32, false,
     false, false, true},
    {"counterfactual, units, head dim 64", Estimator::kCounterfactual, 0, true, false, 32, 0.2, 64, false,
     false, false, true},
    {"counterfactual, units, head dim 64, 128 clusters", Estimator::kCounterfactual, 0, true, true, 128, 0.2,
     64, false, false, false, true},
    {"counterfactual, units, head dim 128", Estimator::kCounterfactual, 0, true, false, 32, 0.2, 128, false,
     false, false, true},
    {"counterfactual, units, head dim 128, 128 clusters", Estimator::kCounterfactual, 0, true, false, 128,
     0.2, 128, false, false, false, true},
    {"counterfactual, units, fixed", Estimator::kCounterfactual, 0, true, true, 32, 0.2, 32, true, false,
     false, true},
    // Dropout, by tiles and by windows.
    {"counterfactual, dropout", Estimator::kCounterfactual, 0, true, false, 32, 0.2, 32, false, false, false,
     false, 0.1},
    {"counterfactual, units, dropout", Estimator::kCounterfactual, 0, true, false, 128, 0.2, 32, false, false,
     false, true, 0.1},
    {"counterfactual, windows, dropout", Estimator::kCounterfactual, 0, true, false, 32, 0.02, 32, false,
     false, false, true, 0.1},
    {"counterfactual, windows, 128 clusters, dropout", Estimator::kCounterfactual, 0, true, true, 128, 0.02,
     32, false, false, false, true, 0.1},
    {"counterfactual, windows, head dim 64, dropout", Estimator::kCounterfactual, 0, true, false, 32, 0.02,
     64, false, false, false, true, 0.1},
    {"logit, windows, dropout", Estimator::kLogit, 0, false, false, 32, 0.02, 32, false, false, false, true,
     0.3},
    {"paper, windows, dropout", Estimator::kPaper, 0, false, true, 32, 0.02, 32, false, false, false, true,
     0.1},
    // By lists.
    {"logit, rare edges, dropout", Estimator::kLogit, 0, false, true, 32, 0.003, 32, false, false, false,
     false, 0.3, 1500},
    {"paper, rare edges, head dim 16, dropout", Estimator::kPaper, 0, false, true, 32, 0.003, 16, false,
     false, false, false, 0.2, 1500},
    {"counterfactual, rare edges, head dim 64, dropout", Estimator::kCounterfactual, 0, true, false, 128,
     0.003, 64, false, false, false, false, 0.1, 1500},
    {"counterfactual, rare edges, head dim 128, dropout", Estimator::kCounterfactual, 0, true, false, 32,
     0.003, 128, false, false, false, false, 0.1, 1500},
    // Rare, and yet by tiles: lists do not know edges that the learner did not decide.
    {"logit, rare edges, fixed", Estimator::kLogit, 0, false, false, 32, 0.01, 32, true},
    {"counterfactual, rare edges, fixed, dropout", Estimator::kCounterfactual, 0, true, false, 32, 0.003, 32,
     true, false, false, false, 0.1, 1500},
    // Forward by windows, backward by tiles.
    {"counterfactual, windows, head dim 64, 128 clusters, dropout", Estimator::kCounterfactual, 0, true,
     false, 128, 0.02, 64, false, false, false, true, 0.1},
    {"logit, fixed, windows, dropout", Estimator::kLogit, 0, false, true, 32, 0.02, 32, true, false, false,
     true, 0.1},
    // One query and one key in the last block.
    {"counterfactual, windows, 257 tokens", Estimator::kCounterfactual, 0, true, false, 32, 0.02, 32, false,
     false, false, true, 0, 257},
    {"counterfactual, windows, 257 tokens, dropout", Estimator::kCounterfactual, 0, true, false, 128, 0.02,
     32, false, false, false, true, 0.1, 257},
};

struct Grads {
  at::Tensor query_membership, key_side, query, key, value;
};
SampleOptions probing() {
  SampleOptions options;
  options.probe_unit = 16;
  options.random = {.seed = 3};
  return options;
}
// Inputs are rounded to `drawn` before anybody sees them.
Grads run(const Case& c, at::Device device, at::ScalarType dtype, at::ScalarType drawn, const EdgeSet& edges,
          const EdgeSet& probes) {
  const EdgeShape& shape = edges.shape();
  const auto make = [&](int64_t tokens, int64_t width, int64_t seed, bool positive) {
    const std::vector<int64_t> sizes = {shape.batch, shape.heads, tokens, width};
    const at::Tensor x = positive ? kit::rand(sizes, seed, drawn) : kit::randn(sizes, seed, drawn);
    return x.to(device, dtype).requires_grad_();
  };
  const at::Tensor q = make(shape.queries, c.dim, 1, false), k = make(shape.keys, c.dim, 2, false),
                   v = make(shape.keys, c.dim, 3, false);
  EdgeLearner credit;
  credit.query_membership = make(shape.queries, c.clusters, 4, true);
  credit.key_side = make(shape.keys, c.clusters, 5, true);
  credit.rule = credit_rule(c.estimator, PresentForm::kSoftmax);
  credit.gradient_clip = c.clip;
  credit.pairs_per_head = 1000;
  if (c.probes) {
    credit.probes = probes.to(device);
    credit.probe_rates.assign(static_cast<size_t>(shape.batch), 0.05);
  }
  EdgeSet device_edges = edges.to(device);
  if (c.windows && device.is_cuda()) {
    device_edges = EdgeSet::from_trusted_tiles(shape, device_edges.tiles());
    if (c.probes)
      credit.probes = sample_probe_edges(
          device_edges, std::vector<double>(static_cast<size_t>(shape.batch), 0.05), probing());
  }
  // A band, some of whose pairs are edges, and what is neither edge nor probe, thinned.
  if (c.fixed)
    credit.fixed = EdgeSet::from_mask(at::ones({shape.queries, shape.keys}, at::kBool)
                                          .tril(3)
                                          .triu(-3)
                                          .expand({shape.batch, shape.heads, -1, -1}))
                       .to(device);
  if (c.discarded)
    credit.discarded =
        EdgeSet::from_mask(kit::random_mask(shape, 0.1, 9)).minus(edges).minus(probes).to(device);
  if (device.is_cuda()) {
    ops::AttentionInputs inputs = ops::attention_inputs(q, k, v, device_edges, {}, &credit);
    inputs.dropout_p = c.dropout;
    inputs.gradients_follow = true;
    const std::string choice = ops::choose_kernel(inputs).name;
    const std::string tiles = dtype == at::kFloat ? "cuda float tiles" : "cuda tiles";
    std::string kernel = !c.fixed && c.edge_density < (c.dropout > 0 ? 0.004 : 0.02) ? "cuda gather" : tiles;
    const bool rare_but_fixed = c.fixed && c.edge_density < 0.02;
    if ((c.has_windows() || rare_but_fixed) && dtype == at::kBFloat16) kernel = "cuda windows and tiles";
    if (dtype == at::kFloat && float32_matmul() == Float32Matmul::kIeee) kernel = "cuda gather";
    // In float32 rare edges go as is predicted.
    if (dtype == at::kBFloat16 || kernel != "cuda gather" || float32_matmul() == Float32Matmul::kIeee) {
      EXPECT_EQ(choice, kernel);
    }
  }
  functional::EdgeAttentionOptions options;
  options.dropout_p = c.dropout;
  options.random = {.seed = 5};
  const auto result = functional::edge_attention(q, k, v, device_edges, credit, options);
  const at::Tensor g = kit::randn(q.sizes(), 6, drawn).to(device, dtype);
  at::Tensor loss = (result.output * g).sum();
  if (c.density)
    loss =
        loss +
        (result.sampled_density * at::arange(1, shape.heads + 1, result.sampled_density.options())).sum() * 5;
  loss.backward();
  return {credit.query_membership.grad(), credit.key_side.grad(), q.grad(), k.grad(), v.grad()};
}

double error(const at::Tensor& f, const at::Tensor& e) {
  return kit::row_errors(f, e).whole;
}
// Credit has long tails, of probes most: a row may be off by fifteen times what all of them are.
testing::AssertionResult agree(const at::Tensor& found, const at::Tensor& expected, double limit) {
  return kit::rows_agree(found, expected, limit, 15 * limit);
}

struct Graph {
  EdgeSet edges, probes;
  explicit Graph(const Case& c) {
    // Windows: more than a block of 256 on each side, and not a whole number of anything.
    const EdgeShape shape = c.tokens > 0 ? EdgeShape{2, 2, c.tokens, c.tokens}
                            : c.windows  ? EdgeShape{2, 2, 530, 605}
                                         : EdgeShape{2, 2, 210, 170};
    at::Tensor mask = kit::random_mask(shape, c.edge_density, 7);
    if (c.blocks)
      mask = mask & (at::arange(shape.queries).div(64, "floor").unsqueeze(1) ==
                     at::arange(shape.keys).div(64, "floor").unsqueeze(0));
    mask.select(2, 3).fill_(false);
    edges = EdgeSet::from_mask(mask);
    probes = c.windows ? sample_probe_edges(edges, {0.05, 0.05}, probing())
                       : EdgeSet::from_mask(kit::random_mask(shape, 0.05, 8).logical_and(mask.logical_not()));
  }
};

TEST_F(CudaLearner, GetsTheGradientsOfTheReference) {
  for (const Case& c : kCases) {
    const Graph graph(c);
    const Grads expected = run(c, at::kCPU, at::kDouble, at::kBFloat16, graph.edges, graph.probes),
                found = run(c, at::kCUDA, at::kBFloat16, at::kBFloat16, graph.edges, graph.probes);
    // With few edges many rows have one, whose credit is exactly 0; the output's rounding to bf16 leaves a
    // little in ubar there, and beside clipped gradients it shows.
    const bool only_edges = c.edge_density < 0.02 && c.clip > 0;
    EXPECT_TRUE(agree(found.query_membership, expected.query_membership, only_edges ? 2.5e-2 : 1.5e-2))
        << c.name;
    EXPECT_TRUE(agree(found.key_side, expected.key_side, 1.5e-2)) << c.name;
    EXPECT_TRUE(agree(found.query, expected.query, 1.5e-2)) << c.name;
    EXPECT_TRUE(agree(found.key, expected.key, 1.5e-2)) << c.name;
    EXPECT_TRUE(agree(found.value, expected.value, 1.5e-2)) << c.name;
  }
}

// The same in fp32, by tiles of tf32 operands or, for rare edges where that is faster, in fp32 edge by edge.
// With rare edges many rows have a single one, whose credit is exactly 0: what rounding leaves of it counts
// whole.
TEST_F(CudaLearner, GetsTheGradientsOfTheReferenceInFloat32) {
  std::map<std::string, double> largest;
  for (const Case& c : kCases) {
    if (c.windows && c.edge_density < 0.1) continue;  // windows are bf16
    const Graph graph(c);
    const Grads expected = run(c, at::kCPU, at::kDouble, at::kFloat, graph.edges, graph.probes);
    for (const Float32Matmul matmul : {Float32Matmul::kTf32, Float32Matmul::kTf32x3, Float32Matmul::kIeee}) {
      // Edge by edge, whatever is predicted for the others; lists do not know fixed edges.
      if (matmul == Float32Matmul::kIeee && (c.edge_density >= 0.02 || c.fixed)) continue;
      const kit::ForcedFloat32Matmul forced(matmul);
      const Grads found = run(c, at::kCUDA, at::kFloat, at::kFloat, graph.edges, graph.probes);
      const std::string name = std::string(to_string(matmul)) + ", " + c.name;
      const bool rare = c.edge_density < 0.02;
      const double limit = matmul == Float32Matmul::kTf32 ? (rare ? 1e-2 : 3e-3) : (rare ? 5e-5 : 5e-6);
      const auto check = [&](const at::Tensor& f, const at::Tensor& e, const char* what) {
        EXPECT_TRUE(agree(f, e, limit)) << name << ", " << what;
        double& so_far = largest[std::string(to_string(matmul))];
        so_far = std::max(so_far, error(f, e));
      };
      check(found.query_membership, expected.query_membership, "query_membership");
      check(found.key_side, expected.key_side, "key_side");
      check(found.query, expected.query, "query");
      check(found.key, expected.key, "key");
      check(found.value, expected.value, "value");
    }
  }
  for (const auto& [name, value] : largest) RecordProperty(name, std::to_string(value * 1e6) + "e-6");
}

// A learner with values of its own, such as a policy: whatever the density and the layout of the edges, by
// the same kernel, and the same twice.
TEST_F(CudaLearner, GetsANumberPerEdgeAndPerProbe) {
  const EdgeShape shape{2, 2, 150, 170};
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const double density : {0.02, 0.3})
      for (const double dropout : {0.0, 0.2})
        for (const CreditRule rule : {CreditRule::kLogit, CreditRule::kPaper, CreditRule::kLeaveOneOut}) {
          at::Tensor mask = kit::random_mask(shape, density, 1);
          mask.select(2, 7).fill_(false);
          const EdgeSet edges = EdgeSet::from_mask(mask),
                        probes = EdgeSet::from_mask(
                            kit::random_mask(shape, 0.05, 2).logical_and(mask.logical_not()));
          const auto numbers = [&](at::Device device, at::ScalarType type, bool tiles) {
            const auto make = [&](int64_t tokens, int64_t seed) {
              return kit::randn({2, 2, tokens, 32}, seed, dtype).to(device, type);
            };
            EdgeSet given = edges.to(device);
            if (tiles) given = EdgeSet::from_trusted_tiles(shape, given.tiles());
            const at::ScalarType real = type == at::kDouble ? at::kDouble : at::kFloat;
            EdgeLearner learner;
            learner.rule = rule;
            learner.values = at::zeros({edges.edge_count()}, real).to(device).requires_grad_();
            learner.probes = probes.to(device);
            learner.probe_rates = {0.5, 0.25};
            learner.probe_values = at::zeros({probes.edge_count()}, real).to(device).requires_grad_();
            functional::EdgeAttentionOptions options;
            options.dropout_p = dropout;
            options.random = {.seed = 5};
            if (device.is_cuda()) {
              ops::AttentionInputs call =
                  ops::attention_inputs(make(150, 3), make(170, 4), make(170, 5), given, {}, &learner);
              call.dropout_p = dropout;
              EXPECT_STREQ(ops::choose_kernel(call).name, "cuda gather");
            }
            functional::edge_attention(make(150, 3), make(170, 4), make(170, 5), given, learner, options)
                .output.backward(make(150, 6));
            return std::pair(learner.values.grad(), learner.probe_values.grad());
          };
          const auto expected = numbers(at::kCPU, at::kDouble, false);
          for (const bool tiles : {false, true}) {
            const auto found = numbers(at::kCUDA, dtype, tiles), again = numbers(at::kCUDA, dtype, tiles);
            const std::string name = c10::str(dtype, ", density ", density, ", dropout ", dropout, ", rule ",
                                              static_cast<int>(rule), tiles ? ", tiles" : ", lists");
            const double limit = dtype == at::kFloat ? 2e-5 : 2e-2;
            EXPECT_LE(error(found.first, expected.first), limit) << name;
            EXPECT_LE(error(found.second, expected.second), limit) << name << ", probes";
            EXPECT_TRUE(at::equal(found.first, again.first) && at::equal(found.second, again.second)) << name;
          }
        }
}

}  // namespace
}  // namespace edgewise::learner_on_cuda
