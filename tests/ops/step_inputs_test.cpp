// What a recorded pass reads from the host: worked out again for the pass that is replayed.
#include "ops/step_inputs.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ops/streams.h"

namespace edgewise::ops {
namespace {

constexpr EdgeShape kShape{2, 3, 5, 5};

TEST(StepInputs, StreamsBelongToTheReplayedPass) {
  StepInputs inputs(at::kCPU);
  const RandomStream pass{.seed = 3, .step = 7, .layer = 0, .first_item = 4};
  RandomStream layer = pass;
  layer.layer += 2;
  at::Tensor keys;
  {
    const StepInputs::Recording recording(inputs);
    keys = stream_keys_on(at::kCPU, layer, kernels::Purpose::kEdges, kShape);
  }
  inputs.refresh({pass, pass});
  EXPECT_TRUE(keys.equal(stream_keys(layer, kernels::Purpose::kEdges, kShape)));
  // Another step, an earlier item, another draw.
  const RandomStream other{.seed = 3, .step = 2, .layer = 10, .first_item = 1};
  inputs.refresh({pass, other});
  const RandomStream shifted{.seed = 3, .step = 2, .layer = 12, .first_item = 1};
  EXPECT_TRUE(keys.equal(stream_keys(shifted, kernels::Purpose::kEdges, kShape)));
}

TEST(StepInputs, NumbersFollowTheHost) {
  StepInputs inputs(at::kCPU);
  double now = 4;
  const HostNumber changing{now, [&] { return now; }}, fixed{4};
  const at::Tensor x = at::full({3}, 6.0f);
  at::Tensor factor;
  {
    const StepInputs::Recording recording(inputs);
    factor = inputs.add([&](const StreamShift&) { return at::scalar_tensor(now, at::kDouble); });
    EXPECT_TRUE(times(x, fixed).equal(at::full({3}, 24.0f)));  // needs no place
    // What they compute is seen when a graph is replayed (tests/cuda/graph_test.cpp).
    EXPECT_EQ(times(x, changing).scalar_type(), at::kFloat);
    EXPECT_EQ(over(x, at_least_one(changing)).scalar_type(), at::kFloat);
  }
  now = 8;
  inputs.refresh({});
  EXPECT_EQ(factor.item<double>(), 8);
  // Not recorded: as ever.
  EXPECT_TRUE(over(x, changing).equal(at::full({3}, 1.5f)));
  EXPECT_EQ(at_least_one({0.25, [&] { return now; }}).value, 1);
  EXPECT_EQ(at_least_one({0.25, [&] { return now; }}).again(), 8);
}

TEST(StepInputs, ManyPlacesOfAllTypes) {
  StepInputs inputs(at::kCPU);
  std::vector<at::Tensor> places;
  int64_t base = 0;
  const auto value = [&](int64_t n) { return at::arange(base + n, base + n + 1000 * (n + 1), at::kLong); };
  for (int64_t n = 0; n < 40; ++n) places.push_back(inputs.add([=](const StreamShift&) { return value(n); }));
  const at::Tensor mask =
      inputs.add([&](const StreamShift&) { return at::arange(5).remainder(2) == base % 2; });
  for (const int64_t start : {0, 7}) {
    base = start;
    inputs.refresh({});
    for (int64_t n = 0; n < 40; ++n) EXPECT_TRUE(places[static_cast<size_t>(n)].equal(value(n))) << n;
    EXPECT_TRUE(mask.equal(at::arange(5).remainder(2) == start % 2));
  }
}

TEST(StepInputs, OneRecordingAtATime) {
  StepInputs inputs(at::kCPU), others(at::kCPU);
  {
    const StepInputs::Recording recording(inputs);
    EXPECT_EQ(StepInputs::recording(), &inputs);
    EXPECT_THROW(StepInputs::Recording{others}, c10::Error);
  }
  EXPECT_EQ(StepInputs::recording(), nullptr);
}

}  // namespace
}  // namespace edgewise::ops
