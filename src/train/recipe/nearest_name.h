// The known name nearest to a misspelt one, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace edgewise::train {

// Fewest insertions, deletions, replacements and swaps of neighbours that turn one into the other.
int edit_distance(std::string_view a, std::string_view b);

// What a name that is usual elsewhere is called here: "lr" is "learning_rate". Empty for all others.
std::string name_here(std::string_view wanted);

// What the name is called here, if that is one of the names, else the first of the nearest; empty where more
// than a third of the letters differ: a wrong guess is worse than none.
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace edgewise::train
