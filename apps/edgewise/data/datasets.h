// The data that runs were trained on.
#pragma once

#include <edgewise/tasks/task.h>
#include <edgewise/train/recipe.h>

#include <filesystem>
#include <string>

namespace edgewise::app {

// Name and sizes of the data that a run was trained on, as it noted them; empty for runs that did not yet.
std::string noted_data(const std::filesystem::path& run);

// What tells a data set from the one that the run noted; empty when it is the same, or none was noted.
std::string other_data(const std::filesystem::path& run, const data::Dataset& dataset);

// The task of a run with its data, if that is what lies where its recipe says; a relative path may lead
// elsewhere today. Else nothing, and the reason: in `why_not`, empty when there simply is no data.
// `noted` is what the run noted of it.
tasks::TaskPtr task_of_run(const std::string& noted, const std::string& run, const train::Recipe& recipe,
                           std::string& why_not);

}  // namespace edgewise::app
