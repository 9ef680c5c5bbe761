#include "folders.h"

#include <c10/util/Exception.h>

namespace edgewise::app {

void expect_run_folder(const std::filesystem::path& folder, const std::string& file,
                       const std::string& command) {
  TORCH_CHECK_VALUE(std::filesystem::exists(folder), command, ": expected a run folder; there is no folder ",
                    folder.string(), ". edgewise train makes one");
  TORCH_CHECK_VALUE(std::filesystem::exists(folder / file), command, ": ", folder.string(),
                    " is not a run folder (it has no ", file, "); edgewise train makes one");
}

std::string shown_place(const std::string& place) {
  const std::string here = std::filesystem::current_path().string() + "/";
  return place.starts_with(here) ? place.substr(here.size()) : place;
}

}  // namespace edgewise::app
