// What an EdgeSet holds: its layouts, each made on demand and kept, and the plan that kernels have made of
// them.
#pragma once

#include <edgewise/graph/edge_set.h>

#include <edgewise/graph/square_lists.h>

#include <mutex>
#include <optional>

#include "graph/edge_plan.h"

namespace edgewise::graph {

struct EdgeLayouts {
  EdgeShape shape;
  std::recursive_mutex mutex;            // guards everything below
  at::Tensor row_offsets;                // [B*H*L + 1] int64
  at::Tensor col_indices;                // [E] int32
  at::Tensor tiles;                      // [B*H, ceil(L/64), ceil(S/64), 128] int32
  at::Tensor edges_per_head;             // [B, H] int64
  at::Tensor mask;                       // [B, H, L, S] bool
  std::optional<Squares> squares;        // of a set that was born so,
  SquarePairs square_pairs;              // what of them takes part,
  std::optional<EdgeSet> square_groups;  // and an edge for each
  EdgePlan plan{*this};

  at::Device device() const;
  bool is_tiles_alone();  // tiles are all there is
  void make_csr();
  at::Tensor degrees();                // [B, H, L] int64
  const at::Tensor& count_per_head();  // fills edges_per_head
};

}  // namespace edgewise::graph
