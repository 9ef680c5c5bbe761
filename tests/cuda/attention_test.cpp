// The CUDA kernels of edge_attention against the reference in fp64.
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kit/devices.h"
#include "kit/random_inputs.h"
#include "kit/row_errors.h"
#include "ops/attention/cuda_limits.h"
#include "ops/attention/kernel_table.h"

namespace edgewise::attention_on_cuda {
namespace {

using functional::Backend;
using functional::edge_attention;
using ::testing::HasSubstr;

class CudaAttention : public kit::CudaTest {};

functional::EdgeAttentionOptions dropping(double p) {
  functional::EdgeAttentionOptions options;
  options.dropout_p = p;
  options.random = {.seed = 3, .step = 4, .layer = 5};
  return options;
}

struct Result {
  at::Tensor output, query, key, value;
};
Result run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const EdgeSet& edges,
           const at::Tensor& grad, Backend backend, double dropout_p = 0) {
  const at::Tensor query = q.detach().requires_grad_(), key = k.detach().requires_grad_(),
                   value = v.detach().requires_grad_();
  functional::EdgeAttentionOptions options = dropping(dropout_p);
  options.backend = backend;
  const at::Tensor output = edge_attention(query, key, value, edges, options);
  output.backward(grad);
  return {output.detach(), query.grad(), key.grad(), value.grad()};
}

struct Case {
  EdgeShape shape;
  int64_t dim;
  at::ScalarType dtype;
  double density;
  const char* kernel;
};
const std::vector<Case> kCases = {
    {{2, 3, 200, 333}, 32, at::kBFloat16, 0.2, "cuda tiles"},
    {{1, 2, 64, 64}, 64, at::kBFloat16, 0.5, "cuda tiles"},
    {{2, 2, 1000, 700}, 32, at::kBFloat16, 0.01, "cuda gather"},
    {{1, 2, 300, 500}, 64, at::kBFloat16, 0.01, "cuda gather"},
    {{1, 2, 100, 1601}, 32, at::kBFloat16, 0.025, "cuda windows and tiles"},
    {{1, 2, 333, 900}, 64, at::kBFloat16, 0.025, "cuda tiles"},
    {{2, 2, 1000, 700}, 16, at::kBFloat16, 0.01, "cuda gather"},
    {{1, 3, 200, 333}, 16, at::kBFloat16, 0.2, "cuda tiles"},
    {{1, 2, 333, 200}, 128, at::kBFloat16, 0.2, "cuda tiles"},
    {{2, 3, 100, 133}, 32, at::kFloat, 0.2, "cuda float tiles"},
    {{2, 3, 500, 633}, 32, at::kFloat, 0.005, "cuda gather"},
    {{1, 1, 1, 1}, 32, at::kBFloat16, 1.0, "cuda tiles"},
    {{2, 2, 130, 70}, 16, at::kFloat, 0.005, "cuda gather"},
    {{1, 2, 65, 129}, 128, at::kFloat, 0.005, "cuda gather"},
};

TEST_F(CudaAttention, AgreesWithTheReferenceForwardAndBackward) {
  for (const Case& c : kCases) {
    const auto make = [&](int64_t tokens, int64_t seed) {
      return kit::randn({c.shape.batch, c.shape.heads, tokens, c.dim}, seed, c.dtype);
    };
    const at::Tensor q = make(c.shape.queries, 1), k = make(c.shape.keys, 2), v = make(c.shape.keys, 3),
                     g = make(c.shape.queries, 4);
    at::Tensor mask = kit::random_mask(c.shape, c.density, 5);
    if (c.shape.queries > 9) mask.select(2, 9).fill_(false);
    const EdgeSet edges = EdgeSet::from_mask(mask);
    const Result expected = run(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), edges,
                                g.to(at::kDouble), Backend::kReference);
    const EdgeSet device_edges = edges.to(at::kCUDA);
    const ops::AttentionInputs call = ops::attention_inputs(q.cuda(), k.cuda(), v.cuda(), device_edges, {});
    EXPECT_STREQ(ops::choose_kernel(call).name, c.kernel);
    const Result found = run(q.cuda(), k.cuda(), v.cuda(), device_edges, g.cuda(), Backend::kKernel);
    const double limit = c.dtype == at::kFloat ? 2e-5 : 1.5e-2;
    EXPECT_TRUE(kit::rows_agree(found.output, expected.output, limit)) << to_string(c.shape);
    EXPECT_TRUE(kit::rows_agree(found.query, expected.query, limit)) << to_string(c.shape);
    EXPECT_TRUE(kit::rows_agree(found.key, expected.key, limit)) << to_string(c.shape);
    EXPECT_TRUE(kit::rows_agree(found.value, expected.value, limit)) << to_string(c.shape);
    if (c.shape.queries > 9) {
      EXPECT_EQ(found.output.select(2, 9).abs().sum().item<double>(), 0);
      EXPECT_EQ(found.query.select(2, 9).abs().sum().item<double>(), 0);
    }
  }
}

// Of one call, a head with few edges goes by windows and the other by tiles; nobody has counted them on the
// host.
TEST_F(CudaAttention, TakesEachHeadItsOwnWay) {
  at::Tensor key_side = kit::rand({2, 2, 520, 32}, 2) / 16;
  key_side.select(1, 0).mul_(0.02);
  SampleOptions sampling;
  sampling.random = {.seed = 5};
  const EdgeSet edges = sample_sbm_edges(kit::rand({2, 2, 450, 32}, 1).cuda(), key_side.cuda(), sampling);
  ASSERT_FALSE(edges.has_csr());
  for (const int64_t dim : {32, 64}) {
    const auto make = [&](int64_t tokens, int64_t seed) {
      return kit::randn({2, 2, tokens, dim}, seed, at::kBFloat16);
    };
    const at::Tensor q = make(450, 3), k = make(520, 4), v = make(520, 5);
    const ops::AttentionInputs call = ops::attention_inputs(q.cuda(), k.cuda(), v.cuda(), edges, {});
    EXPECT_STREQ(ops::choose_kernel(call).name, "cuda windows and tiles");
    const at::Tensor found = edge_attention(q.cuda(), k.cuda(), v.cuda(), edges);
    EXPECT_FALSE(edges.has_csr());
    const EdgeSet counted = EdgeSet::from_trusted_tiles(edges.shape(), edges.tiles()).to(at::kCPU);
    EXPECT_LT(counted.degrees().select(1, 0).to(at::kDouble).mean().item<double>(), 0.02 * 520);
    EXPECT_GT(counted.degrees().select(1, 1).to(at::kDouble).mean().item<double>(), 0.1 * 520);
    const at::Tensor expected =
        edge_attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), counted);
    EXPECT_TRUE(kit::rows_agree(found.select(1, 0), expected.select(1, 0), 1e-2)) << dim;
    EXPECT_TRUE(kit::rows_agree(found.select(1, 1), expected.select(1, 1), 1e-2)) << dim;
  }
}

// The same backward, with and without dropout, and twice the same.
TEST_F(CudaAttention, TakesEachHeadItsOwnWayBack) {
  at::Tensor mask = kit::random_mask({2, 2, 450, 520}, 0.015, 5);
  mask.select(1, 1).logical_or_(kit::random_mask({2, 1, 450, 520}, 0.2, 6).select(1, 0));
  const EdgeSet edges = EdgeSet::from_mask(mask),
                on_device = EdgeSet::from_trusted_tiles(edges.shape(), edges.to(at::kCUDA).tiles());
  for (const int64_t dim : {32, 64})
    for (const double dropout : {0.0, 0.3}) {
      const auto make = [&](int64_t tokens, int64_t seed) {
        return kit::randn({2, 2, tokens, dim}, seed, at::kBFloat16);
      };
      const at::Tensor q = make(450, 1), k = make(520, 2), v = make(520, 3), g = make(450, 4);
      const Result expected = run(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), edges,
                                  g.to(at::kDouble), Backend::kReference, dropout);
      const auto found_by = [&](const EdgeSet& set) {
        return run(q.cuda(), k.cuda(), v.cuda(), set, g.cuda(), Backend::kKernel, dropout);
      };
      const Result found = found_by(on_device), again = found_by(on_device);
      for (const int64_t head : {0, 1}) {
        const auto agree = [&](const at::Tensor& f, const at::Tensor& e) {
          return kit::rows_agree(f.select(1, head), e.select(1, head), 1.5e-2);
        };
        const std::string name =
            std::to_string(dim) + " " + std::to_string(head) + " " + std::to_string(dropout);
        EXPECT_TRUE(agree(found.output, expected.output)) << name;
        EXPECT_TRUE(agree(found.query, expected.query)) << name;
        EXPECT_TRUE(agree(found.key, expected.key)) << name;
        EXPECT_TRUE(agree(found.value, expected.value)) << name;
      }
      EXPECT_TRUE(at::equal(found.output, again.output) && at::equal(found.query, again.query) &&
                  at::equal(found.key, again.key) && at::equal(found.value, again.value));
    }
}

// One key in the last block, windows with a single entry, and dirt in shared memory from a call before.
TEST_F(CudaAttention, WindowsWithASingleEntryReadNothingElse) {
  at::Tensor mask = kit::random_mask({1, 2, 257, 257}, 0.01, 5);
  mask.select(3, 256).fill_(false);
  mask.select(1, 1).fill_(false);
  for (int64_t window = 0; window < 17; ++window)
    mask.select(1, 1)
        .select(1, window < 16 ? 16 * window + 3 : 256)
        .select(1, window % 2 ? 256 : 9 * window)
        .fill_(true);
  mask.select(1, 0).select(1, 5).select(1, 256).fill_(true);
  const EdgeSet edges = EdgeSet::from_mask(mask),
                on_device = EdgeSet::from_trusted_tiles(edges.shape(), edges.to(at::kCUDA).tiles());
  for (const int64_t dim : {32, 64})
    for (const double dropout : {0.0, 0.3}) {
      const auto make = [&](int64_t seed) { return kit::randn({1, 2, 257, dim}, seed, at::kBFloat16); };
      const at::Tensor q = make(1), k = make(2), v = make(3), g = make(4),
                       dirt = at::full_like(q, NAN).cuda();
      run(dirt, dirt, dirt, on_device, dirt, Backend::kKernel, dropout);
      const Result expected = run(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), edges,
                                  g.to(at::kDouble), Backend::kReference, dropout),
                   found = run(q.cuda(), k.cuda(), v.cuda(), on_device, g.cuda(), Backend::kKernel, dropout);
      EXPECT_TRUE(kit::rows_agree(found.output, expected.output, 1.5e-2)) << dim << " " << dropout;
      EXPECT_TRUE(kit::rows_agree(found.query, expected.query, 1.5e-2)) << dim << " " << dropout;
      EXPECT_TRUE(kit::rows_agree(found.key, expected.key, 1.5e-2)) << dim << " " << dropout;
      EXPECT_TRUE(kit::rows_agree(found.value, expected.value, 1.5e-2)) << dim << " " << dropout;
    }
}

// Tiles without edges are passed over, in both passes and beside full ones.
TEST_F(CudaAttention, PassesOverEmptyTiles) {
  at::Tensor mask = at::zeros({1, 2, 512, 512}, at::kBool);
  for (int64_t n = 0; n < 512; n += 128) mask.narrow(2, n, 128).narrow(3, n, 128).fill_(true);
  mask.narrow(2, 300, 20).narrow(3, 10, 5).fill_(true);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  const auto make = [&](int64_t seed) { return kit::randn({1, 2, 512, 32}, seed, at::kBFloat16); };
  const at::Tensor q = make(1), k = make(2), v = make(3), g = make(4);
  const Result expected = run(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), edges,
                              g.to(at::kDouble), Backend::kReference);
  const Result found = run(q.cuda(), k.cuda(), v.cuda(), edges.to(at::kCUDA), g.cuda(), Backend::kKernel);
  EXPECT_TRUE(kit::rows_agree(found.output, expected.output, 1.5e-2));
  EXPECT_TRUE(kit::rows_agree(found.query, expected.query, 1.5e-2));
  EXPECT_TRUE(kit::rows_agree(found.key, expected.key, 1.5e-2));
  EXPECT_TRUE(kit::rows_agree(found.value, expected.value, 1.5e-2));
}

// Logits far outside what exp can hold without a maximum, and NaN where no edge looks.
TEST_F(CudaAttention, SurvivesHugeLogitsAndUnreadNaN) {
  for (const auto& [density, dropout] :
       std::vector<std::pair<double, double>>{{0.2, 0}, {0.01, 0}, {0.2, 0.3}, {0.01, 0.3}}) {
    const EdgeShape shape{1, 2, 256, 256};
    at::Tensor q = kit::randn({1, 2, 256, 32}, 1, at::kBFloat16),
               k = kit::randn({1, 2, 256, 32}, 2, at::kBFloat16),
               v = kit::randn({1, 2, 256, 32}, 3, at::kBFloat16);
    q.select(2, 7).mul_(200);
    q.select(2, 8).mul_(1e-3).sub_(3 * k.select(2, 0));
    at::Tensor mask = kit::random_mask(shape, density, 5);
    mask.select(3, 5).fill_(false);
    const EdgeSet edges = EdgeSet::from_mask(mask);
    const at::Tensor expected =
        edge_attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), edges, dropping(dropout));
    k.select(2, 5).fill_(NAN), v.select(2, 5).fill_(NAN);
    const at::Tensor found =
        edge_attention(q.cuda(), k.cuda(), v.cuda(), edges.to(at::kCUDA), dropping(dropout));
    EXPECT_TRUE(kit::rows_agree(found, expected, 1e-2)) << density << " " << dropout;
  }
}

// Dropout removes the same pairs on every device, by tiles and by windows. Weights are nearly equal and
// values and gradients +-1, so a single pair that went the other way would show in one number.
TEST_F(CudaAttention, DropsTheSameEdgesAsTheReference) {
  const EdgeShape shape{2, 2, 600, 550};
  const EdgeSet edges = EdgeSet::from_mask(kit::random_mask(shape, 0.02, 5)),
                counted = edges.to(at::kCUDA),  // by windows, as the host knows
      uncounted = EdgeSet::from_trusted_tiles(shape, counted.tiles()),
                many = EdgeSet::from_mask(kit::random_mask(shape, 0.1, 6));
  for (const int64_t dim : {32, 64, 16}) {
    const auto make = [&](int64_t tokens, int64_t seed) {
      return kit::randn({2, 2, tokens, dim}, seed, at::kBFloat16);
    };
    const at::Tensor q = make(600, 1) * 0.1, k = make(550, 2), v = make(550, 3).sign(),
                     g = make(600, 4).sign();
    const auto check = [&](const EdgeSet& on_cpu, const EdgeSet& on_device, double limit, const char* name) {
      const Result expected = run(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), on_cpu,
                                  g.to(at::kDouble), Backend::kReference, 0.1),
                   found = run(q.cuda(), k.cuda(), v.cuda(), on_device, g.cuda(), Backend::kKernel, 0.1);
      const auto largest = [](const at::Tensor& f, const at::Tensor& e) {
        return (f.to(at::kCPU, at::kDouble) - e).abs().max().item<double>();
      };
      EXPECT_LE(largest(found.output, expected.output), limit) << name << " " << dim;
      EXPECT_LE(largest(found.value, expected.value), limit) << name << " " << dim;
      EXPECT_TRUE(kit::rows_agree(found.query, expected.query, 1.5e-2)) << name << " " << dim;
      EXPECT_TRUE(kit::rows_agree(found.key, expected.key, 1.5e-2)) << name << " " << dim;
    };
    // A pair is worth 1 / 30 at least among the few edges of a row, 1 / 90 among many.
    check(edges, counted, 0.02, "counted");
    check(edges, uncounted, 0.02, "uncounted");
    check(many, many.to(at::kCUDA), 0.006, "tiles");
  }
}

TEST_F(CudaAttention, IsTheSameTwice) {
  const EdgeShape shape{2, 2, 500, 500};
  const auto make = [&](int64_t seed) { return kit::randn({2, 2, 500, 32}, seed, at::kBFloat16).cuda(); };
  for (const double density : {0.2, 0.01}) {
    const EdgeSet edges = EdgeSet::from_mask(kit::random_mask(shape, density, 5)).to(at::kCUDA);
    const Result a = run(make(1), make(2), make(3), edges, make(4), Backend::kKernel);
    const Result b = run(make(1), make(2), make(3), edges, make(4), Backend::kKernel);
    EXPECT_TRUE(at::equal(a.output, b.output) && at::equal(a.query, b.query) && at::equal(a.key, b.key) &&
                at::equal(a.value, b.value))
        << density;
  }
}

// More than 2^32 bytes of tiles and 2^31 places of lists: the last item is what it is alone.
TEST_F(CudaAttention, WindowsOfManyItemsAreThoseOfOne) {
  const EdgeShape shape{136, 1, 16384, 16384}, alone{1, 1, 16384, 16384};
  if (!ops::windows_fit(shape, ops::cuda_device(at::Device(at::kCUDA, 0)).bytes))
    GTEST_SKIP() << "needs a GPU with some 110 GB";
  const auto bf16 = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
  const EdgeSet edges = sample_sbm_edges(at::full({shape.batch, 1, shape.queries, 8}, 0.5, bf16),
                                         at::full({shape.batch, 1, shape.keys, 8}, 0.001, bf16), {});
  ASSERT_FALSE(edges.has_csr());
  const auto make = [&] { return at::randn({shape.batch, 1, shape.queries, 32}, bf16); };
  const at::Tensor query = make(), key = make(), value = make(), grad = make();
  const auto attend = [&](const EdgeSet& over, int64_t first, int64_t items, double dropout_p) {
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(0, first, items).contiguous().requires_grad_();
    };
    const at::Tensor q = part(query), k = part(key), v = part(value);
    functional::EdgeAttentionOptions options = dropping(dropout_p);
    options.random.first_item = first;
    const at::Tensor output = edge_attention(q, k, v, over, options);
    output.backward(grad.narrow(0, first, items));
    return std::vector<at::Tensor>{output.detach(), q.grad(), k.grad(), v.grad()};
  };
  for (const double dropout_p : {0.0, 0.1}) {
    const std::vector<at::Tensor> whole = attend(edges, 0, shape.batch, dropout_p);
    for (const int64_t item : {int64_t{0}, shape.batch / 2, shape.batch - 1}) {
      const EdgeSet own = EdgeSet::from_trusted_tiles(alone, edges.tiles().narrow(0, item, 1).contiguous());
      const std::vector<at::Tensor> expected = attend(own, item, 1, dropout_p);
      for (size_t n = 0; n < whole.size(); ++n)
        EXPECT_TRUE(at::equal(whole[n].narrow(0, item, 1), expected[n]))
            << "tensor " << n << " of item " << item << ", dropout " << dropout_p;
    }
  }
}

TEST_F(CudaAttention, SaysWhyItDoesNotTakeACall) {
  const EdgeSet edges = EdgeSet::full({1, 1, 8, 8}, at::kCUDA);
  const at::Tensor x = at::randn({1, 1, 8, 24}, at::kCUDA);
  functional::EdgeAttentionOptions options;
  options.backend = Backend::kKernel;
  try {
    edge_attention(x, x, x, edges, options);
    FAIL() << "expected an error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("head dim 24"));
  }
  EXPECT_EQ(edge_attention(x, x, x, edges).sizes(), x.sizes());  // the reference takes it
}

}  // namespace
}  // namespace edgewise::attention_on_cuda
