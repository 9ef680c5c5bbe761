// Edges between pixels of a picture that are near each other.
#pragma once

#include <edgewise/edges/edge_source.h>
#include <edgewise/edges/pixel_grid.h>

namespace edgewise {

// Throws unless the grid has pixels and its patches divide it.
void check_grid(const char* who, const PixelGrid& grid);
// Row and column of every token: [N, 2] int64.
at::Tensor grid_places(const PixelGrid& grid, at::Device device = at::kCPU);

// Keys at most `radius` rows and columns from the query, its own pixel among them. In squares (unit 16): all
// that such a window of one of their queries touches.
class GridWindowEdges : public EdgeSource {
 public:
  GridWindowEdges(const PixelGrid& grid, int64_t radius, int64_t unit = 1);
  EdgeChoice choose(const EdgeRequest& request) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  PixelGrid grid_;
  int64_t radius_, unit_;
  at::Tensor degrees_, keys_;  // of one head: [L] int64 and [E] int32; in squares of groups
  struct Answer {
    EdgeSet edges;
    bool inference;  // made in torch's inference mode
  };
  std::optional<Answer> last_;  // steps of one size ask for the same again
};

}  // namespace edgewise
