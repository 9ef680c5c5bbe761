// The explorer as a part of a run's report: every step in small, and as many heads as a file may hold.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace edgewise::app {

// Empty for a run without snapshots. `most_bytes`: of the data, before compression and base64 (which together
// leave about as much).
std::string graphs_html(const std::filesystem::path& folder, size_t most_bytes);

}  // namespace edgewise::app
