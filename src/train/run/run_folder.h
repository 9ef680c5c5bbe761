// The files of one run, and the rules for starting or continuing in a folder.
#pragma once

#include <edgewise/data/dataset.h>
#include <edgewise/io/file_descriptor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::train {

struct RunFolder {
  std::filesystem::path root;
  // Held while the run lives, so that no second process trains in the folder. The system drops it with the
  // process, however that ends.
  io::FileDescriptor lock = {};

  std::string config() const { return (root / "config.toml").string(); }
  std::string environment() const { return (root / "env.json").string(); }
  std::string data() const { return (root / "data.json").string(); }
  std::string reader() const { return (root / "reader").string(); }
  std::string metrics() const { return (root / "metrics.jsonl").string(); }
  std::string last() const { return (root / "checkpoints" / "last.safetensors").string(); }
  std::string mean() const { return (root / "checkpoints" / "mean.safetensors").string(); }
  std::string best() const { return (root / "checkpoints" / "best.safetensors").string(); }
  std::filesystem::path written() const { return root / "written"; }  // what the model wrote in its test
  std::filesystem::path snapshots() const;
  std::filesystem::path snapshot(int64_t step) const;  // snapshots/step-00000100.safetensors
  // The steps that there are snapshots of, ascending; other files in the folder do not count.
  std::vector<int64_t> snapshot_steps() const;
};

// Locks the folder and makes it ready. A new run needs an empty folder and gets its description; a resumed
// one needs the recipe it was started with, in everything but the keys that may change from start to start.
// Throws when another run holds the lock.
RunFolder open_run_folder(const std::filesystem::path& root, const std::string& recipe_toml, bool resume);

// Throws when something in the folder is a symbolic link: a folder that came from elsewhere could have writes
// land anywhere.
void refuse_links(const std::filesystem::path& run_folder);

// Takes away what open_run_folder and the writers of metrics made, if there is nothing else, and the folder
// with it.
void discard_run_folder(const RunFolder& folder);

// Writes config.toml and env.json.
void write_description(const RunFolder& folder, const std::string& recipe_toml);

// Name and sizes of a data set as data.json has them, so that other data is not taken for it.
std::string describe_data(const data::Dataset& dataset);

// Notes the names and sizes of the data in a new run; throws when those of a resumed one are others.
void check_data(const RunFolder& folder, const data::Dataset& dataset);

// Keeps what the data reads of texts in a new run, if it is made of texts; throws when a resumed run's is
// another.
void check_reader(const RunFolder& folder, const data::Dataset& dataset);

// Says so when the run has come further than its first checkpoint and has none, and how to train it again;
// else empty.
std::string lost_weights(const RunFolder& folder, int64_t checkpoint_every);

// Throws when weights are lost: to begin again would take away what the run recorded.
void check_has_weights(const RunFolder& folder, int64_t checkpoint_every);

// The checkpoint that train.weights names: `place` itself, or the best one of a run folder, the last before
// there is a best. Throws when there is none.
std::string weights_of(const std::string& place);

// The differences between two resolved recipes that a resumed run may not have, e.g. "model.dim was 64 and is
// now 32".
std::optional<std::string> forbidden_change(const std::string& before_toml, const std::string& after_toml);

bool file_exists(const std::string& path);

}  // namespace edgewise::train
