// Squares: edges that come 16 x 16 at a time. Queries and keys are cut into groups of 16 neighbours (the last
// group may be short); a square (I, J) holds the pairs of query group I with key group J, or those of them
// that a key mask and causality leave.
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

// The same squares by key group: row c = (b*H + h) * key_groups + J.
struct TransposedSquares {
  at::Tensor begin;   // [B*H*groups(S)] int32
  at::Tensor count;   // [B*H*groups(S)] int32
  at::Tensor rows;    // [places] int32: query groups, ascending
  at::Tensor places;  // [places] int32: where the square stands in Squares::cols
};

// Of squares that are listed one behind the other by key group. O(squares) on CPU; waits for a CUDA device.
TransposedSquares transposed(const Squares& squares);

// Types, sizes and devices, without a look at the numbers.
void check_square_sizes(const char* function, const Squares& squares);
// And the numbers: places inside `cols` that no two rows share, key groups in range, ascending. O(squares);
// waits for CUDA tensors. Throws c10::ValueError / c10::IndexError with the offending row.
void check_squares(const char* function, const Squares& squares);

// `groups`: graphs of query and key groups, one edge for each square. Shares its columns.
Squares squares_from_groups(const EdgeShape& tokens, const EdgeSet& groups);
// mask: [B, H, groups(L), groups(S)] bool, true = square.
Squares squares_from_mask(const EdgeShape& tokens, const at::Tensor& mask);
EdgeSet groups_of_squares(const Squares& squares);    // the inverse of squares_from_groups
at::Tensor mask_of_squares(const Squares& squares);   // the inverse of squares_from_mask
Squares united(const Squares& a, const Squares& b);   // squares of either
Squares without(const Squares& a, const Squares& b);  // squares of a that b has not

// Bits as SquarePairs takes them: [B, groups(S)] int32, from key_mask [B, S] bool, true = key takes part.
at::Tensor key_bits_of(const at::Tensor& key_mask);

// Which pairs of a square take part.
struct SquarePairs {
  at::Tensor key_bits;     // [B, groups(S)] int32, bit j of a word: key 16 J + j does. Undefined: all do
  bool is_causal = false;  // key <= query_offset + query only
  int64_t query_offset = 0;
};
at::Tensor pair_mask(const Squares& squares, const SquarePairs& pairs);       // [B, H, L, S] bool
EdgeSet edges_of_squares(const Squares& squares, const SquarePairs& pairs);   // O(pairs of all squares)
at::Tensor pairs_per_head(const Squares& squares, const SquarePairs& pairs);  // [B, H] int64

// The squares one by one, row by row: where they stand and what they join. All [squares] int64.
struct ListedSquares {
  at::Tensor rows;    // (b*H + h) * query_groups + I
  at::Tensor cols;    // key groups
  at::Tensor places;  // in Squares::cols
};
ListedSquares listed(const Squares& squares);

}  // namespace edgewise::graph
