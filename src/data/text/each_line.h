// The lines of a text file, one after another, without the file in memory.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace edgewise::data {

// Calls use(line) for every line with its end, "\n", which the last one may lack. FILE.xz is read where there
// is no FILE, but as a whole. Returns the bytes read.
int64_t each_line(const std::filesystem::path& file, const std::function<void(std::string_view line)>& use);

}  // namespace edgewise::data
