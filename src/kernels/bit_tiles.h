// 64 x 64 bit tiles in the order of the tensor cores' accumulators: the second layout of an EdgeSet.
//
// A head has ceil(L/64) x ceil(S/64) tiles of 128 words each. Word 32 w + lane of a tile belongs to its rows
// 16 w .. 16 w + 15. Of these a lane holds, in every 16 x 8 block j of a 16 x 64 accumulator, four elements:
// e = 0, 1 in row lane/4 at columns 8 j + 2 (lane%4) + e, and e = 2, 3 eight rows below. Element (j, e) is
// bit 7 + 8 e - j, so that `word << j` has the four bits of block j at the signs of its four bytes.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace edgewise::kernels {

inline constexpr int kTileSide = 64;
inline constexpr int kTileWords = 128;

// Where element (row, column) of a tile is: word and bit.
EDGEWISE_BOTH int tile_word(int row, int column) {
  return (row / 16) * 32 + (row % 8) * 4 + (column % 8) / 2;
}
EDGEWISE_BOTH int tile_bit(int row, int column) {
  return 7 + 8 * ((row % 16 / 8) * 2 + column % 2) - column / 8;
}

// The bits of the rows lane/4 and lane/4 + 8 within a word.
inline constexpr uint32_t kUpperRowBits = 0x0000FFFFu;
inline constexpr uint32_t kLowerRowBits = 0xFFFF0000u;

}  // namespace edgewise::kernels
