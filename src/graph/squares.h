// Squares: edges that come 16 x 16 at a time. Queries and keys are cut into groups of 16 neighbours (the last
// group may be short); a square (I, J) holds the pairs of query group I with key group J, or those of them
// that a key mask and causality leave.
//
// Row r = (b*H + h) * query_groups + I has `count[r]` squares, whose key groups stand in `cols` from
// `begin[r]` on, ascending. Rows may lie apart: a sampler on a GPU gives each row room for all key groups, so
// that nothing is counted on the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <cstdint>

namespace edgewise::graph {

inline constexpr int64_t kSquare = 16;
inline int64_t groups_of(int64_t tokens) {
  return (tokens + kSquare - 1) / kSquare;
}

struct Squares {
  EdgeShape shape;   // in tokens
  at::Tensor begin;  // [B*H*groups(L)] int32
  at::Tensor count;  // [B*H*groups(L)] int32
  at::Tensor cols;   // [places] int32: key groups

  int64_t query_groups() const { return groups_of(shape.queries); }
  int64_t key_groups() const { return groups_of(shape.keys); }
  int64_t rows() const { return shape.batch * shape.heads * query_groups(); }
};

// The same squares by key group: row c = (b*H + h) * key_groups + J.
struct TransposedSquares {
  at::Tensor begin;   // [B*H*groups(S)] int32
  at::Tensor count;   // [B*H*groups(S)] int32
  at::Tensor rows;    // [places] int32: query groups, ascending
  at::Tensor places;  // [places] int32: where the square stands in Squares::cols
};

}  // namespace edgewise::graph
