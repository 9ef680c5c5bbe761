// Steps of a training on a GPU: the update in one kernel, and numbers that are read while it is at the next
// step.
#include <filesystem>
#include <limits>

#include <edgewise/data/characters.h>
#include <edgewise/graph/mask_counts.h>
#include <edgewise/train/optimizer.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/trainer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/devices.h"
#include "kit/recorded.h"
#include "kit/scratch_folder.h"

namespace edgewise::train::steps_on_cuda {
namespace {

class CudaStep : public kit::CudaTest {};

// Gradients of step n: the same on both devices.
void set_gradients(torch::nn::Linear& model, int64_t n, double factor) {
  for (at::Tensor& parameter : model->parameters()) {
    const at::Tensor numbers = at::arange(parameter.numel(), at::kFloat).add_(static_cast<double>(n)).sin_();
    parameter.mutable_grad() = (numbers * factor).reshape(parameter.sizes()).to(parameter.device());
  }
}

TEST_F(CudaStep, OptimizerDoesWhatItDoesOnACpu) {
  torch::nn::Linear cpu(70, 30), gpu(70, 30);
  {
    torch::NoGradGuard no_grad;
    gpu->weight.copy_(cpu->weight);
    gpu->bias.copy_(cpu->bias);
  }
  gpu->to(at::kCUDA);
  const OptimizerOptions options{.beta2 = 0.98, .eps = 1e-6, .weight_decay = 0.1};
  Optimizer on_cpu(*cpu, options), on_gpu(*gpu, options);
  for (int64_t n = 0; n < 20; ++n) {
    const double factor = n % 3 == 0 ? 1 : 1e-3;  // above and below the norm that is allowed
    set_gradients(cpu, n, factor);
    set_gradients(gpu, n, factor);
    const SchedulePoint point{.learning_rate = 1e-2, .beta1 = 0.9 - 0.01 * static_cast<double>(n)};
    const at::Tensor cpu_norm = on_cpu.gradient_norm(), gpu_norm = on_gpu.gradient_norm();
    EXPECT_NEAR(gpu_norm.item<double>() / cpu_norm.item<double>(), 1, 1e-6);
    on_cpu.step(point, cpu_norm, 0.5);
    on_gpu.step(point, gpu_norm, 0.5);
  }
  EXPECT_LT((cpu->weight - gpu->weight.cpu()).abs().max().item<double>(), 2e-6);
  EXPECT_LT((cpu->bias - gpu->bias.cpu()).abs().max().item<double>(), 2e-6);
  const auto cpu_state = on_cpu.state(), gpu_state = on_gpu.state();
  ASSERT_EQ(cpu_state.size(), gpu_state.size());
  for (const auto& [name, tensor] : cpu_state)
    EXPECT_LT((tensor - gpu_state.at(name).cpu()).abs().max().item<double>(), 2e-6) << name;
}

TEST_F(CudaStep, GradientsThatAreNotFiniteLeaveTheParametersAlone) {
  torch::nn::Linear model(8, 4);
  model->to(at::kCUDA);
  Optimizer optimizer(*model);
  const at::Tensor before = model->weight.detach().clone();
  set_gradients(model, 0, std::numeric_limits<double>::infinity());
  optimizer.step({.learning_rate = 0.1, .beta1 = 0.9}, optimizer.gradient_norm(), 1.0);
  EXPECT_TRUE(model->weight.detach().equal(before));
  set_gradients(model, 0, 1);
  optimizer.step({.learning_rate = 0.1, .beta1 = 0.9}, optimizer.gradient_norm(), 1.0);
  EXPECT_FALSE(model->weight.detach().equal(before));
  EXPECT_TRUE(model->weight.isfinite().all().item<bool>());
}

TEST_F(CudaStep, CountsOfAMaskAreForgottenWhenItChanges) {
  const at::Tensor host = at::ones({2, 6}, at::kBool);
  at::Tensor mask = host.to(at::kCUDA);
  remember_mask_counts(mask, at::zeros({2, 6}, at::kBool));  // a lie, to see who is asked
  EXPECT_EQ(mask_counts(mask).sum().item<int64_t>(), 0);
  mask.select(1, 0).fill_(false);
  EXPECT_EQ(mask_counts(mask).sum().item<int64_t>(), 10);
  EXPECT_EQ(mask_counts(host.to(at::kCUDA)).sum().item<int64_t>(), 12);
}

Recipe text_recipe(int64_t steps) {
  return parse_recipe(
      "[data]\nname = \"characters\"\nlength = 64\npath = \"made here\"\n", "test",
      {"attention.kind=sbm", "model.dim=64", "model.heads=2", "model.layers=2", "train.device=cuda",
       "train.precision=bf16", "train.batch=4", "train.eval_every=10", "train.log_every=5",
       "train.grad_clip=0.5", "train.warmup_steps=2", "train.steps=" + std::to_string(steps)});
}
std::shared_ptr<data::Characters> letters() {
  std::vector<uint8_t> text;
  for (size_t n = 0; text.size() < 12000; ++n)
    text.push_back(static_cast<uint8_t>('a' + (n * n + n / 5) % 7));
  return std::make_shared<data::Characters>("letters", std::move(text), 64);
}

// All that was recorded but times.
std::string recorded(const std::filesystem::path& folder, bool wait) {
  TrainerOptions options;
  options.run_folder = folder;
  options.progress = false;
  if (wait) options.after_step = [](int64_t) {};  // then every step is waited for
  Trainer(text_recipe(25), letters(), options).run();
  return kit::recorded_without_timings(folder);
}

TEST_F(CudaStep, ReadingLateChangesNothing) {
  const kit::ScratchFolder scratch;
  const std::string waited = recorded(scratch / "waited", true), late = recorded(scratch / "late", false);
  EXPECT_EQ(waited, late);
  EXPECT_THAT(late, testing::HasSubstr("\"step\": 25"));
}

}  // namespace
}  // namespace edgewise::train::steps_on_cuda
