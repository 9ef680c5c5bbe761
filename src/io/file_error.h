// One wording for every failed file operation: "caller: cannot write '/path': No space left on device".
// Helpers that work for many callers leave theirs empty: what the user gave is the path.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace edgewise::io {

[[noreturn]] inline void throw_file_error(int error, const char* caller, const char* what,
                                          const std::filesystem::path& path) {
  throw std::system_error(error, std::generic_category(),
                          std::string(caller) + (*caller ? ": " : "") + what + " '" + path.string() + "'");
}

}  // namespace edgewise::io
