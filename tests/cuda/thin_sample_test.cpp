// Sampling by thinning on a GPU: the law, what the random numbers depend on, and which rows take part.
#include <edgewise/ops/sample.h>

#include <gtest/gtest.h>

#include "kit/devices.h"
#include "kit/law_check.h"
#include "kit/random_inputs.h"

namespace edgewise::thinning_on_cuda {
namespace {

class CudaThinning : public kit::CudaTest {};

constexpr int64_t kDraws = 3000;

// Memberships with every p below 1/2, so that no row is left to the direct sampler.
struct Model {
  at::Tensor query = kit::rand({2, 20, 8}, 1) * 0.5, key = kit::rand({2, 70, 8}, 2) * 0.06;
};

SampleOptions thinning(uint64_t seed) {
  SampleOptions options;
  options.sampler = Sampler::kThinning;
  options.random = {.seed = seed, .step = 3, .layer = 1};
  return options;
}
EdgeSet draw(const at::Tensor& query, const at::Tensor& key, const SampleOptions& options) {
  return sample_sbm_edges(query.cuda(), key.cuda(), options);
}
at::Tensor mask_of(const EdgeSet& edges) {
  return edges.to_mask().cpu();
}

TEST_F(CudaThinning, FollowsTheLaw) {
  for (const EdgeLaw law : {EdgeLaw::kBernoulli, EdgeLaw::kPoisson})
    for (const double exploration : {0.0, 0.05})
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        const Model model;
        const at::Tensor query = model.query.to(dtype), key = model.key.to(dtype);
        SampleOptions options = thinning(17);
        options.law = law;
        options.exploration = exploration;
        const auto repeat = [&](const at::Tensor& t) { return t.unsqueeze(0).expand({kDraws, -1, -1, -1}); };
        const EdgeSet edges = draw(repeat(query), repeat(key), options);
        options.sampler = Sampler::kDirect;
        EXPECT_FALSE(at::equal(mask_of(edges), mask_of(draw(repeat(query), repeat(key), options))))
            << "the direct sampler drew these";
        const at::Tensor p =
            at::matmul(query.to(at::kDouble), key.to(at::kDouble).transpose(1, 2)) + exploration;
        const kit::LawCheck check =
            kit::check_law(mask_of(edges), law == EdgeLaw::kBernoulli ? p : -(-p).expm1());
        EXPECT_TRUE(check.holds(4.7)) << to_string(law) << " " << exploration << " " << check.text();
        EXPECT_TRUE(at::equal(edges.edges_per_head().cpu(), mask_of(edges).sum({2, 3})));
      }
}

// Many keys: several rounds of 32 points in a row.
TEST_F(CudaThinning, FollowsTheLawInLongRows) {
  const at::Tensor query = kit::rand({2, 3, 4}, 9) * 0.5, key = kit::rand({2, 900, 4}, 10) * 0.2;
  const auto repeat = [&](const at::Tensor& t) { return t.unsqueeze(0).expand({600, -1, -1, -1}); };
  const kit::LawCheck check = kit::check_law(mask_of(draw(repeat(query), repeat(key), thinning(5))),
                                             at::matmul(query, key.transpose(1, 2)));
  EXPECT_TRUE(check.holds(4.7)) << check.text();
}

TEST_F(CudaThinning, DependsOnTheStreamAloneAndNotOnBatchMates) {
  const at::Tensor query = kit::rand({4, 2, 150, 8}, 1) * 0.5, key = kit::rand({4, 2, 130, 8}, 2) * 0.06;
  const at::Tensor together = mask_of(draw(query, key, thinning(99)));
  EXPECT_TRUE(at::equal(together, mask_of(draw(query, key, thinning(99)))));
  EXPECT_FALSE(at::equal(together, mask_of(draw(query, key, thinning(100)))));
  SampleOptions alone = thinning(99);
  alone.random.first_item = 2;
  EXPECT_TRUE(
      at::equal(together.narrow(0, 2, 1), mask_of(draw(query.narrow(0, 2, 1), key.narrow(0, 2, 1), alone))));
  // Padding, with whatever stands in it, changes nothing for the rest, also beyond the next power of two.
  const auto padded = [](const at::Tensor& t) { return at::cat({t, at::full({4, 2, 500, 8}, NAN)}, 2); };
  const auto valid = [](int64_t tokens) {
    return at::cat({at::ones({4, tokens}, at::kBool), at::zeros({4, 500}, at::kBool)}, 1);
  };
  SampleOptions masked = thinning(99);
  masked.query_mask = valid(150).cuda();
  masked.key_mask = valid(130).cuda();
  const at::Tensor longer = mask_of(draw(padded(query), padded(key), masked));
  EXPECT_TRUE(at::equal(together, longer.narrow(2, 0, 150).narrow(3, 0, 130)));
  EXPECT_EQ(longer.sum().item<int64_t>(), together.sum().item<int64_t>());
}

TEST_F(CudaThinning, StaysWithinMasksAndCausality) {
  const at::Tensor query = kit::rand({2, 2, 300, 8}, 1) * 0.5, key = kit::rand({2, 2, 300, 8}, 2) * 0.06;
  SampleOptions options = thinning(7);
  options.is_causal = true;
  options.key_mask = (kit::rand({2, 300}, 3) < 0.8).cuda();
  options.query_mask = (kit::rand({2, 300}, 4) < 0.8).cuda();
  const at::Tensor found = mask_of(draw(query, key, options));
  const at::Tensor allowed = at::ones({300, 300}, at::kBool)
                                 .tril()
                                 .logical_and(options.key_mask->cpu().view({2, 1, 1, 300}))
                                 .logical_and(options.query_mask->cpu().view({2, 1, 300, 1}));
  EXPECT_EQ(found.logical_and(allowed.logical_not()).sum().item<int64_t>(), 0);
  const double expected = at::matmul(query, key.transpose(2, 3)).masked_select(allowed).sum().item<double>();
  EXPECT_NEAR(found.sum().item<double>(), expected, 5 * std::sqrt(expected));
}

// By default each block of rows goes the way its probabilities say: sparse ones thin, dense ones draw the
// very edges of the direct sampler.
TEST_F(CudaThinning, LeavesDenseRowsToTheDirectSampler) {
  const at::Tensor query = kit::rand({1, 2, 256, 32}, 1);
  at::Tensor key = kit::rand({1, 2, 256, 32}, 2) / 32;
  key.select(1, 0).mul_(0.04);
  SampleOptions options = thinning(3);
  options.sampler = Sampler::kAuto;
  const at::Tensor found = mask_of(draw(query, key, options));
  options.sampler = Sampler::kDirect;
  const at::Tensor direct = mask_of(draw(query, key, options));
  EXPECT_FALSE(at::equal(found.select(1, 0), direct.select(1, 0)));
  EXPECT_TRUE(at::equal(found.select(1, 1), direct.select(1, 1)));
}

}  // namespace
}  // namespace edgewise::thinning_on_cuda
