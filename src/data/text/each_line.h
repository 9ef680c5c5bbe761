// The lines of a text file, one after another, without the file in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

namespace edgewise::data {

// Calls use(line) for every line with its end, "\n", which the last one may lack. FILE.xz is read where there
// is no FILE, but as a whole. Returns the bytes read.
//
// Of a line that is longer than `limit` bytes, which 0 allows, use() gets the beginning alone, of more bytes
// than that; it should throw.
int64_t each_line(const std::filesystem::path& file, const std::function<void(std::string_view line)>& use,
                  size_t limit = 0);

}  // namespace edgewise::data
