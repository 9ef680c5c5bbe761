// The known name nearest to a misspelt one, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace edgewise::train {

// Fewest insertions, deletions and replacements that turn one into the other.
int edit_distance(std::string_view a, std::string_view b);

// The first of the nearest; names must not be empty.
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace edgewise::train
