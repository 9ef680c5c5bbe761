#include <edgewise/train/checkpoint.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>

#include <torch/types.h>
#include <torch/utils.h>

#include <edgewise/io/safetensors.h>

namespace edgewise::train {
namespace {

using Metadata = std::map<std::string, std::string>;

constexpr const char* kFormat = "edgewise-checkpoint";
constexpr const char* kVersion = "1";
constexpr std::string_view kOptimizerPrefix = "optimizer/";
constexpr std::string_view kMemoryPrefix = "memory/";
constexpr std::string_view kAveragePrefix = "average/";

std::map<std::string, at::Tensor> model_tensors(const torch::nn::Module& model) {
  std::map<std::string, at::Tensor> result;
  for (const auto& item : model.named_parameters()) result[item.key()] = item.value().detach();
  for (const auto& item : model.named_buffers()) result[item.key()] = item.value().detach();
  return result;
}

std::string exact(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);  // reads back to the same bits
  return text;
}

const std::string& entry(const Metadata& metadata, const std::string& path, const std::string& key) {
  const auto found = metadata.find(key);
  TORCH_CHECK_VALUE(found != metadata.end(), "load_checkpoint: expected metadata '", key, "' in ", path,
                    "; got none. The file is not an edgewise checkpoint.");
  return found->second;
}

template <typename Number>
Number number(const Metadata& metadata, const std::string& path, const std::string& key) {
  const std::string& text = entry(metadata, path, key);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TORCH_CHECK_VALUE(error == std::errc() && end == text.data() + text.size(),
                    "load_checkpoint: expected metadata '", key, "' in ", path, " to be a number; got '",
                    text, "'");
  return value;
}

CheckpointInfo parse_info(const Metadata& metadata, const std::string& path) {
  TORCH_CHECK_VALUE(entry(metadata, path, "format") == kFormat, "load_checkpoint: expected format '", kFormat,
                    "' in ", path, "; got '", entry(metadata, path, "format"), "'");
  TORCH_CHECK_VALUE(entry(metadata, path, "format_version") == kVersion,
                    "load_checkpoint: expected format version ", kVersion, " in ", path, "; got ",
                    entry(metadata, path, "format_version"),
                    ". It was written by another version of edgewise.");
  CheckpointInfo info;
  info.step = number<int64_t>(metadata, path, "step");
  if (metadata.count("best_metric")) {
    info.best_metric = number<double>(metadata, path, "best_metric");
    info.best_step = number<int64_t>(metadata, path, "best_step");
    if (metadata.count("validations_since_best"))
      info.validations_since_best = number<int64_t>(metadata, path, "validations_since_best");
  }
  if (metadata.count("best_loss")) info.best_loss = number<double>(metadata, path, "best_loss");
  info.evaluation_pending = metadata.count("evaluation_pending") > 0;
  info.recipe = entry(metadata, path, "recipe");
  return info;
}

// Everything is checked before anything is copied: a refused checkpoint leaves the model as it was.
void check_tensors(const std::string& asking, const std::string& path,
                   const std::map<std::string, at::Tensor>& expected,
                   const std::map<std::string, at::Tensor>& found) {
  for (const auto& [name, tensor] : expected) {
    const auto item = found.find(name);
    TORCH_CHECK_VALUE(item != found.end(), asking, ": expected tensor '", name, "' ", tensor.sizes(), " in ",
                      path, "; it has none. The checkpoint belongs to another model.");
    TORCH_CHECK_VALUE(item->second.sizes() == tensor.sizes(), asking, ": expected tensor '", name, "' ",
                      tensor.sizes(), " in ", path, "; got ", item->second.sizes(),
                      name == "bytes"
                          ? ". These are the characters of a text: set data.path to one that has the same."
                          : ". The checkpoint belongs to a model of another size.");
    TORCH_CHECK_VALUE(item->second.scalar_type() == tensor.scalar_type(), asking, ": expected tensor '", name,
                      "' as ", tensor.scalar_type(), " in ", path, "; got ", item->second.scalar_type());
  }
  for (const auto& [name, tensor] : found) {
    TORCH_CHECK_VALUE(expected.count(name), asking, ": expected only tensors of the model in ", path,
                      "; got '", name, "' too. The checkpoint belongs to another model.");
  }
}

// Training evaluates the averages of a run that has them, and so does who does not go on training.
void take_averages(const std::string& asking, const std::string& path,
                   const std::map<std::string, at::Tensor>& averages,
                   const torch::OrderedDict<std::string, at::Tensor>& parameters,
                   std::map<std::string, at::Tensor>& tensors) {
  if (averages.empty()) return;
  for (const auto& item : parameters)
    TORCH_CHECK_VALUE(averages.count(item.key()) || !tensors.count(item.key()), asking, ": expected average/",
                      item.key(), " in ", path,
                      ", which has averages; there is none. The checkpoint is incomplete.");
  for (const auto& [name, tensor] : averages) tensors[name] = tensor;
}

// Of what chooses edges, or of a method that stands for attention.
bool belongs_to_its_attention(const std::string& name) {
  return name.find(".edges.") != std::string::npos || name.find(".method.") != std::string::npos;
}

// Of what answers the question of a task, behind the encoder or the decoder.
bool belongs_to_its_task(const std::string& name) {
  return name.starts_with("head.");
}

// Whether all tensors of both heads fit: else the model's is of another task, or of other answers.
bool has_same_head(const std::map<std::string, at::Tensor>& targets,
                   const std::map<std::string, at::Tensor>& tensors) {
  const auto fits = [](const auto& some, const auto& others) {
    return std::ranges::all_of(some, [&](const auto& item) {
      const auto found = others.find(item.first);
      return !belongs_to_its_task(item.first) ||
             (found != others.end() && found->second.sizes() == item.second.sizes());
    });
  };
  return fits(targets, tensors) && fits(tensors, targets);
}

// "layers.0.self_attn.edges.source1.clusters" -> "layers.0.self_attn.edges.clusters": a source of edges has
// the same tensors alone and in a union.
std::string without_source(const std::string& name) {
  constexpr std::string_view kSource = ".edges.source";
  const size_t at = name.find(kSource), after = name.find('.', at + kSource.size());
  if (at == std::string::npos || after == std::string::npos) return name;
  return name.substr(0, at + std::string_view(".edges").size()) + name.substr(after);
}

// The file's tensors under the names that the model has for them.
std::map<std::string, at::Tensor> as_the_model_has_them(const std::map<std::string, at::Tensor>& tensors,
                                                        const std::map<std::string, at::Tensor>& targets) {
  std::map<std::string, at::Tensor> result;
  for (const auto& [name, tensor] : tensors) {
    std::vector<std::string> fitting;
    if (!targets.contains(name))
      for (const auto& [target, unused] : targets)
        if (without_source(target) == without_source(name) && !tensors.contains(target))
          fitting.push_back(target);
    result[fitting.size() == 1 ? fitting.front() : name] = tensor;
  }
  return result;
}

void copy_into(const std::map<std::string, at::Tensor>& targets,
               const std::map<std::string, at::Tensor>& tensors) {
  torch::NoGradGuard no_grad;
  for (const auto& [name, target] : targets) target.copy_(tensors.at(name));
}

}  // namespace

void save_checkpoint(const std::string& path, const torch::nn::Module& model, const Optimizer* optimizer,
                     const CheckpointInfo& info) {
  io::TensorFile file;
  for (const auto& [name, tensor] : model_tensors(model)) file.tensors[name] = tensor.cpu().contiguous();
  if (optimizer) {
    for (const auto& [name, tensor] : optimizer->state()) {
      file.tensors[std::string(kOptimizerPrefix) + name] = tensor.cpu().contiguous();
    }
    for (size_t layer = 0; layer < info.memories.size(); ++layer)
      file.tensors[std::string(kMemoryPrefix) + std::to_string(layer)] =
          info.memories[layer].cpu().contiguous();
    for (const auto& [name, tensor] : info.averages)
      file.tensors[std::string(kAveragePrefix) + name] = tensor.cpu().contiguous();
  }
  file.metadata = {{"format", kFormat},
                   {"format_version", kVersion},
                   {"step", std::to_string(info.step)},
                   {"recipe", info.recipe}};
  if (info.best_metric) {
    file.metadata["best_metric"] = exact(*info.best_metric);
    file.metadata["best_step"] = std::to_string(info.best_step);
    file.metadata["validations_since_best"] = std::to_string(info.validations_since_best);
  }
  if (info.best_loss) file.metadata["best_loss"] = exact(*info.best_loss);
  if (info.evaluation_pending) file.metadata["evaluation_pending"] = "true";
  io::save_safetensors(path, file, /*checksums=*/true);
}

CheckpointInfo load_checkpoint(const std::string& path, torch::nn::Module& model, Optimizer* optimizer) {
  const io::TensorFile file = io::load_safetensors(path);
  CheckpointInfo info = parse_info(file.metadata, path);
  std::map<std::string, at::Tensor> tensors, state, memories;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(kMemoryPrefix)) {
      memories[name.substr(kMemoryPrefix.size())] = tensor;
    } else if (name.starts_with(kAveragePrefix)) {
      info.averages[name.substr(kAveragePrefix.size())] = tensor;
    } else if (name.starts_with(kOptimizerPrefix)) {
      state[name.substr(kOptimizerPrefix.size())] = tensor;
    } else {
      tensors[name] = tensor;
    }
  }
  for (size_t layer = 0; layer < memories.size(); ++layer) {
    const auto found = memories.find(std::to_string(layer));
    TORCH_CHECK_VALUE(found != memories.end(), "load_checkpoint: expected memory/0 to memory/",
                      memories.size() - 1, " in ", path, "; memory/", layer,
                      " is missing. The checkpoint is incomplete.");
    info.memories.push_back(found->second);
  }
  if (!optimizer) take_averages("load_checkpoint", path, info.averages, model.named_parameters(), tensors);
  const auto targets = model_tensors(model);
  check_tensors("load_checkpoint", path, targets, tensors);
  if (optimizer) {
    TORCH_CHECK_VALUE(info.step == 0 || !state.empty(), "load_checkpoint: expected optimiser state in ", path,
                      "; it holds a model only. Resume from checkpoints/last.safetensors.");
    optimizer->load_state(state);
  }
  copy_into(targets, tensors);
  return info;
}

AdoptedWeights load_weights(const std::string& path, torch::nn::Module& model) {
  const io::TensorFile file = io::load_safetensors(path);
  AdoptedWeights result;
  result.step = parse_info(file.metadata, path).step;
  std::map<std::string, at::Tensor> tensors, averages;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(kAveragePrefix))
      averages[name.substr(kAveragePrefix.size())] = tensor;
    else if (!name.starts_with(kMemoryPrefix) && !name.starts_with(kOptimizerPrefix))
      tensors[name] = tensor;
  }
  take_averages("train.weights", path, averages, model.named_parameters(), tensors);
  auto targets = model_tensors(model);
  tensors = as_the_model_has_them(tensors, targets);
  const auto serves = [&](const std::string& name) {
    const auto from = tensors.find(name), to = targets.find(name);
    return from != tensors.end() && to != targets.end() && from->second.sizes() == to->second.sizes() &&
           name.find(".rewards.") == std::string::npos;
  };
  const bool same_head = has_same_head(targets, tensors);
  const auto stays_behind = [&](const std::string& name) {
    return belongs_to_its_task(name) ? !same_head : belongs_to_its_attention(name) && !serves(name);
  };
  for (const auto& [name, target] : targets)
    if (stays_behind(name)) result.kept_new.push_back(name);
  for (const auto& [name, tensor] : tensors)
    if (stays_behind(name)) result.left.push_back(name);
  for (const std::string& name : result.kept_new) targets.erase(name);
  for (const std::string& name : result.left) tensors.erase(name);
  check_tensors("train.weights", path, targets, tensors);
  copy_into(targets, tensors);
  result.adopted = static_cast<int64_t>(targets.size());
  return result;
}

CheckpointInfo read_checkpoint_info(const std::string& path) {
  return parse_info(io::read_safetensors_header(path).metadata, path);
}

}  // namespace edgewise::train
