// edgewise_model_tool FOLDER RECIPE [KEY=VALUE...]: the untrained model of a recipe as a run folder, with
// what it answers to some random tokens in evaluation, for Python to compare with.
//   FOLDER/checkpoints/best.safetensors
//   FOLDER/answers.safetensors: tokens0, mask0 (tokens1, mask1), logits, densities
#include <edgewise/data/characters.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/model_cost.h>
#include <edgewise/train/task_kinds.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <filesystem>

namespace edgewise::train {
namespace {

DatasetPtr letters(int64_t length) {
  std::vector<uint8_t> text;
  for (size_t n = 0; n < 4000; ++n) text.push_back(static_cast<uint8_t>('a' + n * n % 23));
  return std::make_shared<data::Characters>("letters", text, length);
}

void answer(const std::filesystem::path& folder, const Recipe& recipe) {
  const bool causal = task_kind(recipe).is_causal;
  const DatasetPtr data = causal ? letters(recipe.data.length) : noise_dataset(recipe, 0);
  const tasks::TaskPtr task = task_over(recipe, data);
  const ModelPtr model = build_model(recipe, *task);
  model->eval();
  std::filesystem::create_directories(folder / "checkpoints");
  CheckpointInfo info;
  info.recipe = to_toml(recipe);
  save_checkpoint(folder / "checkpoints" / "best.safetensors", *model, nullptr, info);

  const std::vector<int64_t> indices = {0, 1, 2};
  Batch batch = data->batch(data::Split::kTest, indices);
  io::TensorFile file;
  for (size_t n = 0; n < batch.towers.size(); ++n) {
    Tower& tower = batch.towers[n];
    if (!causal) {  // the second item is short
      tower.mask[1].slice(0, tower.length() / 2 + 1).fill_(false);
      tower.tokens = tower.tokens.masked_fill(tower.mask.logical_not(), 0);
      file.tensors["mask" + std::to_string(n)] = tower.mask;
    } else {
      tower.mask = at::Tensor();
    }
    file.tensors["tokens" + std::to_string(n)] = tower.tokens.contiguous();
  }
  const torch::NoGradGuard no_grad;
  ModelInput input;
  input.batch = batch;
  input.random = evaluation_stream(static_cast<uint64_t>(recipe.train.seed), 0, 0);
  const ModelOutput output = model->forward(input);
  file.tensors["logits"] = output.logits.contiguous();
  file.tensors["densities"] = output.densities.contiguous();
  io::save_safetensors(folder / "answers.safetensors", file);
}

}  // namespace
}  // namespace edgewise::train

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: edgewise_model_tool FOLDER RECIPE [KEY=VALUE...]\n");
    return 2;
  }
  try {
    edgewise::train::answer(argv[1], edgewise::train::load_recipe(argv[2], {argv + 3, argv + argc}));
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
