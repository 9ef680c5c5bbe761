// The pages of how-to guides, followed as a user does: their commands, typed into a shell in a scratch
// folder.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cli/call.h"

namespace edgewise::cli {

// The lines of the first block of commands behind a heading of a page.
inline std::vector<std::string> commands_of(const std::string& file, const std::string& heading) {
  std::ifstream stream(std::string(EDGEWISE_SOURCE_DIR) + "/docs/how-to/" + file);
  const std::string page{std::istreambuf_iterator<char>(stream), {}};
  size_t at = page.find("```\nedgewise ", page.find(heading));
  std::vector<std::string> lines;
  if (at == std::string::npos) return lines;
  for (at += 4; page.compare(at, 3, "```") != 0;) {
    const size_t end = page.find('\n', at);
    lines.push_back(page.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

inline Call shell(const kit::ScratchFolder& scratch, const std::string& line) {
  const std::string bin = std::filesystem::path(EDGEWISE_BINARY).parent_path().string();
  const std::string command = "cd '" + scratch.path().string() + "' && export PATH='" + bin +
                              "':\"$PATH\" OMP_NUM_THREADS=1 && { " + line + " ; } > stdout 2> stderr";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, scratch.read("stdout"), scratch.read("stderr")};
}

// What lies beside the user, who is in the folder of the project.
inline void link_project(const kit::ScratchFolder& scratch) {
  for (const char* const folder : {"recipes", "docs"})
    std::filesystem::create_directory_symlink(std::filesystem::path(EDGEWISE_SOURCE_DIR) / folder,
                                              scratch / folder);
}

}  // namespace edgewise::cli
