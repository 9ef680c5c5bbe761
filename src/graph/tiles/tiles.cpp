// Bit tiles on CPU, and the way to the CUDA kernels for tensors that live there.
#include "graph/tiles/tiles.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "graph/tiles/tiles_cuda.h"
#include "kernels/bit_tiles.h"

namespace edgewise::graph {
namespace {

using kernels::kTileSide;
using kernels::kTileWords;

int64_t tile_count(int64_t tokens) {
  return (tokens + kTileSide - 1) / kTileSide;
}

// Calls body(head * L + row, words of the strip of tiles that hold the row, row within its tile) for every
// row.
template <typename Words, typename Body>
void for_strips(const EdgeShape& shape, Words* words, const Body& body) {
  const int64_t strip = tile_count(shape.keys) * kTileWords;
  at::parallel_for(0, shape.batch * shape.heads * tile_count(shape.queries), 1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t n = begin; n < end; ++n) {
                       const int64_t head = n / tile_count(shape.queries),
                                     first = n % tile_count(shape.queries) * kTileSide;
                       for (int64_t row = first; row < std::min(first + kTileSide, shape.queries); ++row)
                         body(head * shape.queries + row, words + n * strip, static_cast<int>(row - first));
                     }
                   });
}

bool has_edge(const int32_t* strip, int row, int64_t column) {
  const int inside = static_cast<int>(column % kTileSide);
  const auto word =
      static_cast<uint32_t>(strip[column / kTileSide * kTileWords + kernels::tile_word(row, inside)]);
  return word >> kernels::tile_bit(row, inside) & 1;
}
void set_edge(int32_t* strip, int row, int64_t column) {
  const int inside = static_cast<int>(column % kTileSide);
  int32_t& word = strip[column / kTileSide * kTileWords + kernels::tile_word(row, inside)];
  word = static_cast<int32_t>(static_cast<uint32_t>(word) | 1u << kernels::tile_bit(row, inside));
}

}  // namespace

at::Tensor empty_tiles(const EdgeShape& shape, at::Device device, bool zeroed) {
  const std::vector<int64_t> sizes = {shape.batch * shape.heads, tile_count(shape.queries),
                                      tile_count(shape.keys), kTileWords};
  const auto options = at::TensorOptions().dtype(at::kInt).device(device);
  return zeroed ? at::zeros(sizes, options) : at::empty(sizes, options);
}

at::Tensor tiles_from_csr(const EdgeShape& shape, const at::Tensor& row_offsets,
                          const at::Tensor& col_indices) {
  at::Tensor tiles = empty_tiles(shape, row_offsets.device(), /*zeroed=*/true);
  if (!row_offsets.is_cpu()) {
    cuda_tiles_from_csr(shape, row_offsets, col_indices, tiles);
    return tiles;
  }
  const int64_t* const offsets = row_offsets.const_data_ptr<int64_t>();
  const int32_t* const columns = col_indices.const_data_ptr<int32_t>();
  for_strips(shape, tiles.mutable_data_ptr<int32_t>(), [&](int64_t row, int32_t* strip, int inside) {
    for (int64_t e = offsets[row]; e < offsets[row + 1]; ++e) set_edge(strip, inside, columns[e]);
  });
  return tiles;
}

at::Tensor tile_degrees(const EdgeShape& shape, const at::Tensor& tiles) {
  if (!tiles.is_cpu()) return cuda_tile_degrees(shape, tiles).to(at::kLong);
  at::Tensor degrees = at::zeros({shape.rows()}, at::kLong);
  int64_t* const counts = degrees.mutable_data_ptr<int64_t>();
  for_strips(shape, tiles.const_data_ptr<int32_t>(), [&](int64_t row, const int32_t* strip, int inside) {
    for (int64_t column = 0; column < shape.keys; ++column) counts[row] += has_edge(strip, inside, column);
  });
  return degrees;
}

std::pair<at::Tensor, at::Tensor> csr_from_tiles(const EdgeShape& shape, const at::Tensor& tiles) {
  if (!tiles.is_cpu()) return cuda_csr_from_tiles(shape, tiles);
  at::Tensor row_offsets = at::zeros({shape.rows() + 1}, at::kLong);
  row_offsets.narrow(0, 1, shape.rows()).copy_(tile_degrees(shape, tiles).cumsum(0));
  const int64_t* const offsets = row_offsets.const_data_ptr<int64_t>();
  const int32_t* const words = tiles.const_data_ptr<int32_t>();
  at::Tensor col_indices = at::empty({offsets[shape.rows()]}, at::kInt);
  int32_t* const columns = col_indices.mutable_data_ptr<int32_t>();
  for_strips(shape, words, [&](int64_t row, const int32_t* strip, int inside) {
    int64_t place = offsets[row];
    for (int64_t column = 0; column < shape.keys; ++column)
      if (has_edge(strip, inside, column)) columns[place++] = static_cast<int32_t>(column);
  });
  return {row_offsets, col_indices};
}

at::Tensor transposed_tiles(const EdgeShape& shape, const at::Tensor& tiles) {
  const EdgeShape turned{shape.batch, shape.heads, shape.keys, shape.queries};
  if (!tiles.is_cpu()) return cuda_transposed_tiles(shape, tiles, {});
  at::Tensor result = empty_tiles(turned, tiles.device(), /*zeroed=*/true);
  const int32_t* const words = tiles.const_data_ptr<int32_t>();
  const int64_t rows = tile_count(shape.queries), columns = tile_count(shape.keys);
  for_strips(turned, result.mutable_data_ptr<int32_t>(), [&](int64_t row, int32_t* strip, int inside) {
    const int64_t head = row / shape.keys, key = row % shape.keys;
    for (int64_t query = 0; query < shape.queries; ++query)
      if (has_edge(words + (head * rows + query / kTileSide) * columns * kTileWords,
                   static_cast<int>(query % kTileSide), key))
        set_edge(strip, inside, query);
  });
  return result;
}

}  // namespace edgewise::graph
