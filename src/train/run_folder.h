// The files of one run, and the rules for starting or continuing in a folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <edgewise/train/checkpoint.h>

namespace edgewise::train {

struct RunFolder {
  std::filesystem::path root;

  std::filesystem::path config() const { return root / "config.toml"; }
  std::filesystem::path environment() const { return root / "env.json"; }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path last() const { return checkpoints() / "last.safetensors"; }
  std::filesystem::path best() const { return checkpoints() / "best.safetensors"; }
};

// Makes the folder ready and writes config.toml and env.json. A new run needs an empty folder; a resumed one
// needs the recipe it was started with, in everything but the keys that may change between sessions.
RunFolder open_run_folder(const std::filesystem::path& root, const std::string& recipe_toml, bool resume);

// The first difference between two resolved recipes that a resumed run may not have, e.g. "model.dim was 64
// and is now 32".
std::optional<std::string> forbidden_change(const std::string& before_toml, const std::string& after_toml);

}  // namespace edgewise::train
