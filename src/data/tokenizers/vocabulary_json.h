// vocab.json: one object of pieces and their ids, which are 0 .. n - 1, each once.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

// The pieces by id. What is wrong is an error with file, line and column.
std::vector<std::string> parse_vocabulary_json(std::string_view json, const std::string& file);
std::string vocabulary_json(const std::vector<std::string>& pieces);

}  // namespace edgewise::data
