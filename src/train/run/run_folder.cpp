#include "train/run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <map>
#include <vector>

#include <c10/util/Exception.h>
#include <toml++/toml.h>

#include <edgewise/data/examples/text_reader.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/io/environment.h>
#include <edgewise/ops/cpu_level.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/recipe.h>

#include "io/durable.h"
#include "train/recipe/toml_depth.h"
#include "train/recipe/toml_number.h"
#include "train/run/metric_lines.h"

namespace edgewise::train {
namespace {

// What a run may choose anew when it is resumed: how long, how often to look, how many threads, how its
// passes are started, and where its data lies, of which check_data asks that it be the same.
bool may_change(const std::string& key) {
  constexpr std::array<std::string_view, 10> kPrefixes = {
      "train.steps",      "train.eval",       "train.log", "train.threads", "train.patience",
      "train.checkpoint", "train.cuda_graph", "data.path", "train.weights", "train.snapshot"};
  for (const std::string_view prefix : kPrefixes) {
    if (key.starts_with(prefix)) return true;
  }
  return false;
}

// "section.key" -> value as TOML text.
void flatten(const toml::table& table, const std::string& prefix,
             std::map<std::string, std::string>& result) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix.empty() ? std::string(key.str()) : prefix + "." + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      flatten(*inner, name, result);
    } else {
      result[name] = toml_text(node);
    }
  }
}

std::map<std::string, std::string> flatten(const std::string& text) {
  std::map<std::string, std::string> result;
  check_toml_depth(text, "config.toml");
  flatten(toml::parse(text), "", result);
  return result;
}

constexpr const char* kLockName = ".lock";
constexpr const char* kSnapshotFolder = "snapshots";

// Whether there is anything but the lock and what a run that was killed before it had a description left of
// it.
bool has_files(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != kLockName && name != ".config.toml.tmp") return true;
  }
  return false;
}

io::FileDescriptor take_lock(const std::filesystem::path& root) {
  io::FileDescriptor file = io::open_file("train", root / kLockName, O_WRONLY | O_CREAT | O_NOFOLLOW);
  // File systems without locks are used without.
  const bool taken = ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  TORCH_CHECK_VALUE(
      !taken, "train: expected the run folder ", root.string(),
      " for this run alone; another run is training in it. Wait for that one or stop it, or choose "
      "another folder with --run.");
  return file;
}

void check_contents(const RunFolder& folder, const std::string& recipe_toml, bool resume) {
  const std::string root = folder.root.string();
  if (!has_files(folder.root)) return;
  refuse_links(folder.root);
  TORCH_CHECK_VALUE(resume, "train: expected an empty run folder for a new run; ", root,
                    " has files. Continue it with --resume, or choose another folder.");
  TORCH_CHECK_VALUE(file_exists(folder.config()), "train: expected ", folder.config(),
                    " in the run to resume; there is none. Choose the folder of an edgewise run.");
  // Keys that the run's version did not know yet have their defaults.
  const std::string started = to_toml(load_recipe(folder.config()));
  const auto change = forbidden_change(started, recipe_toml);
  TORCH_CHECK_VALUE(!change, "train: expected the recipe that ", root, " was started with; ", *change,
                    ". Resume with the old values, or start a new run in another folder.");
}

}  // namespace

void refuse_links(const std::filesystem::path& run_folder) {
  for (auto entry = std::filesystem::recursive_directory_iterator(run_folder);
       entry != std::filesystem::recursive_directory_iterator(); ++entry)
    TORCH_CHECK_VALUE(!entry->is_symlink(), "expected files of its own in the run folder ",
                      run_folder.string(), "; ", entry->path().string(),
                      " is a symbolic link, and what is written there would land elsewhere. Remove the link");
}

std::optional<std::string> forbidden_change(const std::string& before_toml, const std::string& after_toml) {
  const auto before = flatten(before_toml), after = flatten(after_toml);
  const auto text = [](const std::map<std::string, std::string>& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("unset") : found->second;
  };
  std::map<std::string, std::string> keys = before;
  keys.insert(after.begin(), after.end());
  std::string changes;
  for (const auto& [key, value] : keys) {
    const std::string was = text(before, key), is = text(after, key);
    if (was == is || may_change(key)) continue;
    changes += (changes.empty() ? "" : "; ") + key + " was " + was + " and is now " + is;
  }
  return changes.empty() ? std::nullopt : std::optional(changes);
}

std::string describe_data(const data::Dataset& dataset) {
  std::string description = "{\"name\": \"" + dataset.name() + "\"";
  for (const data::Split split : {data::Split::kTrain, data::Split::kValidation, data::Split::kTest})
    description +=
        ", \"" + std::string(data::to_string(split)) + "\": " + std::to_string(dataset.size(split));
  return description + "}\n";
}

void check_data(const RunFolder& folder, const data::Dataset& dataset) {
  const std::string description = describe_data(dataset);
  if (!file_exists(folder.data())) return io::write_file_atomically(folder.data(), description);
  const std::string before = io::read_file(folder.data());
  TORCH_CHECK_VALUE(before == description, "train: expected the data that ", folder.root.string(),
                    " was started with, ", before, "; found ", description,
                    "Say where the data is with --set data.path=FOLDER.");
}

void check_reader(const RunFolder& folder, const data::Dataset& dataset) {
  const data::TextReader* const reader = dataset.reader();
  if (!reader) return;
  if (!data::TextReader::is_in(folder.reader())) return reader->save(folder.reader());
  const data::TextReader before = data::TextReader::load(folder.reader());
  TORCH_CHECK_VALUE(before.options() == reader->options() && before.reads_like(*reader),
                    "train: expected texts as ", folder.root.string(),
                    " was started with: the same labels, columns and tokeniser; found others. Say where the "
                    "data is with --set data.path=FOLDER.");
}

std::string lost_weights(const RunFolder& folder, int64_t checkpoint_every) {
  if (file_exists(folder.last()) || !file_exists(folder.metrics())) return {};
  int64_t last = 0;
  bool tested = false;
  for (const MetricRecord& record : read_whole_metrics(folder.metrics())) {
    if (const MetricValue* step = find_metric(record, "step"))
      if (const auto* number = std::get_if<int64_t>(step)) last = std::max(last, *number);
    const MetricValue* kind = find_metric(record, "kind");
    tested = tested || (kind && std::get_if<std::string>(kind) && std::get<std::string>(*kind) == "test");
  }
  if (!tested && last <= checkpoint_every) return {};
  return "the metrics of this run go up to step " + std::to_string(last) +
         ", and its weights are not kept here. Train it again in another folder: edgewise train " +
         folder.config() + " --run FOLDER";
}

void check_has_weights(const RunFolder& folder, int64_t checkpoint_every) {
  const std::string lost = lost_weights(folder, checkpoint_every);
  TORCH_CHECK_VALUE(lost.empty(), "train: expected ", folder.last(), " to go on from: ", lost);
}

std::string weights_of(const std::string& place) {
  TORCH_CHECK_VALUE(file_exists(place),
                    "train.weights: expected a run folder or a checkpoint; found nothing at ", place,
                    ". In a recipe a path begins at its folder, with --set where edgewise is called");
  if (!std::filesystem::is_directory(place)) return place;
  const RunFolder folder{.root = place};
  const std::filesystem::path inside(place);  // which may be the folder `checkpoints` itself
  for (const std::string& file : {folder.best(), folder.last(), (inside / "best.safetensors").string(),
                                  (inside / "last.safetensors").string()})
    if (file_exists(file)) return file;
  TORCH_CHECK_VALUE(false, "train.weights: expected checkpoints/best.safetensors or last.safetensors in ",
                    place, "; found neither. Is it a run folder, and are its weights kept?");
}

bool file_exists(const std::string& path) {
  return std::filesystem::exists(path);
}

std::filesystem::path RunFolder::snapshots() const {
  return root / kSnapshotFolder;
}

std::filesystem::path RunFolder::snapshot(int64_t step) const {
  char name[64];
  std::snprintf(name, sizeof(name), "step-%08lld.safetensors", static_cast<long long>(step));
  return snapshots() / name;
}

std::vector<int64_t> RunFolder::snapshot_steps() const {
  std::vector<int64_t> steps;
  // A folder that is a link leads out of the run, and so does such a file.
  if (!std::filesystem::is_directory(std::filesystem::symlink_status(snapshots()))) return steps;
  for (const auto& entry : std::filesystem::directory_iterator(snapshots())) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") || entry.is_symlink() || !entry.is_regular_file()) continue;
    int64_t step = -1;
    std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (step >= 0 && entry.path() == snapshot(step)) steps.push_back(step);
  }
  std::ranges::sort(steps);
  return steps;
}

RunFolder open_run_folder(const std::filesystem::path& root, const std::string& recipe_toml, bool resume) {
  RunFolder folder{.root = root};
  TORCH_CHECK_VALUE(!std::filesystem::exists(root) || std::filesystem::is_directory(root),
                    "train: expected the run folder ", root.string(), " to be a folder; it is a file");
  // A run that is going on is told before its files are. Where there was none, nothing is made in a folder
  // that is refused; what is found before the lock is looked at again behind it.
  if (file_exists((root / kLockName).string())) folder.lock = take_lock(root);
  check_contents(folder, recipe_toml, resume);
  if (!folder.lock.is_open()) {
    io::create_durable_folders(root);
    folder.lock = take_lock(root);
    check_contents(folder, recipe_toml, resume);
  }
  // First of all files: a run killed from here on can be resumed.
  if (!file_exists(folder.config())) write_description(folder, recipe_toml);
  io::create_durable_folders(root / "checkpoints");
  return folder;
}

void discard_run_folder(const RunFolder& folder) {
  std::vector<std::filesystem::path> made;
  for (const int64_t step : folder.snapshot_steps()) made.push_back(folder.snapshot(step));
  for (const auto& entry : std::filesystem::directory_iterator(folder.root)) {
    const std::string name = entry.path().filename().string();
    const bool is_events = name.find("tfevents") != std::string::npos;
    const bool is_ours = name == "config.toml" || name == "env.json" || name == "data.json" ||
                         name == "metrics.jsonl" || is_events || name == "checkpoints" || name == "reader" ||
                         name == kSnapshotFolder || name == kLockName;
    if (!is_ours || (name == "checkpoints" && !std::filesystem::is_empty(entry.path()))) return;
    if (name == "reader") {  // a folder after what is in it
      std::vector<std::filesystem::path> inside;
      for (const auto& below : std::filesystem::recursive_directory_iterator(entry.path()))
        inside.push_back(below.path());
      made.insert(made.end(), inside.rbegin(), inside.rend());
    }
    made.push_back(entry.path());
  }
  made.push_back(folder.root);
  // A file that stays does no more harm than before; the error that led here is the one to tell.
  for (const std::filesystem::path& path : made) std::remove(path.c_str());
}

void write_description(const RunFolder& folder, const std::string& recipe_toml) {
  io::write_file_atomically(folder.config(), recipe_toml);
  io::Environment environment = io::describe_environment();
  environment.cpu_level = cpu_level();  // which may be another than the best
  io::write_file_atomically(folder.environment(), io::to_json(environment));
}

}  // namespace edgewise::train
