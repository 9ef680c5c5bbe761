// Whether a text of TOML may be given to TOML++, which goes as deep into itself as names have parts:
// "a.a.a..." of a few hundred kilobytes would end the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace edgewise::train {

// The line where a key has more parts, or brackets are deeper within each other, than any of ours could be.
std::optional<int64_t> too_deep_line(std::string_view text);
// Throws c10::ValueError that names it.
void check_toml_depth(std::string_view text, const std::string& name);

}  // namespace edgewise::train
