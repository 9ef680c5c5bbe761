#include "train/ranks/run_state.h"

#include <cstring>
#include <map>
#include <string>

#include <torch/types.h>
#include <torch/utils.h>

namespace edgewise::train {
namespace {

std::map<std::string, at::Tensor> all_weights(const torch::nn::Module& model) {
  std::map<std::string, at::Tensor> result;
  for (const auto& item : model.named_parameters()) result[item.key()] = item.value().detach();
  for (const auto& item : model.named_buffers()) result[item.key()] = item.value().detach();
  return result;
}

// A number that other bits change.
int64_t digest(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu().contiguous();
  const auto* const bytes = static_cast<const unsigned char*>(host.const_data_ptr());
  uint64_t value = 0xCBF29CE484222325;
  size_t n = 0;
  for (; n + 8 <= host.nbytes(); n += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + n, 8);
    value = (value ^ word) * 0x9E3779B97F4A7C15;
    value ^= value >> 29;
  }
  for (; n < host.nbytes(); ++n) value = (value ^ bytes[n]) * 0x100000001B3;
  return static_cast<int64_t>(value);
}

}  // namespace

void share_weights(Ranks& ranks, torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  const auto mine = all_weights(model);
  for (const auto& [name, tensor] : ranks.from_first(mine, "telling the weights")) {
    const auto found = mine.find(name);
    TORCH_CHECK_VALUE(found != mine.end() && found->second.sizes() == tensor.sizes(),
                      "ranks: expected the model of ", ranks.name(0), " on all ranks; ",
                      ranks.name(ranks.rank()), " has no ", name, " ", tensor.sizes());
    if (!ranks.is_first()) found->second.copy_(tensor);
  }
}

void share_run(Ranks& ranks, Optimizer& optimizer, WeightAverage* average, CheckpointInfo& info,
               bool& saved) {
  const auto state = ranks.from_first(optimizer.state(), "telling the optimiser's state");
  std::map<std::string, at::Tensor> averages;
  if (average) averages = ranks.from_first(average->state(), "telling the averages");
  at::Tensor numbers =
      at::tensor({static_cast<double>(info.step), static_cast<double>(info.best_metric.has_value()),
                  info.best_metric.value_or(0), static_cast<double>(info.best_loss.has_value()),
                  info.best_loss.value_or(0), static_cast<double>(info.best_step),
                  static_cast<double>(info.validations_since_best),
                  static_cast<double>(info.evaluation_pending), static_cast<double>(saved)},
                 at::kDouble);
  std::map<std::string, at::Tensor> rest;
  rest["numbers"] = numbers;
  for (size_t layer = 0; layer < info.memories.size(); ++layer)
    rest["memory" + std::to_string(layer)] = info.memories[layer];
  rest = ranks.from_first(rest, "telling where the run stands");
  if (ranks.is_first()) return;
  optimizer.load_state(state);
  if (average) average->load_state(averages);
  const double* const read = rest.at("numbers").const_data_ptr<double>();
  info.step = static_cast<int64_t>(read[0]);
  info.best_metric = read[1] != 0 ? std::optional(read[2]) : std::nullopt;
  info.best_loss = read[3] != 0 ? std::optional(read[4]) : std::nullopt;
  info.best_step = static_cast<int64_t>(read[5]);
  info.validations_since_best = static_cast<int64_t>(read[6]);
  info.evaluation_pending = read[7] != 0;
  saved = read[8] != 0;
  info.memories.clear();
  for (size_t layer = 0; rest.contains("memory" + std::to_string(layer)); ++layer)
    info.memories.push_back(rest.at("memory" + std::to_string(layer)));
}

void expect_same_weights(Ranks& ranks, const torch::nn::Module& model) {
  const auto weights = all_weights(model);
  std::vector<int64_t> digests;
  for (const auto& [name, tensor] : weights) digests.push_back(digest(tensor));
  const at::Tensor all =
      ranks.gather_rows(at::tensor(digests, at::kLong), "comparing the weights").reshape({ranks.size(), -1});
  for (int64_t rank = 1; rank < ranks.size(); ++rank) {
    int64_t n = 0;
    for (const auto& [name, tensor] : weights) {
      TORCH_CHECK(all[rank][n].item<int64_t>() == all[0][n].item<int64_t>(),
                  "train: expected the same weights on all ranks after the same steps; ", name, " of ",
                  ranks.name(rank), " is another than that of ", ranks.name(0),
                  ". Are the machines alike, and the versions of edgewise and torch? edgewise doctor "
                  "--distributed compares them");
      ++n;
    }
  }
}

}  // namespace edgewise::train
