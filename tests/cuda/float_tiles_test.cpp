// The kernels over bit tiles in fp32, whose operands are tf32, against the reference in fp64. Inputs have all
// bits of fp32, so that every operand is rounded (tf32) or split (tf32x3).
#include <edgewise/ops/explain.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "kit/devices.h"
#include "kit/float32_matmul_guard.h"
#include "kit/random_inputs.h"
#include "ops/attention/kernel_table.h"

namespace edgewise::float_tiles_on_cuda {
namespace {

using functional::Backend;
using functional::edge_attention;
using kit::ForcedFloat32Matmul;
using ::testing::HasSubstr;

// Norm of the difference over the norm. A number rounded to tf32 is off by 2^-12 on average. tf32x3 leaves
// out 2^-20 of a product at most; the rest is the rounding of sums and of the exponential, as in fp32.
double bound(Float32Matmul matmul) {
  return matmul == Float32Matmul::kTf32 ? 2e-3 : 3e-6;
}
constexpr auto kBoth = {Float32Matmul::kTf32, Float32Matmul::kTf32x3};
constexpr auto kAll = {Float32Matmul::kTf32, Float32Matmul::kTf32x3, Float32Matmul::kIeee};

double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor f = found.to(at::kCPU, at::kDouble), e = expected.to(at::kCPU, at::kDouble);
  return ((f - e).norm() / e.norm().clamp_min(1e-30)).item<double>();
}

struct Inputs {
  at::Tensor query, key, value, grad;

  Inputs(const EdgeShape& shape, int64_t dim) {
    const auto make = [&](int64_t tokens, int64_t seed) {
      return kit::randn({shape.batch, shape.heads, tokens, dim}, seed);
    };
    query = make(shape.queries, 1), key = make(shape.keys, 2), value = make(shape.keys, 3),
    grad = make(shape.queries, 4);
  }
  Inputs to(at::Device device, at::ScalarType dtype) const {
    Inputs result = *this;
    for (at::Tensor* x : {&result.query, &result.key, &result.value, &result.grad}) *x = x->to(device, dtype);
    return result;
  }
};

// Output and the gradients of query, key and value.
using Found = std::vector<at::Tensor>;
constexpr const char* kNames[] = {"output", "query", "key", "value"};

Found run(const Inputs& in, const EdgeSet& edges, functional::EdgeAttentionOptions options) {
  const at::Tensor q = in.query.detach().requires_grad_(), k = in.key.detach().requires_grad_(),
                   v = in.value.detach().requires_grad_();
  const at::Tensor output = edge_attention(q, k, v, edges, options);
  output.backward(in.grad);
  return {output.detach(), q.grad(), k.grad(), v.grad()};
}
Found expected_of(const Inputs& in, const EdgeSet& edges, functional::EdgeAttentionOptions options = {}) {
  options.backend = Backend::kReference;
  return run(in.to(at::kCPU, at::kDouble), edges, options);
}
Found found_by(const Inputs& in, const EdgeSet& edges, functional::EdgeAttentionOptions options = {}) {
  options.backend = Backend::kKernel;
  return run(in.to(at::kCUDA, at::kFloat), edges, options);
}
std::string kernel_of(const Inputs& given, const EdgeSet& edges) {
  const Inputs in = given.to(at::kCUDA, at::kFloat);
  return ops::choose_kernel(ops::attention_inputs(in.query, in.key, in.value, edges, {})).name;
}
EdgeSet random_edges(const EdgeShape& shape, double density) {
  at::Tensor mask = kit::random_mask(shape, density, 5);
  if (shape.queries > 9) mask.select(2, 9).fill_(false);
  return EdgeSet::from_mask(mask);
}

// Keeps the largest errors, for the report of --gtest_output.
class CudaFloatTiles : public kit::CudaTest {
 protected:
  void TearDown() override {
    for (const auto& [name, error] : largest_) RecordProperty(name, std::to_string(error * 1e6) + "e-6");
  }
  void expect_close(const at::Tensor& found, const at::Tensor& expected, Float32Matmul matmul,
                    const std::string& name) {
    const double error = relative_error(found, expected);
    EXPECT_LE(error, bound(matmul)) << to_string(matmul) << ", " << name;
    double& largest = largest_[std::string(to_string(matmul))];
    largest = std::max(largest, error);
  }
  void expect_close(const Found& found, const Found& expected, Float32Matmul matmul,
                    const std::string& name) {
    for (size_t n = 0; n < found.size(); ++n)
      expect_close(found[n], expected[n], matmul, name + (name.empty() ? "" : ", ") + kNames[n]);
  }

 private:
  std::map<std::string, double> largest_;
};

TEST_F(CudaFloatTiles, AgreeWithTheReference) {
  for (const Float32Matmul matmul : kAll)
    for (const int64_t dim : {16, 32, 64, 128})
      for (const EdgeShape& shape :
           std::vector<EdgeShape>{{2, 3, 200, 333}, {1, 2, 64, 64}, {1, 1, 1, 3}, {1, 2, 333, 97}}) {
        const ForcedFloat32Matmul forced(matmul);
        const std::string name = "head dim " + std::to_string(dim) + ", " + to_string(shape);
        const EdgeSet edges = random_edges(shape, shape.queries == 1 ? 1.0 : 0.2),
                      on_device = edges.to(at::kCUDA);
        const Inputs in(shape, dim);
        EXPECT_EQ(kernel_of(in, on_device),
                  matmul == Float32Matmul::kIeee ? "cuda gather" : "cuda float tiles")
            << name;
        const Found found = found_by(in, on_device);
        expect_close(found, expected_of(in, edges), matmul, name);
        if (shape.queries > 9) {
          EXPECT_EQ(found[0].select(2, 9).abs().sum().item<double>(), 0) << name;
          EXPECT_EQ(found[1].select(2, 9).abs().sum().item<double>(), 0) << name;
        }
      }
}

// Sums over thousands of tokens: tensor cores cut off where they add. Nothing cancels in the output here; in
// the gradient of the query much does, and fp32 itself is off by more.
TEST_F(CudaFloatTiles, KeepTheirErrorInLongRows) {
  const EdgeShape shape{1, 1, 64, 8000};
  const EdgeSet edges = random_edges(shape, 0.5);
  Inputs in(shape, 32);
  in.value = in.value.abs() + 1;
  const Found expected = expected_of(in, edges);
  std::map<Float32Matmul, double> query_error;
  for (const Float32Matmul matmul : kAll) {
    const ForcedFloat32Matmul forced(matmul);
    const Found found = found_by(in, edges.to(at::kCUDA));
    expect_close(found[0], expected[0], matmul, "output");
    query_error[matmul] = relative_error(found[1], expected[1]);
    RecordProperty("query_" + std::string(to_string(matmul)),
                   std::to_string(query_error[matmul] * 1e6) + "e-6");
  }
  EXPECT_LE(query_error[Float32Matmul::kTf32], 1e-2);
  EXPECT_LE(query_error[Float32Matmul::kTf32x3],
            5 * std::max(query_error[Float32Matmul::kIeee], bound(Float32Matmul::kTf32x3)));
}

// Items of other lengths than the batch's: their queries and keys beyond have no edge.
TEST_F(CudaFloatTiles, TakeRaggedAndCausalEdges) {
  const EdgeShape shape{3, 2, 190, 190};
  at::Tensor mask = kit::random_mask(shape, 0.3, 5);
  mask.select(0, 1).narrow(1, 77, 113).fill_(false);
  mask.select(0, 1).narrow(2, 77, 113).fill_(false);
  mask.select(0, 2).fill_(false);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  const Inputs in(shape, 32);
  functional::EdgeAttentionOptions causal;
  causal.is_causal = true;
  for (const Float32Matmul matmul : kBoth) {
    const ForcedFloat32Matmul forced(matmul);
    expect_close(found_by(in, edges.to(at::kCUDA)), expected_of(in, edges), matmul, "ragged");
    expect_close(found_by(in, edges.to(at::kCUDA), causal), expected_of(in, edges, causal), matmul, "causal");
    // Tiles that nobody counted.
    expect_close(found_by(in, EdgeSet::from_trusted_tiles(shape, edges.to(at::kCUDA).tiles())),
                 expected_of(in, edges), matmul, "from tiles");
  }
}

TEST_F(CudaFloatTiles, PassOverEmptyTiles) {
  at::Tensor mask = at::zeros({1, 2, 512, 512}, at::kBool);
  for (int64_t n = 0; n < 512; n += 128) mask.narrow(2, n, 128).narrow(3, n, 128).fill_(true);
  mask.narrow(2, 300, 20).narrow(3, 10, 5).fill_(true);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  const Inputs in(edges.shape(), 64);
  for (const Float32Matmul matmul : kBoth) {
    const ForcedFloat32Matmul forced(matmul);
    expect_close(found_by(in, edges.to(at::kCUDA)), expected_of(in, edges), matmul, "");
  }
}

// The pairs that dropout removes are the reference's: a single other one would show far above the bound.
TEST_F(CudaFloatTiles, DropTheSameEdgesAsTheReference) {
  const EdgeShape shape{2, 2, 200, 170};
  const EdgeSet edges = random_edges(shape, 0.2);
  functional::EdgeAttentionOptions options;
  options.dropout_p = 0.3;
  options.random = {.seed = 3, .step = 4, .layer = 5};
  for (const Float32Matmul matmul : kAll)
    for (const int64_t dim : {16, 32, 64, 128}) {
      const ForcedFloat32Matmul forced(matmul);
      const Inputs in(shape, dim);
      expect_close(found_by(in, edges.to(at::kCUDA), options), expected_of(in, edges, options), matmul,
                   "head dim " + std::to_string(dim));
    }
}

// Logits far outside what exp can hold without a maximum, and NaN where no edge looks.
TEST_F(CudaFloatTiles, SurviveHugeLogitsAndUnreadNaN) {
  const EdgeShape shape{1, 2, 256, 256};
  at::Tensor mask = kit::random_mask(shape, 0.2, 5);
  mask.select(3, 5).fill_(false);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  for (const double dropout : {0.0, 0.3}) {
    Inputs in(shape, 32);
    in.query.select(2, 7).mul_(200);
    in.query.select(2, 8).mul_(1e-3).sub_(3 * in.key.select(2, 0));
    functional::EdgeAttentionOptions options;
    options.dropout_p = dropout;
    const at::Tensor expected = edge_attention(in.query.to(at::kDouble), in.key.to(at::kDouble),
                                               in.value.to(at::kDouble), edges, options);
    in.key.select(2, 5).fill_(NAN), in.value.select(2, 5).fill_(NAN);
    for (const Float32Matmul matmul : kBoth) {
      const ForcedFloat32Matmul forced(matmul);
      const at::Tensor found =
          edge_attention(in.query.cuda(), in.key.cuda(), in.value.cuda(), edges.to(at::kCUDA), options);
      // A logit of hundreds is off by 1e-5 in fp32 itself.
      EXPECT_LE(relative_error(found, expected), 10 * bound(matmul)) << to_string(matmul) << " " << dropout;
    }
  }
}

TEST_F(CudaFloatTiles, AreTheSameTwice) {
  const EdgeShape shape{2, 2, 500, 500};
  const EdgeSet edges = random_edges(shape, 0.2).to(at::kCUDA);
  for (const Float32Matmul matmul : kBoth)
    for (const int64_t dim : {32, 64}) {
      const ForcedFloat32Matmul forced(matmul);
      const Inputs in(shape, dim);
      const Found a = found_by(in, edges), b = found_by(in, edges);
      for (size_t n = 0; n < a.size(); ++n) EXPECT_TRUE(at::equal(a[n], b[n])) << kNames[n];
    }
}

// Torch's switch is followed, an explicit choice goes before it, and the reason says who chose.
TEST_F(CudaFloatTiles, FollowTorchsSwitch) {
  const EdgeShape shape{1, 2, 256, 256};
  const EdgeSet edges = random_edges(shape, 0.2).to(at::kCUDA);
  const Inputs in = Inputs(shape, 32).to(at::kCUDA, at::kFloat);
  const auto choice = [&] { return explain_attention(in.query, in.key, in.value, edges); };
  at::globalContext().setFloat32MatmulPrecision("highest");
  EXPECT_EQ(choice().implementation, "cuda float tiles");
  EXPECT_EQ(float32_matmul(), Float32Matmul::kTf32x3);
  EXPECT_EQ(float32_matmul_reason(), "torch does not allow TF32");
  at::globalContext().setFloat32MatmulPrecision("high");
  EXPECT_EQ(float32_matmul(), Float32Matmul::kTf32);
  EXPECT_EQ(float32_matmul_reason(), "torch allows TF32");
  {
    const ForcedFloat32Matmul forced(Float32Matmul::kIeee);
    const AttentionChoice found = choice();
    EXPECT_EQ(found.implementation, "cuda gather");
    const auto tiles = std::ranges::find(found.kernels, "cuda float tiles", &KernelAnswer::kernel);
    ASSERT_NE(tiles, found.kernels.end());
    EXPECT_THAT(tiles->refusal, HasSubstr("no IEEE products of float32 (set_float32_matmul)"));
  }
  at::globalContext().setFloat32MatmulPrecision("highest");
}

}  // namespace
}  // namespace edgewise::float_tiles_on_cuda
