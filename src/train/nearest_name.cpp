#include "train/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace edgewise::train {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);  // distances from the first i characters of a to every start of b
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names) {
  return *std::ranges::min_element(names, {},
                                   [&](const std::string& name) { return edit_distance(wanted, name); });
}

}  // namespace edgewise::train
