// EdgePlan: what kernels derive from the edges of a set. Each part is made when it is first asked for, and
// kept with the set: the backward pass and later calls find it there.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <optional>

#include "graph/edge_windows.h"

namespace edgewise::graph {

// The same edges ordered by key: column c = (b*H + h)*S + j holds edges column_offsets[c] ..
// column_offsets[c+1].
struct TransposedEdges {
  at::Tensor column_offsets;  // [B*H*S + 1] int64
  at::Tensor row_indices;     // [E] int32, the query i within its head
  at::Tensor edge_ids;        // [E] int64, position of the edge in CSR order; undefined where kernels made it
};

class EdgePlan {
 public:
  explicit EdgePlan(EdgeLayouts& layouts) : layouts_(layouts) {}
  EdgePlan(const EdgePlan&) = delete;
  EdgePlan& operator=(const EdgePlan&) = delete;

  // Of every copy of the set the same one.
  static EdgePlan& of(const EdgeSet& edges);

  const TransposedEdges& transposed();
  // Tiles by keys: [B*H, ceil(S/64), ceil(L/64), 128] int32. Those of the heads `without` may be anything.
  const at::Tensor& transposed_tiles(const SparseHeads& without = {});
  const at::Tensor& used_tiles();  // on CUDA: [B*H, ceil(L/64), ceil(S/64)] uint8, 1 = holds an edge

  // On CUDA: the heads with at most `density` of all pairs. Nothing is counted on the host. Windows of 16
  // queries, or of 16 keys, take twice the memory of the tiles, so they are kept only when they are asked for
  // a second time: sampled edges are used once.
  SparseHeads sparse_heads(double density);
  EdgeWindows windows(double density, bool by_keys);

  // Bit tiles of a set that was born with its units (edges_in_units): words of 16 queries and 64 keys without
  // a square may be anything in `unit_tiles`; those of the heads `without` may be in `tiles`.
  const EdgeUnits* units() const { return units_ ? &*units_ : nullptr; }
  const at::Tensor& unit_tiles() const;
  const at::Tensor& tiles(const SparseHeads& without = {});

 private:
  friend EdgeSet edges_in_units(const EdgeShape& shape, at::Tensor tiles, EdgeUnits units);

  EdgeLayouts& layouts_;
  std::optional<TransposedEdges> transposed_;
  at::Tensor transposed_tiles_, used_tiles_;
  SparseHeads missing_;                     // in transposed_tiles_
  std::optional<EdgeWindows> windows_[2];   // by queries, by keys
  double windows_asked_for_[2] = {-1, -1};  // the density
  std::optional<EdgeUnits> units_;
  bool squares_alone_ = false;        // tiles hold anything outside of the units,
  std::optional<SparseHeads> dirty_;  // or only those of these heads do,
  bool is_recorded_ = false;          // once a recording is replayed
};

// From bit tiles, and the squares of 16 x 16 pairs that hold all edges. Words of 16 queries and 64 keys
// without a square may be anything: they become zeros when tiles() are asked for.
EdgeSet edges_in_units(const EdgeShape& shape, at::Tensor tiles, EdgeUnits units);

}  // namespace edgewise::graph
