// Accuracy of the Long Range Arena's rows over density and over the time of a step, with error bars.
#pragma once

#include <filesystem>
#include <vector>

#include "report/lra_rows.h"

namespace edgewise::app {

// TASK.svg over density and, where steps were measured, TASK-time.svg over their time, into `folder`.
// `first_token`: percent that ListOps' first token alone gives.
void draw_task(const std::vector<LraRow>& rows, const std::vector<Run>& runs, size_t task, double first_token,
               const std::filesystem::path& folder);

}  // namespace edgewise::app
