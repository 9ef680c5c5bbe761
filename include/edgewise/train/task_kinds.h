// The registry of tasks: what data.name of a recipe names. Everything that depends on it is asked here or of
// the task itself; the name is compared nowhere else.
//
// A program adds a task of its own with register_task(), before it reads a recipe.
#pragma once

#include <edgewise/data/lra_import.h>
#include <edgewise/tasks/task.h>
#include <edgewise/train/recipe.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::train {

using DatasetPtr = std::shared_ptr<const data::Dataset>;

// Random tokens that stand for a task's data.
struct NoiseSize {
  int64_t length = 0, vocabulary = 0, classes = 0, towers = 1;
  bool labels_tokens = false;  // labels are [B, N] instead of [B]
};

// What `edgewise data NAME --from FOLDER` reads: the files that a task's data is distributed as.
struct DataImport {
  std::string what;     // the data, for the help
  std::string layouts;  // what the folder may hold
  std::function<data::ByteExamples(const std::filesystem::path& folder, const data::ImportProgress&)> read;
};

struct TaskKind {
  std::string name;
  std::string meaning;                            // one line
  std::function<DatasetPtr(const Recipe&)> open;  // the data that a recipe names
  std::function<tasks::TaskPtr(DatasetPtr)> task = {};

  // The rest may stay empty.

  std::vector<std::string> keys = {};   // of [data] that it reads beside name and path
  std::vector<OwnOption> options = {};  // keys of a section of its own, called like the task
  // What data.path is, and how to come by it; empty for data made from its seed, which has no path.
  std::string path = {};
  std::optional<DataImport> import = {};
  bool is_causal = false;    // its model predicts the next token, and may not see it
  bool is_graph = false;     // its data are graphs, whose edges attention takes (AttentionKind::over_graph)
  bool has_decoder = false;  // its model is an encoder-decoder
  // In place of `task`, for tasks with options of their own.
  std::function<tasks::TaskPtr(DatasetPtr, const Recipe&)> task_of = {};
  std::function<NoiseSize(const Recipe&)> noise = {};
  // The model in words, where it is not made of [model]'s layers and heads alone.
  std::function<std::string(const Recipe&)> describe_model = {};

  bool reads(const std::string& key) const;  // of [data]
};

// Throws when the name is taken, or an option's section is one of the recipe's own. Not while recipes are
// read.
void register_task(TaskKind kind);

const TaskKind& task_kind(const std::string& name);  // throws, naming all, when there is none
const TaskKind& task_kind(const Recipe& recipe);     // of recipe.data.name
std::vector<std::string> task_names();               // in the order of the help

// The task with the data that the recipe names; and over other data.
tasks::TaskPtr open_task(const Recipe& recipe);
tasks::TaskPtr task_over(const Recipe& recipe, DatasetPtr data);

}  // namespace edgewise::train
