// torch.ops.edgewise on CUDA tensors whose edges have a fault: nothing is read out of bounds, no call waits,
// and the fault is told later.
#include <ATen/core/dispatch/Dispatcher.h>
#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/explain.h>
#include <torch/csrc/autograd/autograd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kit/devices.h"
#include "kit/random_inputs.h"

namespace edgewise::csr_on_cuda {
namespace {

class CudaCsr : public kit::CudaTest {
 protected:
  void SetUp() override {
    kit::CudaTest::SetUp();
    if (IsSkipped()) return;
    const at::Tensor x = kit::randn({1, 1, 2, 32}, 1).to(at::kBFloat16).cuda();
    if (explain_attention(x, x, x, EdgeSet::full({1, 1, 2, 2}, x.device()))
            .implementation.starts_with("reference"))
      GTEST_SKIP() << "no kernels for this GPU";
  }
};

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& offsets, const at::Tensor& columns) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("edgewise::edge_attention", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const at::Tensor&, std::optional<double>)>();
  return op.call(query, key, value, offsets, columns, std::nullopt);
}
void synchronize() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("edgewise::synchronize", "").typed<void()>();
  op.call();
}

TEST_F(CudaCsr, AFaultIsToldLaterAndHarmsNobody) {
  if (const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING"); blocking && *blocking == '1')
    GTEST_SKIP() << "CUDA_LAUNCH_BLOCKING=1: faults are raised at once";
  // Dense rows take tiles, rare edges the kernel over lists, head dim 24 the reference.
  for (const double density : {0.3, 0.01})
    for (const int64_t dim : {32, 24})
      for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
        const auto input = [&](int seed) {
          return kit::randn({2, 3, 200, dim}, seed).to(dtype).cuda().requires_grad_();
        };
        const at::Tensor query = input(1), key = input(2), value = input(3);
        const EdgeSet edges = EdgeSet::from_mask(kit::rand({2, 3, 200, 200}, 4) < density);
        const at::Tensor offsets = edges.row_offsets().cuda(), columns = edges.col_indices().cuda();
        const at::Tensor expected = attention(query, key, value, offsets, columns).detach();
        EXPECT_NO_THROW(synchronize());
        EXPECT_FALSE(expected.isnan().any().item<bool>());

        const at::Tensor beyond = columns.clone(), wild = offsets.clone();
        beyond[beyond.size(0) / 2] = 1 << 30;
        wild[77] = int64_t{1} << 40;
        const at::Tensor bad = attention(query, key, value, offsets, beyond);
        EXPECT_TRUE(bad.isnan().all().item<bool>());
        EXPECT_THROW(synchronize(), c10::IndexError);
        EXPECT_NO_THROW(synchronize());

        EXPECT_TRUE(attention(query, key, value, wild, columns).isnan().all().item<bool>());
        try {
          attention(query, key, value, offsets, columns);
          ADD_FAILURE() << "expected the fault of the call before";
        } catch (const c10::ValueError& error) {
          EXPECT_THAT(error.what_without_backtrace(),
                      testing::AllOf(testing::HasSubstr("row_offsets that never fall"),
                                     testing::HasSubstr("an earlier call")));
        }
        // A fault that was raised is over.
        const at::Tensor again = attention(query, key, value, offsets, columns);
        // The reference adds up in no fixed order.
        EXPECT_TRUE(dim == 24 ? at::allclose(again, expected, 1e-2, 1e-2) : at::equal(again, expected));
        const auto grads = torch::autograd::grad({again.to(at::kFloat).square().sum()}, {query, key, value});
        for (const at::Tensor& grad : grads) EXPECT_FALSE(grad.isnan().any().item<bool>());
        EXPECT_NO_THROW(synchronize());
      }
}

// A CSR that changes between the passes is a fault of the second; strides are no fault at all.
TEST_F(CudaCsr, IsCheckedInEveryPass) {
  if (const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING"); blocking && *blocking == '1')
    GTEST_SKIP() << "CUDA_LAUNCH_BLOCKING=1: faults are raised at once";
  const at::Tensor x = kit::randn({1, 2, 150, 32}, 1).to(at::kBFloat16).cuda().requires_grad_();
  const EdgeSet edges = EdgeSet::from_mask(kit::rand({1, 2, 150, 150}, 2) < 0.2);
  const at::Tensor offsets = edges.row_offsets().cuda(), columns = edges.col_indices().cuda();
  const auto spread = [](const at::Tensor& t) { return at::stack({t, t}, 1).select(1, 0); };
  const at::Tensor expected = attention(x, x, x, offsets, columns);
  EXPECT_TRUE(at::equal(attention(x, x, x, spread(offsets), spread(columns)), expected));
  EXPECT_TRUE(expected.is_contiguous());

  const at::Tensor loss = expected.to(at::kFloat).square().sum();
  columns.data()[3] = -1;  // behind autograd's back, which would refuse
  const at::Tensor grad = torch::autograd::grad({loss}, {x})[0];
  EXPECT_TRUE(grad.isnan().all().item<bool>());
  EXPECT_THROW(synchronize(), c10::IndexError);
}

// Numbers per edge, which the kernels do not give.
TEST_F(CudaCsr, CreditIsThatOfTheCpu) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("edgewise::edge_credit", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                               const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                               std::optional<double>, c10::string_view, c10::string_view)>();
  const EdgeSet edges = EdgeSet::from_mask(kit::rand({2, 2, 70, 80}, 4) < 0.3);
  const at::Tensor query = kit::randn({2, 2, 70, 32}, 1), key = kit::randn({2, 2, 80, 32}, 2),
                   value = kit::randn({2, 2, 80, 32}, 3), grad = kit::randn({2, 2, 70, 32}, 5);
  for (const char* estimator : {"paper", "logit", "counterfactual"}) {
    const at::Tensor expected = op.call(grad, query, key, value, edges.row_offsets(), edges.col_indices(),
                                        std::nullopt, estimator, "softmax");
    const at::Tensor found =
        op.call(grad.cuda(), query.cuda(), key.cuda(), value.cuda(), edges.row_offsets().cuda(),
                edges.col_indices().cuda(), std::nullopt, estimator, "softmax");
    EXPECT_TRUE(at::allclose(found.cpu(), expected, 1e-3, 1e-4)) << estimator;
  }
}

TEST_F(CudaCsr, MoreEdgesThanPairsAreRefusedAtOnce) {
  const at::Tensor x = kit::randn({1, 1, 2, 32}, 1).cuda();
  const at::Tensor offsets = at::tensor({0, 3, 5}, at::kLong).cuda(),
                   columns = at::zeros({5}, at::kInt).cuda();
  EXPECT_THROW(attention(x, x, x, offsets, columns), c10::ValueError);
  EXPECT_NO_THROW(synchronize());
}

}  // namespace
}  // namespace edgewise::csr_on_cuda
