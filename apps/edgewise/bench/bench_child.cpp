#include "bench/bench_child.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <filesystem>

namespace edgewise::app {

std::string last_line_of_child(const std::string& arguments, const std::string& what) {
  // What it says on stderr belongs into the message of the error, not below a bar.
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  FILE* pipe = ::popen(("'" + program + "' " + arguments + " 2>&1").c_str(), "r");
  TORCH_CHECK(pipe, what, ": cannot start a child process");
  std::string text;
  char part[512];
  while (std::fgets(part, sizeof part, pipe)) text += part;
  const bool succeeded = ::pclose(pipe) == 0;
  while (text.ends_with('\n')) text.pop_back();
  std::string last = text.substr(text.rfind('\n') + 1);  // warnings may come before it
  if (last.starts_with("edgewise: ")) last.erase(0, std::string("edgewise: ").size());
  TORCH_CHECK(succeeded, what, " failed: ",
              last.empty() ? "its process was ended, for its memory perhaps. Leave this length out" : last);
  return last;
}

}  // namespace edgewise::app
