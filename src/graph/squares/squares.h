// What is made of squares (<edgewise/graph/square_lists.h>): checks, the transposed list, set operations,
// counts, and the ways to and from groups, masks and edges.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/graph/square_lists.h>

#include <cstdint>

namespace edgewise::graph {

// The same squares by key group: row c = (b*H + h) * key_groups + J.
struct TransposedSquares {
  at::Tensor begin;   // [B*H*groups(S)] int32
  at::Tensor count;   // [B*H*groups(S)] int32
  at::Tensor rows;    // [places] int32: query groups, ascending
  at::Tensor places;  // [places] int32: where the square stands in Squares::cols
};

// O(squares). On a Hopper GPU nothing waits: there `rows` and `places` are as long as squares.cols, of which
// `begin` and `count` say what is used. Waits for other CUDA devices.
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

// Whether both leave the same pairs of every square. Looks at masks, so it waits for a CUDA device that holds
// two.
bool same_pairs(const SquarePairs& a, const SquarePairs& b);
void check_square_pairs(const char* function, const Squares& squares, const SquarePairs& pairs);
// The squares that hold at least one pair.
Squares without_empty(const Squares& squares, const SquarePairs& pairs);
at::Tensor pair_mask(const Squares& squares, const SquarePairs& pairs);      // [B, H, L, S] bool
EdgeSet edges_of_squares(const Squares& squares, const SquarePairs& pairs);  // O(pairs of all squares)
at::Tensor pairs_per_square(const Squares& squares,
                            const SquarePairs& pairs);  // int64, as `listed` lists them
at::Tensor pairs_per_query(const Squares& squares, const SquarePairs& pairs);  // [B, H, L] int64
at::Tensor pairs_per_head(const Squares& squares, const SquarePairs& pairs);   // [B, H] int64

// The squares one by one, row by row: where they stand and what they join. All [squares] int64.
struct ListedSquares {
  at::Tensor rows;    // (b*H + h) * query_groups + I
  at::Tensor cols;    // key groups
  at::Tensor places;  // in Squares::cols
};
ListedSquares listed(const Squares& squares);

}  // namespace edgewise::graph
