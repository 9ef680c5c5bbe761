// Relative positions of pixels in scores, without a number per pair.
//
//   s_ij = q_i . (k_j + c[x_j - x_i + W - 1] + r[y_j - y_i + H - 1])
//
// For query i the second and third terms are W + H numbers, one for each column and row that a key may stand
// in. Put behind q_i, with a 1 behind k_j where j stands and 0 elsewhere, they make the score an ordinary dot
// product of width D + W + H: what every kernel of edge_attention computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/edges/pixel_grid.h>

namespace edgewise {

// Tables of relative offsets [2n - 1, D] as tables of places: row i of the result [n, n, D] is what query i
// meets at places 0 .. n - 1. Copies only, so its gradient adds up in one order.
at::Tensor by_place(const at::Tensor& offsets);

// query [B, H, rows, columns, D], column_table [2 columns - 1, D], row_table [2 rows - 1, D] -> [B, H, rows,
// columns, columns + rows]: the terms of c, then those of r.
at::Tensor position_terms(const at::Tensor& query, const at::Tensor& column_table,
                          const at::Tensor& row_table);

// What keys bring to them, row by row: [rows * columns, columns + rows], two ones a row.
at::Tensor position_marks(const PixelGrid& grid, const at::TensorOptions& options);

// Where pixels stand, for who chooses edges by what it sees: [rows * columns, width], sines and cosines of
// row and column of wavelengths from 6 pixels to six times the picture; zeros fill up a width that 4 does not
// divide.
at::Tensor position_waves(const PixelGrid& grid, int64_t width);

// [B, H, rows, columns, D] -> [B, H, N, D] in the order of the grid's tokens, and back.
at::Tensor as_tokens(const at::Tensor& pixels, const PixelGrid& grid);
at::Tensor as_pixels(const at::Tensor& tokens, const PixelGrid& grid);

}  // namespace edgewise
