#include "attention/grid_positions.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <edgewise/edges/grid_edges.h>

namespace edgewise {

at::Tensor by_place(const at::Tensor& offsets) {
  const int64_t n = (offsets.size(0) + 1) / 2, width = offsets.size(1);
  // Row i is to begin at n - 1 - i. In rows of 2n - 1 and one of padding, laid end to end, it begins at
  // i (2n - 1) + n - 1.
  return at::constant_pad_nd(offsets, {0, 0, 0, 1})
      .unsqueeze(0)
      .expand({n, 2 * n, width})
      .reshape({n * 2 * n, width})
      .narrow(0, n - 1, n * (2 * n - 1))
      .view({n, 2 * n - 1, width})
      .narrow(1, 0, n);
}

at::Tensor position_terms(const at::Tensor& query, const at::Tensor& column_table,
                          const at::Tensor& row_table) {
  return at::cat({at::einsum("bhyxd,xjd->bhyxj", {query, by_place(column_table)}),
                  at::einsum("bhyxd,yjd->bhyxj", {query, by_place(row_table)})},
                 -1);
}

at::Tensor position_marks(const PixelGrid& grid, const at::TensorOptions& options) {
  const at::Tensor places = grid_places({grid.rows, grid.columns, 1});
  return at::cat(
             {at::one_hot(places.select(1, 1), grid.columns), at::one_hot(places.select(1, 0), grid.rows)}, 1)
      .to(options);
}

at::Tensor position_waves(const PixelGrid& grid, int64_t width) {
  constexpr double kShortest = 6;  // pixels
  const at::Tensor places = grid_places({grid.rows, grid.columns, 1}).to(at::kDouble);
  const int64_t count = width / 4;
  at::Tensor result = at::zeros({grid.tokens(), width}, at::kDouble);
  const double ratio = static_cast<double>(std::max(grid.rows, grid.columns));
  for (int64_t n = 0; n < count; ++n) {
    const double share = count > 1 ? static_cast<double>(n) / static_cast<double>(count - 1) : 0;
    const at::Tensor angles = places * (2 * std::numbers::pi / (kShortest * std::pow(ratio, share)));
    result.select(1, 4 * n).copy_(angles.select(1, 0).sin());
    result.select(1, 4 * n + 1).copy_(angles.select(1, 0).cos());
    result.select(1, 4 * n + 2).copy_(angles.select(1, 1).sin());
    result.select(1, 4 * n + 3).copy_(angles.select(1, 1).cos());
  }
  return result.to(at::kFloat);
}

at::Tensor as_tokens(const at::Tensor& pixels, const PixelGrid& grid) {
  if (grid.patch == 1) return pixels.flatten(2, 3);
  const int64_t p = grid.patch, batch = pixels.size(0), heads = pixels.size(1), width = pixels.size(4);
  return pixels.reshape({batch, heads, grid.rows / p, p, grid.columns / p, p, width})
      .transpose(3, 4)
      .reshape({batch, heads, grid.tokens(), width});
}

at::Tensor as_pixels(const at::Tensor& tokens, const PixelGrid& grid) {
  const int64_t p = grid.patch, batch = tokens.size(0), heads = tokens.size(1), width = tokens.size(3);
  if (p == 1) return tokens.reshape({batch, heads, grid.rows, grid.columns, width});
  return tokens.reshape({batch, heads, grid.rows / p, grid.columns / p, p, p, width})
      .transpose(3, 4)
      .reshape({batch, heads, grid.rows, grid.columns, width});
}

}  // namespace edgewise
