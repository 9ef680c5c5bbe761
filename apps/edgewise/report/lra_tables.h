// Rows of the Long Range Arena as tables for people, as Markdown, and as JSON.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "report/lra_differences.h"
#include "report/lra_rows.h"

namespace edgewise::app {

enum class TableForm { kText, kMarkdown };

// A task's rows, its differences, and its rows beside the paper's.
void print_task(const std::vector<LraRow>& rows, size_t task, TableForm form, std::ostream& out);

// Runs that have no test yet, as they stand.
void print_untested(const std::vector<Run>& runs, TableForm form, std::ostream& out);

// One object: tasks with their rows and differences.
std::string json_of_tasks(const std::vector<LraRow>& rows);

}  // namespace edgewise::app
