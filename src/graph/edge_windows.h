// Layouts of edges on a CUDA device for heads with few of them (kernels/cuda/windows/window_params.h). Which
// heads these are is found out on the device, so that the host waits for no count.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

namespace edgewise::graph {

// The heads with at most so many edges.
struct SparseHeads {
  at::Tensor edges_per_head;  // [B, H] int64, contiguous
  double most_edges = -1;

  bool operator==(const SparseHeads& other) const {
    return edges_per_head.is_same(other.edges_per_head) && most_edges == other.most_edges;
  }
};

// Windows of 16 queries, or of 16 keys, of the sparse heads.
struct EdgeWindows {
  at::Tensor entries;  // [B*H, windows, blocks, 256] int32
  at::Tensor turns;    // [B*H, windows, blocks] uint8
  SparseHeads heads;
  at::Tensor dropped = {};  // as the entries, int16: which of an entry's bits dropout removes, in one call
};
// Up to this size they stay for the next who asks; larger ones are made again, since a model would hold those
// of all its layers at once.
inline constexpr int64_t kKeptWindowBytes = int64_t{1} << 29;
EdgeWindows edge_windows(const EdgeShape& shape, const at::Tensor& tiles, const SparseHeads& heads,
                         bool by_keys);

// Squares of 16 queries and 16 keys (kernels/probe_units.h) outside of which there is no edge. Bit n of byte
// t is square 4 t + n; rows are filled up with zeros to a multiple of four bytes.
struct EdgeUnits {
  at::Tensor by_queries;  // [B*H, 4 ceil(L/64), ..] uint8: the squares of 16 queries, by keys
  at::Tensor by_keys;     // [B*H, 4 ceil(S/64), ..]
};
// Bytes of a row of squares over so many tokens.
constexpr int64_t unit_bytes(int64_t tokens) {
  return (tokens + 255) / 256 * 4;
}

}  // namespace edgewise::graph
