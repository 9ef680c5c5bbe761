// EdgeSet: the edges of B x H bipartite graphs between L queries and S keys.
//
// Edges are a set: within a row the columns are sorted and unique. There are three physical layouts, CSR over
// all B*H*L rows, 64 x 64 bit tiles, and squares of 16 x 16 pairs; a set is born in one of them. CSR and
// tiles of a set that was born otherwise, the dense mask, and what kernels derive from the edges (its plan)
// are made on first use and kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace edgewise {

namespace graph {
class EdgePlan;
struct EdgeLayouts;
struct Squares;
struct SquarePairs;
}  // namespace graph

struct EdgeShape {
  int64_t batch = 0;    // B
  int64_t heads = 0;    // H
  int64_t queries = 0;  // L
  int64_t keys = 0;     // S

  int64_t rows() const { return batch * heads * queries; }  // B*H*L
  int64_t columns() const { return batch * heads * keys; }  // B*H*S
  int64_t pairs() const { return rows() * keys; }           // B*H*L*S
  bool operator==(const EdgeShape&) const = default;
};
std::string to_string(const EdgeShape& shape);  // "[B=2, H=4, L=16, S=16]"

class EdgeSet {
 public:
  EdgeSet();  // no graphs, no edges

  // From CSR. Checks everything (sizes, dtypes, monotone offsets, columns sorted, unique and in range) and
  // throws c10::ValueError / c10::IndexError with the offending place. O(E).
  static EdgeSet from_csr(const EdgeShape& shape, at::Tensor row_offsets, at::Tensor col_indices);
  // The same without the checks, for edges made inside the library.
  static EdgeSet from_trusted_csr(const EdgeShape& shape, at::Tensor row_offsets, at::Tensor col_indices);
  // From bit tiles (layout: src/kernels/bit_tiles.h), int32 [B*H, ceil(L/64), ceil(S/64), 128], made inside
  // the library; edges_per_head [B, H] int64 if it is known. Nothing is counted on the host until somebody
  // asks for CSR.
  static EdgeSet from_trusted_tiles(const EdgeShape& shape, at::Tensor tiles, at::Tensor edges_per_head = {});
  // From squares of 16 x 16 pairs and what of them takes part (<edgewise/graph/square_lists.h>). Checks as
  // from_csr does; O(squares).
  static EdgeSet from_squares(const graph::Squares& squares, const graph::SquarePairs& pairs);
  static EdgeSet from_trusted_squares(const graph::Squares& squares, const graph::SquarePairs& pairs);
  // The same, where each square is an edge of `groups`: graphs of ceil(L/16) and ceil(S/16) nodes.
  static EdgeSet from_square_groups(const EdgeShape& tokens, const EdgeSet& groups,
                                    const graph::SquarePairs& pairs);
  // From a boolean mask [B, H, L, S], true = edge.
  static EdgeSet from_mask(const at::Tensor& mask);
  static EdgeSet none(const EdgeShape& shape, at::Device device = at::kCPU);
  static EdgeSet full(const EdgeShape& shape, at::Device device = at::kCPU);

  const EdgeShape& shape() const;
  int64_t edge_count() const;  // E; makes CSR of tiles
  at::Device device() const;
  bool has_csr() const;                   // CSR is there already
  const at::Tensor& row_offsets() const;  // [B*H*L + 1] int64
  const at::Tensor& col_indices() const;  // [E] int32
  const at::Tensor& tiles() const;        // [B*H, ceil(L/64), ceil(S/64), 128] int32
  // Null unless the set was born as squares. Unions and differences of such sets with the same pairs are, and
  // so are causal() and those restricted to keys or queries.
  const graph::Squares* squares() const;
  const graph::SquarePairs& square_pairs() const;  // with squares(): what of them takes part
  const EdgeSet& square_groups() const;            // with squares(): an edge for each, row by row
  at::Tensor to_mask() const;                      // [B, H, L, S] bool
  at::Tensor edge_rows() const;                    // [E] int64: global row (b*H + h)*L + i of every edge
  EdgeSet to(at::Device device) const;

  // Set operations; shapes must agree.
  EdgeSet united_with(const EdgeSet& other) const;
  EdgeSet minus(const EdgeSet& other) const;
  // For every edge of this set, whether `other` has it too: [E] bool.
  at::Tensor contained_in(const EdgeSet& other) const;
  EdgeSet restricted_to_keys(const at::Tensor& key_mask) const;       // [B, S] bool, true = key takes part
  EdgeSet restricted_to_queries(const at::Tensor& query_mask) const;  // [B, L] bool
  // Key j may be used by query i when j <= query_offset + i (with 0 upper-left aligned, as in
  // scaled_dot_product_attention).
  EdgeSet causal(int64_t query_offset = 0) const;
  EdgeSet kept(const at::Tensor& keep) const;  // keep: [E] bool

  // Statistics.
  at::Tensor degrees() const;         // [B, H, L] int64, edges per query
  at::Tensor edges_per_head() const;  // [B, H] int64
  // Edges over valid pairs, per head over the whole batch: [H] double. Without masks every pair is valid.
  at::Tensor density(const std::optional<at::Tensor>& key_mask = std::nullopt,
                     const std::optional<at::Tensor>& query_mask = std::nullopt) const;

  // A safetensors file with row_offsets, col_indices and the shape, or with the squares. load() checks what
  // it reads.
  void save(const std::string& path) const;
  static EdgeSet load(const std::string& path);

 private:
  friend class graph::EdgePlan;
  explicit EdgeSet(std::shared_ptr<graph::EdgeLayouts> layouts);
  std::shared_ptr<graph::EdgeLayouts> layouts_;
};

// Number of (query, key) pairs per head that take part: sum over items of valid queries x valid keys.
int64_t valid_pairs(const EdgeShape& shape, const std::optional<at::Tensor>& key_mask,
                    const std::optional<at::Tensor>& query_mask);

}  // namespace edgewise
