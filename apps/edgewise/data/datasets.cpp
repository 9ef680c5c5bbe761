#include "data/datasets.h"

#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/train/task_kinds.h>

#include <filesystem>

#include "train/run/run_folder.h"

namespace edgewise::app {
namespace {

std::string one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::string noted_data(const std::filesystem::path& run) {
  const train::RunFolder folder{.root = run};
  return train::file_exists(folder.data()) ? one_line(io::read_file(folder.data())) : "";
}

namespace {
std::string other_than(const std::string& had, const std::string& run, const data::Dataset& dataset) {
  const std::string has = one_line(train::describe_data(dataset));
  if (had.empty() || one_line(had) == has) return "";
  return "expected the data of " + run + ", " + had + "; found " + has;
}
}  // namespace

std::string other_data(const std::filesystem::path& run, const data::Dataset& dataset) {
  return other_than(noted_data(run), run.string(), dataset);
}

tasks::TaskPtr task_of_run(const std::string& noted, const std::string& run, const train::Recipe& recipe,
                           std::string& why_not) {
  why_not.clear();
  if (train::task_kind(recipe).path.empty())
    return train::open_task(recipe);  // the same wherever it is opened
  std::error_code unreadable;
  if (!std::filesystem::exists(recipe.data.path, unreadable)) return nullptr;
  tasks::TaskPtr found;
  try {
    found = train::open_task(recipe);
    why_not = other_than(noted, run, found->data());
  } catch (const c10::Error& error) {
    why_not = error.what_without_backtrace();
    return nullptr;
  } catch (const std::exception& error) {
    why_not = error.what();
    return nullptr;
  }
  if (why_not.empty()) return found;
  why_not = recipe.data.path + ": " + why_not +
            ". A relative data.path, of a former version, starts where edgewise is called.";
  return nullptr;
}

}  // namespace edgewise::app
