// The averaged weights as numbers: decay min(d, (1 + t) / (10 + t)) at step t, in a loop and in a whole run
// from its first weights on.
#include <edgewise/train/weight_average.h>

#include <algorithm>
#include <map>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/scratch_folder.h"
#include "train/tiny_run.h"

namespace edgewise::train {
namespace {

double decay_at(int64_t step, double most) {
  const double t = static_cast<double>(step);
  return std::min(most, (1 + t) / (10 + t));
}

TEST(AverageValues, FollowTheirFormula) {
  torch::nn::Linear model(3, 2);
  model->to(at::kDouble);
  WeightAverage average(*model, 0.4);  // from step 5 on 0.4, before that less
  at::Tensor expected = model->weight.detach().clone();
  for (int64_t step = 1; step <= 8; ++step) {
    const torch::NoGradGuard guard;
    model->weight.copy_(at::full({2, 3}, static_cast<double>(step * step), at::kDouble));
    average.update(step);
    expected = decay_at(step, 0.4) * expected + (1 - decay_at(step, 0.4)) * model->weight;
    EXPECT_TRUE(at::allclose(average.state().at("weight"), expected, 1e-12, 0)) << step;
  }
}

TEST(AverageValues, OfARunBeginWithItsFirstWeights) {
  using namespace tiny_run;
  const kit::ScratchFolder scratch;
  const Recipe recipe =
      tiny_recipe({"train.eval_every=1", "train.checkpoint_every=1", "train.schedule=constant",
                   "train.warmup_steps=0", "train.average=0.9", "train.steps=6"});
  std::map<std::string, at::Tensor> expected;  // in fp64
  {
    TrainerOptions options;
    options.run_folder = scratch / "first";
    Trainer untrained(recipe, tiny_data(recipe), options);
    for (const auto& item : untrained.model().named_parameters())
      expected[item.key()] = item.value().detach().to(at::kDouble).clone();
  }
  int64_t looks = 0;
  run(recipe, scratch / "run", false, [&](int64_t step) {
    ++looks;
    const auto last = io::load_safetensors(scratch / "run/checkpoints/last.safetensors");
    for (auto& [name, average] : expected) {
      average =
          decay_at(step, 0.9) * average + (1 - decay_at(step, 0.9)) * last.tensors.at(name).to(at::kDouble);
      // Steps move weights by 1e-3: an average that is a step behind is off by a hundred times this.
      EXPECT_LE((last.tensors.at("average/" + name).to(at::kDouble) - average).abs().max().item<double>(),
                1e-6)
          << name << " at step " << step;
    }
  });
  EXPECT_EQ(looks, 6);
}

}  // namespace
}  // namespace edgewise::train
