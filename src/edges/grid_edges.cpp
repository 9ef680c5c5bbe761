#include <edgewise/edges/grid_edges.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <ostream>

#include "edges/range_edges.h"
#include "edges/square_patterns.h"

namespace edgewise {

void check_grid(const char* who, const PixelGrid& grid) {
  TORCH_CHECK_VALUE(grid.rows > 0 && grid.columns > 0, who, ": expected a picture with pixels; got ",
                    grid.rows, " x ", grid.columns);
  TORCH_CHECK_VALUE(grid.patch > 0 && grid.rows % grid.patch == 0 && grid.columns % grid.patch == 0, who,
                    ": expected a picture of whole patches of ", grid.patch, " x ", grid.patch,
                    " pixels, which are the groups that squares join; got ", grid.rows, " x ", grid.columns,
                    ". Use attention.unit = 1, or another size");
}

at::Tensor grid_places(const PixelGrid& grid, at::Device device) {
  const auto whole = at::TensorOptions().dtype(at::kLong).device(device);
  const int64_t patch = grid.patch, down = grid.rows / patch, across = grid.columns / patch;
  const at::Tensor patches = at::arange(down * across, whole).view({-1, 1}),
                   inside = at::arange(patch * patch, whole).view({1, -1});
  const at::Tensor row = patches.div(across, "floor") * patch + inside.div(patch, "floor"),
                   column = patches.remainder(across) * patch + inside.remainder(patch);
  return at::stack({row.flatten(), column.flatten()}, 1);
}

GridWindowEdges::GridWindowEdges(const PixelGrid& grid, int64_t radius, int64_t unit)
    : grid_(grid), radius_(radius), unit_(unit) {
  check_unit("GridWindowEdges", unit);
  check_grid("GridWindowEdges", grid);
  TORCH_CHECK_VALUE(radius >= 0, "GridWindowEdges: expected a radius of 0 or more pixels; got ", radius);
  TORCH_CHECK_VALUE(unit == 1 || grid.patch * grid.patch == graph::kSquare,
                    "GridWindowEdges: expected patches of 4 x 4 pixels for squares; got ", grid.patch);
  const at::Tensor places = grid_places(grid);
  at::Tensor near = ((places.unsqueeze(0) - places.unsqueeze(1)).abs() <= radius).all(2);  // [N, N]
  if (unit > 1) {
    const int64_t groups = grid.tokens() / unit;
    near = near.view({groups, unit, groups, unit}).any(3).any(1);
  }
  degrees_ = near.sum(1);
  keys_ = near.nonzero().select(1, 1).to(at::kInt);
}

EdgeChoice GridWindowEdges::choose(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  TORCH_CHECK_VALUE(shape.queries == grid_.tokens() && shape.keys == shape.queries && !request.is_causal,
                    "GridWindowEdges: expected the ", grid_.tokens(),
                    " pixels of a picture, not causal; got ", to_string(shape));
  const at::Device device = request.query.device();
  const bool inference = c10::InferenceMode::is_enabled(), keep = !request.key_mask;
  if (keep && last_ && last_->edges.shape() == shape && last_->edges.device() == device &&
      last_->inference == inference)
    return plain_choice(last_->edges);
  const int64_t graphs = shape.batch * shape.heads;
  const at::Tensor offsets =
      at::cat({at::zeros({1}, degrees_.options()), degrees_.repeat({graphs}).cumsum(0)}).to(device);
  const EdgeShape nodes = unit_ > 1 ? shape_of_groups(shape) : shape;
  EdgeSet edges = EdgeSet::from_trusted_csr(nodes, offsets, keys_.repeat({graphs}).to(device));
  if (unit_ > 1) edges = EdgeSet::from_square_groups(shape, edges, allowed_square_pairs(request));
  if (!keep) return plain_choice(restricted(edges, request));
  last_ = Answer{edges, inference};
  return plain_choice(std::move(edges));
}

void GridWindowEdges::pretty_print(std::ostream& stream) const {
  stream << "edgewise::GridWindowEdges(radius=" << radius_ << ", " << grid_.rows << " x " << grid_.columns
         << (unit_ > 1 ? ", unit=16)" : ")");
}

}  // namespace edgewise
