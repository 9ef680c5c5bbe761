#include "graph/tiles/allowed_tiles.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>

#include "kernels/bit_tiles.h"

namespace edgewise::graph {
namespace {

using kernels::kTileSide;
using kernels::kTileWords;

constexpr int64_t kWordBits = 32;

at::Tensor numbers(int64_t count, at::Device device) {
  return at::arange(count, at::TensorOptions().dtype(at::kLong).device(device));
}

// Row and column within a tile of every bit of its words: the inverse of kernels::tile_word and tile_bit,
// worked out on the device.
struct Places {
  at::Tensor row, column;  // [128, 32] int64

  explicit Places(at::Device device) {
    const at::Tensor word = numbers(kTileWords, device).unsqueeze(1), bit = numbers(kWordBits, device);
    const at::Tensor lane = word.remainder(32), element = bit.div(8, "floor");
    row = word.div(32, "floor") * 16 + lane.div(4, "floor") + element.div(2, "floor") * 8;
    column = (7 - bit.remainder(8)) * 8 + lane.remainder(4) * 2 + element.remainder(2);
  }
};

// [.., 32] bool -> [..] int32.
at::Tensor packed(const at::Tensor& bits) {
  const at::Tensor shifted = bits.to(at::kLong).bitwise_left_shift(numbers(kWordBits, bits.device()));
  return shifted.sum(-1).to(at::kInt);  // the last bit is the sign
}

// mask [B, N] -> words of the tiles that hold these tokens as rows or as columns: [B, ceil(N/64), 128].
at::Tensor token_words(const at::Tensor& mask, const at::Tensor& place) {
  const int64_t tokens = mask.size(1), tiles = (tokens + kTileSide - 1) / kTileSide;
  const at::Tensor whole =
      at::constant_pad_nd(mask, {0, tiles * kTileSide - tokens}).view({mask.size(0), tiles, kTileSide});
  return packed(
      whole.index_select(2, place.flatten()).view({mask.size(0), tiles, int64_t{kTileWords}, kWordBits}));
}

// [ceil(L/64), ceil(S/64), 128]. Tiles on one diagonal are alike.
at::Tensor causal_words(int64_t row_tiles, int64_t column_tiles, int64_t query_offset, const Places& places) {
  const at::Device device = places.row.device();
  const at::Tensor behind = numbers(row_tiles + column_tiles - 1, device) - (column_tiles - 1);
  const at::Tensor ahead = (places.column - places.row).unsqueeze(0);  // [1, 128, 32]
  const at::Tensor words = packed(ahead <= (behind * kTileSide + query_offset).view({-1, 1, 1}));
  const at::Tensor diagonal =
      numbers(row_tiles, device).unsqueeze(1) - numbers(column_tiles, device) + (column_tiles - 1);
  return words.index_select(0, diagonal.flatten()).view({row_tiles, column_tiles, int64_t{kTileWords}});
}

}  // namespace

EdgeSet restricted_tiles(const EdgeSet& edges, const AllowedPairs& allowed) {
  const EdgeShape& shape = edges.shape();
  const at::Tensor& given = edges.tiles();  // [B*H, ceil(L/64), ceil(S/64), 128]
  if (given.numel() == 0) return edges;
  const int64_t row_tiles = given.size(1), column_tiles = given.size(2);
  const Places places(edges.device());
  at::Tensor words = given.view({shape.batch, shape.heads, row_tiles, column_tiles, int64_t{kTileWords}});
  if (allowed.key_mask)
    words = words.bitwise_and(token_words(*allowed.key_mask, places.column).unsqueeze(1).unsqueeze(1));
  if (allowed.query_mask)
    words = words.bitwise_and(token_words(*allowed.query_mask, places.row).unsqueeze(1).unsqueeze(3));
  if (allowed.is_causal)
    words = words.bitwise_and(causal_words(row_tiles, column_tiles, allowed.query_offset, places));
  return EdgeSet::from_trusted_tiles(shape, words.view_as(given));
}

}  // namespace edgewise::graph
