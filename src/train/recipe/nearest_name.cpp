#include "train/recipe/nearest_name.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace edgewise::train {

int edit_distance(std::string_view a, std::string_view b) {
  // Distances from the first i characters of a to every start of b; before and older: of one and two fewer.
  std::vector<int> row(b.size() + 1), before, older;
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    older = std::exchange(before, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({before[j - 1] + (a[i - 1] != b[j - 1]), before[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], older[j - 2] + 1);
    }
  }
  return row.back();
}

std::string name_here(std::string_view wanted) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kNames = {{{"lr", "learning_rate"},
                                                                                    {"epochs", "steps"},
                                                                                    {"epoch", "steps"},
                                                                                    {"gpu", "cuda"},
                                                                                    {"val", "validation"},
                                                                                    {"dev", "validation"},
                                                                                    {"pretrained", "weights"},
                                                                                    {"init_from", "weights"},
                                                                                    {"finetune", "weights"}}};
  for (const auto& [elsewhere, here] : kNames)
    if (elsewhere == wanted) return std::string(here);
  return {};
}

std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  if (std::string here = name_here(wanted); std::ranges::find(names, here) != names.end()) return here;
  const std::string& nearest = *std::ranges::min_element(
      names, {}, [&](const std::string& name) { return edit_distance(wanted, name); });
  const size_t differ = static_cast<size_t>(edit_distance(wanted, nearest));
  return 3 * differ > std::max(wanted.size(), nearest.size()) ? std::string() : nearest;
}

}  // namespace edgewise::train
