// PixelGrid: where the tokens of a picture stand in it.
#pragma once

#include <cstdint>

namespace edgewise {

struct PixelGrid {
  int64_t rows = 0, columns = 0;
  // Tokens follow each other patch by patch, patches of so many rows and columns, and row by row within one.
  // 1: row by row through the picture. With 4, groups of 16 neighbouring tokens are patches of the picture.
  int64_t patch = 1;

  int64_t tokens() const { return rows * columns; }
  bool operator==(const PixelGrid&) const = default;
};

}  // namespace edgewise
