// Squares: edges that come 16 x 16 at a time. Queries and keys are cut into groups of 16 neighbours (the last
// group may be short); a square (I, J) holds the pairs of query group I with key group J, or those of them
// that masks and causality leave.
//
//   EdgeSet::from_squares({shape, begin, count, cols}, {.is_causal = true})
//
// Row r = (b*H + h) * query_groups + I has `count[r]` squares, whose key groups stand in `cols` from
// `begin[r]` on, ascending. Rows may lie apart: a sampler on a GPU gives each row room for all key groups, so
// that nothing is counted on the host. No two rows share a place.
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

// Which pairs of a square take part.
struct SquarePairs {
  at::Tensor key_bits = {};  // [B, groups(S)] int32, bit j of a word: key 16 J + j does. Undefined: all do
  bool is_causal = false;    // key <= query_offset + query only
  int64_t query_offset = 0;
  at::Tensor query_mask = {};  // [B, L] bool: queries that do. Undefined: all do
};

// Bits as SquarePairs takes them: [B, groups(S)] int32, from key_mask [B, S] bool, true = key takes part.
at::Tensor key_bits_of(const at::Tensor& key_mask);

}  // namespace edgewise::graph
