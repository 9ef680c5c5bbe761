// Checkpoints: one safetensors file with the model, optionally the optimiser, and where the run stands.
//
// Model tensors carry their module names, optimiser tensors the prefix "optimizer/", memories "memory/",
// averages of parameters "average/". The file is written beside its place and renamed, so a kill leaves
// either the old checkpoint or the new one.
#pragma once

#include <edgewise/train/optimizer.h>

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::train {

struct CheckpointInfo {
  int64_t step = 0;                      // steps finished
  std::optional<double> best_metric;     // of the best evaluation so far
  std::optional<double> best_loss = {};  // the least so far, where train.keep asks for it
  int64_t best_step = 0;
  int64_t validations_since_best = 0;
  bool evaluation_pending =
      false;           // the validation due at `step` was cut short; a resumed run starts with it
  std::string recipe;  // the resolved recipe, TOML
  std::vector<at::Tensor> memories = {};  // of a language model, before the next batch, on the CPU when read
  std::map<std::string, at::Tensor> averages =
      {};  // of parameters, by name; written beside an optimiser only
};

void save_checkpoint(const std::string& path, const torch::nn::Module& model, const Optimizer* optimizer,
                     const CheckpointInfo& info);

// Fills the model, and the optimiser when given; without one, with the averages of the parameters where the
// file has them. Throws, naming the first tensor that is missing, left over,
// or has another shape or dtype, before anything is changed.
CheckpointInfo load_checkpoint(const std::string& path, torch::nn::Module& model,
                               Optimizer* optimizer = nullptr);

// Fills the model with the weights of another run, averages where the file has them, as a start. The two may
// differ in what chooses edges or stands for attention (tensors below `edges` and `method`): of those the
// model keeps what the file has not, or has in another size, and what belongs to a run (statistics of
// rewards). The head (tensors below `head`) is that of the file if all of it fits, else the model keeps its
// own: so a classifier begins with a pre-trained encoder. The same source of edges alone and in a union is
// the same. Throws as load_checkpoint does.
struct AdoptedWeights {
  int64_t step = 0;                         // that the file is of
  int64_t adopted = 0;                      // tensors
  std::vector<std::string> kept_new, left;  // names
};
AdoptedWeights load_weights(const std::string& path, torch::nn::Module& model);

// What the run was, without touching a model.
CheckpointInfo read_checkpoint_info(const std::string& path);

}  // namespace edgewise::train
