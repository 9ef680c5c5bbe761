// Language models on a GPU: the logits of the CPU, a cache that changes nothing, and training steps in bf16,
// for every causal attention.
#include <edgewise/data/characters.h>
#include <edgewise/models/language_model.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/step.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/devices.h"

namespace edgewise::language_model_on_cuda {
namespace {

class CudaLanguageModel : public kit::CudaTest {};

const std::vector<const char*> kKinds = {"dense",         "window",         "sbm", "window+sbm", "sac",
                                         "adaptive_span", "transformer_xl", "tree"};

data::Characters some_text() {
  std::vector<uint8_t> text;
  for (size_t n = 0; text.size() < 8000; ++n) text.push_back(static_cast<uint8_t>('a' + (n * n + n / 5) % 7));
  return data::Characters("letters", std::move(text), 96);
}

train::Recipe recipe_of(const std::string& kind) {
  return train::parse_recipe(R"(
[data]
name = "characters"
length = 96
path = "made here"
[model]
dim = 64
heads = 2
embedding_std = 0.3
[window]
width = 8
[sac]
test_decoding = "greedy"
[transformer_xl]
memory = 64
[adaptive_span]
memory = 64
limit = 64
[tree]
step = 4
)",
                             "test", {"attention.kind=" + kind});
}

TEST_F(CudaLanguageModel, ReadsAsOnTheCpu) {
  const data::Characters text = some_text();
  const std::vector<int64_t> pieces = {0, 7};
  const at::Tensor tokens = text.batch(data::Split::kTrain, pieces).towers[0].tokens;
  for (const std::string kind : kKinds) {
    LanguageModel model = train::build_language_model(recipe_of(kind), text.bytes());
    model->eval();
    const torch::NoGradGuard guard;
    const auto logits = [&](at::Device device) {
      model->to(device);
      ModelInput input;
      input.batch.towers = {{.tokens = tokens.to(device)}};
      return model->forward(input).logits.cpu();
    };
    const at::Tensor expected = logits(at::kCPU), found = logits(at::kCUDA);
    EXPECT_LT((found - expected).abs().max().item<double>(), 2e-3) << kind;
    DecoderCache cache;
    std::vector<at::Tensor> parts = {model->read(tokens.narrow(1, 0, 80).to(at::kCUDA), cache, {})};
    for (int64_t n = 80; n < 96; ++n)
      parts.push_back(model->read(tokens.narrow(1, n, 1).to(at::kCUDA), cache, {}));
    EXPECT_LT((at::cat(parts, 1).cpu() - found).abs().max().item<double>(), 2e-3) << kind;
  }
}

TEST_F(CudaLanguageModel, TrainsInBf16) {
  const data::Characters text = some_text();
  train::StepOptions options;
  options.device = at::kCUDA;
  options.precision = train::Precision::kBf16;
  options.micro_batch = 2;
  for (const std::string kind : kKinds) {
    const ModelPtr model = train::build_model(recipe_of(kind), text);
    model->to(at::kCUDA);
    model->train();
    std::vector<at::Tensor> memories;
    for (int64_t step = 0; step < 2; ++step) {
      const std::vector<int64_t> pieces = {step, 20 + step, 40 + step, 60 + step};
      const train::StepReport report =
          train::accumulate_gradients(*model, text.batch(data::Split::kTrain, pieces), options,
                                      {.seed = 1, .step = static_cast<uint64_t>(step)}, &memories);
      EXPECT_TRUE(std::isfinite(report.loss)) << kind;
      for (const at::Tensor& parameter : model->parameters())
        if (parameter.grad().defined()) {
          EXPECT_TRUE(parameter.grad().isfinite().all().item<bool>()) << kind;
        }
      model->after_step();
    }
  }
}

}  // namespace
}  // namespace edgewise::language_model_on_cuda
