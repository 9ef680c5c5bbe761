// Two trainings with one seed are the same bit for bit: sampling, probes, attention and its gradients have no
// order that a GPU may choose.
#include <edgewise/data/characters.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/optimizer.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/step.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/devices.h"

namespace edgewise::repeats_on_cuda {
namespace {

class CudaRepeat : public kit::CudaTest {};

std::vector<at::Tensor> trained(const std::string& sampler) {
  std::vector<uint8_t> letters;
  for (size_t n = 0; letters.size() < 20000; ++n)
    letters.push_back(static_cast<uint8_t>('a' + (n * n + n / 5) % 7));
  const data::Characters text("letters", std::move(letters), 128);
  const train::Recipe recipe =
      train::parse_recipe("[data]\nname = \"characters\"\nlength = 128\npath = \"made here\"\n", "test",
                          {"attention.kind=sbm", "sbm.sampler=" + sampler, "model.dim=64", "model.heads=2",
                           "model.embedding_std=0.3"});
  torch::manual_seed(1);
  const ModelPtr model = train::build_model(recipe, text);
  model->to(at::kCUDA);
  model->train();
  train::Optimizer optimizer(*model);
  train::StepOptions options;
  options.device = at::kCUDA;
  options.precision = train::Precision::kBf16;
  options.density_weight = 0.1;
  std::vector<at::Tensor> memories;
  for (int64_t step = 0; step < 100; ++step) {
    std::vector<int64_t> pieces;
    for (int64_t n = 0; n < 4; ++n) pieces.push_back((step * 4 + n) % 100);
    optimizer.zero_grad();
    train::accumulate_gradients(*model, text.batch(data::Split::kTrain, pieces), options,
                                {.seed = 1, .step = static_cast<uint64_t>(step)}, &memories);
    optimizer.step({.learning_rate = 3e-3, .beta1 = 0.9});
    model->after_step();
  }
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach().cpu());
  return result;
}

TEST_F(CudaRepeat, AHundredStepsAreTheSameTwice) {
  for (const char* const sampler : {"direct", "thinning"}) {
    const std::vector<at::Tensor> once = trained(sampler), again = trained(sampler);
    ASSERT_EQ(once.size(), again.size());
    for (size_t n = 0; n < once.size(); ++n) {
      EXPECT_TRUE(once[n].isfinite().all().item<bool>()) << sampler << " " << n;
      EXPECT_TRUE(at::equal(once[n], again[n])) << sampler << ", parameter " << n;
    }
  }
}

}  // namespace
}  // namespace edgewise::repeats_on_cuda
