// torch.ops.edgewise on CUDA tensors whose edges have a fault: nothing is read out of bounds, no call waits,
// and the fault is told later.
#include <ATen/core/dispatch/Dispatcher.h>
#include <edgewise/graph/edge_set.h>
#include <torch/csrc/autograd/autograd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kit/devices.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

class CudaCsr : public kit::CudaTest {};

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
        EXPECT_TRUE(at::equal(again, expected));
        const auto grads = torch::autograd::grad({again.to(at::kFloat).square().sum()}, {query, key, value});
        for (const at::Tensor& grad : grads) EXPECT_FALSE(grad.isnan().any().item<bool>());
        EXPECT_NO_THROW(synchronize());
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
}  // namespace edgewise
