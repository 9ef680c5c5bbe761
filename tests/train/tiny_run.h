// Whole runs of a tiny recipe in a scratch folder, and how two of them are compared.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/data/repeated_tokens.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/trainer.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace edgewise::train::tiny_run {

inline Recipe tiny_recipe(const std::vector<std::string>& overrides = {}) {
  return parse_recipe(R"(
[data]
name = "repeated_tokens"
length = 8
train_size = 512
validation_size = 32
test_size = 32
[model]
layers = 2
dim = 16
heads = 2
hidden = 32
[attention]
kind = "sbm"
clusters = 4
[train]
steps = 24
batch = 8
micro_batch = 4
warmup_steps = 6
learning_rate = 3e-3
density_weight = 1e-2
eval_every = 8
checkpoint_every = 4
log_every = 1
seed = 3
threads = 1
)",
                      "tiny", overrides);
}

inline std::shared_ptr<const data::Dataset> tiny_data(const Recipe& recipe) {
  return std::make_shared<data::RepeatedTokens>(
      data::RepeatedTokensOptions{.length = recipe.data.length,
                                  .train_size = recipe.data.train_size,
                                  .validation_size = recipe.data.validation_size,
                                  .test_size = recipe.data.test_size,
                                  .seed = static_cast<uint64_t>(recipe.data.seed)});
}

inline RunSummary run(const Recipe& recipe, const std::filesystem::path& folder, bool resume = false,
                      std::function<void(int64_t)> after_step = {}) {
  TrainerOptions options;
  options.run_folder = folder;
  options.resume = resume;
  options.after_step = std::move(after_step);
  return Trainer(recipe, tiny_data(recipe), options).run();
}

// Everything but timings.
inline std::vector<MetricRecord> comparable_metrics(const std::filesystem::path& folder) {
  std::vector<MetricRecord> result = read_metrics(folder / "metrics.jsonl");
  for (MetricRecord& record : result) {
    std::erase_if(record, [](const auto& field) {
      return field.first.starts_with("time_") || field.first.starts_with("memory_");
    });
  }
  return result;
}

inline void expect_same_run(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto first = comparable_metrics(a), second = comparable_metrics(b);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(to_json_line(first[i]), to_json_line(second[i])) << "record " << i;
  for (const char* name : {"last.safetensors", "best.safetensors"}) {
    const auto x = io::load_safetensors(a / "checkpoints" / name),
               y = io::load_safetensors(b / "checkpoints" / name);
    EXPECT_EQ(x.metadata, y.metadata) << name;
    ASSERT_EQ(x.tensors.size(), y.tensors.size()) << name;
    for (const auto& [key, tensor] : x.tensors)
      EXPECT_TRUE(torch::equal(tensor, y.tensors.at(key))) << name << " " << key;
  }
}

inline double number(const MetricRecord& record, const char* name) {
  return std::get<double>(*find_metric(record, name));
}

}  // namespace edgewise::train::tiny_run
