// What SbmEdges keeps of a graph's pairs, and whether its options ask for any.
#pragma once

#include <edgewise/edges/sbm_edges.h>
#include <edgewise/graph/sparse_matrix.h>

#include <optional>

namespace edgewise {

struct SbmScope {
  std::optional<EdgeSet> relations, candidates;  // of the last request: [1, 1, L, S]
  EdgeSet in_heads;      // the candidates that are no relations, for every head; empty without candidates
  SparseMatrix counted;  // the same for one head as ones; without candidates: the relations
};

bool has_scope(const SbmEdgesOptions& options);
void check_scope(const SbmEdgesOptions& options);

}  // namespace edgewise
