#include "data/symmetries.h"

#include <cstddef>
#include <utility>

namespace edgewise::data {

std::vector<int32_t> symmetric_places(int64_t count, int64_t side) {
  std::vector<int32_t> places;
  places.reserve(static_cast<size_t>(count * side * side));
  for (int64_t symmetry = 0; symmetry < count; ++symmetry) {
    for (int64_t row = 0; row < side; ++row) {
      for (int64_t column = 0; column < side; ++column) {
        int64_t from_row = row, from_column = column;
        if (symmetry & 4) std::swap(from_row, from_column);
        if (symmetry & 2) from_row = side - 1 - from_row;
        if (symmetry & 1) from_column = side - 1 - from_column;
        places.push_back(static_cast<int32_t>(from_row * side + from_column));
      }
    }
  }
  return places;
}

}  // namespace edgewise::data
