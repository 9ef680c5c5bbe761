// EdgeSet: its layouts and the ways between them. Set operations work on the words of the tiles where a set
// has nothing else, and otherwise on the sorted numbers row * S + column, in plain ATen, so that they are the
// same on every device.
#include <edgewise/graph/edge_set.h>
#include <edgewise/graph/mask_counts.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <mutex>
#include <sstream>
#include <utility>

#include "graph/bool_bytes.h"
#include "graph/checks.h"
#include "graph/edge_layouts.h"
#include "graph/lists_cuda.h"
#include "graph/squares/squares.h"
#include "graph/tiles/tiles.h"
#include "graph/tiles/tiles_cuda.h"

namespace edgewise {

using graph::EdgeLayouts;

namespace {

at::TensorOptions int64_on(at::Device device) {
  return at::TensorOptions().dtype(at::kLong).device(device);
}

// Offsets [rows + 1] from the number of edges in each row.
at::Tensor offsets_from_degrees(const at::Tensor& degrees) {
  at::Tensor offsets = at::zeros({degrees.numel() + 1}, int64_on(degrees.device()));
  offsets.narrow(0, 1, degrees.numel()).copy_(at::cumsum(degrees.reshape(-1), 0));
  return offsets;
}

// The edges whose sorted numbers row * S + column are given.
EdgeSet from_pair_numbers(const EdgeShape& shape, const at::Tensor& numbers) {
  const at::Tensor rows = at::arange(shape.rows() + 1, int64_on(numbers.device()));
  const at::Tensor row_offsets = at::searchsorted(numbers, rows * shape.keys).to(at::kLong);
  const int64_t keys = std::max<int64_t>(shape.keys, 1);
  return EdgeSet::from_trusted_csr(shape, row_offsets, numbers.remainder(keys).to(at::kInt));
}

at::Tensor pair_numbers(const EdgeSet& edges) {
  return edges.edge_rows() * edges.shape().keys + edges.col_indices();
}

bool are_alike_squares(const EdgeSet& a, const EdgeSet& b) {
  return a.squares() && b.squares() && graph::same_pairs(a.square_pairs(), b.square_pairs());
}

// Squares of which less pairs take part than before: those without any go, unless a CUDA graph is recorded,
// where nothing can be counted.
EdgeSet of_less_pairs(const graph::Squares& squares, const graph::SquarePairs& pairs) {
  const bool counts = squares.cols.is_cpu() || !graph::cuda_is_recording(squares.cols.device());
  return EdgeSet::from_trusted_squares(counts ? graph::without_empty(squares, pairs) : squares, pairs);
}

}  // namespace

std::string to_string(const EdgeShape& shape) {
  std::ostringstream text;
  text << "[B=" << shape.batch << ", H=" << shape.heads << ", L=" << shape.queries << ", S=" << shape.keys
       << "]";
  return text.str();
}

EdgeSet::EdgeSet() : EdgeSet(none({})) {}

EdgeSet EdgeSet::from_trusted_csr(const EdgeShape& shape, at::Tensor row_offsets, at::Tensor col_indices) {
  auto layouts = std::make_shared<EdgeLayouts>();
  layouts->shape = shape;
  layouts->row_offsets = std::move(row_offsets);
  layouts->col_indices = std::move(col_indices);
  return EdgeSet(std::move(layouts));
}

EdgeSet EdgeSet::from_trusted_tiles(const EdgeShape& shape, at::Tensor tiles, at::Tensor edges_per_head) {
  auto layouts = std::make_shared<EdgeLayouts>();
  layouts->shape = shape;
  layouts->tiles = std::move(tiles);
  layouts->edges_per_head = std::move(edges_per_head);
  return EdgeSet(std::move(layouts));
}

EdgeSet EdgeSet::from_trusted_squares(const graph::Squares& squares, const graph::SquarePairs& pairs) {
  auto layouts = std::make_shared<EdgeLayouts>();
  layouts->shape = squares.shape;
  layouts->squares = squares;
  layouts->square_pairs = pairs;
  return EdgeSet(std::move(layouts));
}

EdgeSet EdgeSet::from_square_groups(const EdgeShape& tokens, const EdgeSet& groups,
                                    const graph::SquarePairs& pairs) {
  EdgeSet edges = from_trusted_squares(graph::squares_from_groups(tokens, groups), pairs);
  edges.layouts_->square_groups = groups;
  return edges;
}

EdgeSet EdgeSet::from_squares(const graph::Squares& squares, const graph::SquarePairs& pairs) {
  graph::check_squares("EdgeSet::from_squares", squares);
  graph::check_square_pairs("EdgeSet::from_squares", squares, pairs);
  graph::SquarePairs own = pairs;
  if (own.query_mask.defined()) own.query_mask = graph::zeros_and_ones(own.query_mask);
  return from_trusted_squares(squares, own);
}

EdgeSet EdgeSet::from_csr(const EdgeShape& shape, at::Tensor row_offsets, at::Tensor col_indices) {
  graph::check_shape("EdgeSet::from_csr", shape);
  graph::check_csr("EdgeSet::from_csr", shape, row_offsets, col_indices);
  return from_trusted_csr(shape, row_offsets.contiguous(), col_indices.contiguous());
}

EdgeSet EdgeSet::from_mask(const at::Tensor& mask) {
  TORCH_CHECK_VALUE(mask.dim() == 4 && mask.scalar_type() == at::kBool,
                    "EdgeSet::from_mask: expected a boolean mask [B, H, L, S]; got ", mask.scalar_type(),
                    " of shape ", mask.sizes(), ". Convert with mask.to(torch.bool)");
  const EdgeShape shape{mask.size(0), mask.size(1), mask.size(2), mask.size(3)};
  graph::check_shape("EdgeSet::from_mask", shape);
  const at::Tensor own = graph::zeros_and_ones(mask).contiguous();  // the caller may change its own
  const at::Tensor rows = own.view({shape.rows(), shape.keys});
  EdgeSet edges = from_trusted_csr(shape, offsets_from_degrees(rows.sum(1, false, at::kLong)),
                                   rows.nonzero().select(1, 1).to(at::kInt));
  edges.layouts_->mask = own;
  return edges;
}

EdgeSet EdgeSet::none(const EdgeShape& shape, at::Device device) {
  return from_trusted_csr(shape, at::zeros({shape.rows() + 1}, int64_on(device)),
                          at::empty({0}, at::TensorOptions().dtype(at::kInt).device(device)));
}

EdgeSet EdgeSet::full(const EdgeShape& shape, at::Device device) {
  graph::check_shape("EdgeSet::full", shape);
  const at::Tensor columns = at::arange(shape.keys, at::TensorOptions().dtype(at::kInt).device(device));
  return from_trusted_csr(shape, at::arange(shape.rows() + 1, int64_on(device)) * shape.keys,
                          columns.repeat({shape.rows()}));
}

const EdgeShape& EdgeSet::shape() const {
  return layouts_->shape;
}
int64_t EdgeSet::edge_count() const {
  if (squares() && !has_csr()) return edges_per_head().sum().item<int64_t>();
  return col_indices().size(0);
}
at::Device EdgeSet::device() const {
  return layouts_->device();
}
bool EdgeSet::has_csr() const {
  const std::lock_guard lock(layouts_->mutex);
  return layouts_->col_indices.defined();
}
const at::Tensor& EdgeSet::row_offsets() const {
  layouts_->make_csr();
  return layouts_->row_offsets;
}
const at::Tensor& EdgeSet::col_indices() const {
  layouts_->make_csr();
  return layouts_->col_indices;
}

const graph::Squares* EdgeSet::squares() const {
  return layouts_->squares ? &*layouts_->squares : nullptr;
}
const graph::SquarePairs& EdgeSet::square_pairs() const {
  TORCH_CHECK(squares(), "EdgeSet::square_pairs: expected a set that was born as squares");
  return layouts_->square_pairs;
}
const EdgeSet& EdgeSet::square_groups() const {
  TORCH_CHECK(squares(), "EdgeSet::square_groups: expected a set that was born as squares");
  const std::lock_guard lock(layouts_->mutex);
  if (!layouts_->square_groups) layouts_->square_groups = graph::groups_of_squares(*squares());
  return *layouts_->square_groups;
}

const at::Tensor& EdgeSet::tiles() const {
  return layouts_->plan.tiles();
}

at::Tensor EdgeSet::to_mask() const {
  const std::lock_guard lock(layouts_->mutex);
  if (layouts_->mask.defined()) return layouts_->mask;
  if (squares()) return layouts_->mask = graph::pair_mask(*squares(), square_pairs()).contiguous();
  const EdgeShape& shape = layouts_->shape;
  at::Tensor mask = at::zeros({shape.pairs()}, at::TensorOptions().dtype(at::kBool).device(device()));
  if (edge_count() > 0) mask.index_fill_(0, pair_numbers(*this), true);
  layouts_->mask = mask.view({shape.batch, shape.heads, shape.queries, shape.keys});
  return layouts_->mask;
}

at::Tensor EdgeSet::edge_rows() const {
  const EdgeShape& shape = layouts_->shape;
  return at::arange(shape.rows(), int64_on(device()))
      .repeat_interleave(degrees().reshape(-1), /*dim=*/0, /*output_size=*/edge_count());
}

EdgeSet EdgeSet::to(at::Device target) const {
  if (target == device()) return *this;
  if (squares()) {
    const auto moved = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.to(target) : tensor;
    };
    graph::SquarePairs pairs = square_pairs();
    pairs.key_bits = moved(pairs.key_bits);
    pairs.query_mask = moved(pairs.query_mask);
    return from_trusted_squares(
        {shape(), moved(squares()->begin), moved(squares()->count), moved(squares()->cols)}, pairs);
  }
  return from_trusted_csr(shape(), row_offsets().to(target), col_indices().to(target));
}

EdgeSet EdgeSet::united_with(const EdgeSet& other) const {
  graph::check_same_shape("EdgeSet::united_with", shape(), other.shape());
  if (are_alike_squares(*this, other)) {
    if (const auto both = graph::cuda_united_squares(*squares(), *other.squares()))
      return from_trusted_squares(*both, square_pairs());
    return from_square_groups(shape(), square_groups().united_with(other.square_groups()), square_pairs());
  }
  if (layouts_->is_tiles_alone() || other.layouts_->is_tiles_alone())
    return from_trusted_tiles(shape(), tiles().bitwise_or(other.tiles()));
  const at::Tensor both = at::cat({pair_numbers(*this), pair_numbers(other)});
  return from_pair_numbers(shape(), std::get<0>(at::unique_consecutive(std::get<0>(at::sort(both)))));
}

EdgeSet EdgeSet::minus(const EdgeSet& other) const {
  graph::check_same_shape("EdgeSet::minus", shape(), other.shape());
  if (are_alike_squares(*this, other)) {
    if (const auto rest = graph::cuda_squares_without(*squares(), *other.squares()))
      return from_trusted_squares(*rest, square_pairs());
    return from_square_groups(shape(), square_groups().minus(other.square_groups()), square_pairs());
  }
  if (layouts_->is_tiles_alone())  // without the counts, which the host does not know
    return from_trusted_tiles(shape(), tiles().bitwise_and(other.tiles().bitwise_not()));
  return kept(contained_in(other).logical_not());
}

at::Tensor EdgeSet::contained_in(const EdgeSet& other) const {
  graph::check_same_shape("EdgeSet::contained_in", shape(), other.shape());
  const at::Tensor mine = pair_numbers(*this), theirs = pair_numbers(other);
  if (theirs.numel() == 0) return at::zeros_like(mine, at::kBool);
  const at::Tensor place = at::searchsorted(theirs, mine).clamp_max(theirs.numel() - 1);
  return theirs.index_select(0, place) == mine;
}

EdgeSet EdgeSet::restricted_to_keys(const at::Tensor& key_mask) const {
  const EdgeShape& s = shape();
  graph::check_token_mask("EdgeSet::restricted_to_keys", "key_mask", key_mask, s.batch, s.keys);
  if (squares()) {
    graph::SquarePairs pairs = square_pairs();
    const at::Tensor bits = graph::key_bits_of(key_mask.to(device()));
    pairs.key_bits = pairs.key_bits.defined() ? pairs.key_bits.bitwise_and(bits) : bits;
    return of_less_pairs(*squares(), pairs);
  }
  const at::Tensor items = edge_rows().div(std::max<int64_t>(s.heads * s.queries, 1), "floor");
  return kept(key_mask.to(device()).reshape(-1).index_select(0, items * s.keys + col_indices()));
}

EdgeSet EdgeSet::restricted_to_queries(const at::Tensor& query_mask) const {
  const EdgeShape& s = shape();
  graph::check_token_mask("EdgeSet::restricted_to_queries", "query_mask", query_mask, s.batch, s.queries);
  if (squares()) {
    graph::SquarePairs pairs = square_pairs();
    const at::Tensor mask = graph::zeros_and_ones(query_mask.to(device()));
    pairs.query_mask = pairs.query_mask.defined() ? pairs.query_mask.logical_and(mask) : mask;
    return of_less_pairs(*squares(), pairs);
  }
  const at::Tensor rows =
      query_mask.to(device()).unsqueeze(1).expand({s.batch, s.heads, s.queries}).reshape(-1);
  return kept(rows.index_select(0, edge_rows()));
}

EdgeSet EdgeSet::causal(int64_t query_offset) const {
  if (squares()) {
    graph::SquarePairs pairs = square_pairs();
    pairs.query_offset = pairs.is_causal ? std::min(pairs.query_offset, query_offset) : query_offset;
    pairs.is_causal = true;
    return of_less_pairs(*squares(), pairs);
  }
  return kept(edge_rows().remainder(std::max<int64_t>(shape().queries, 1)) + query_offset >= col_indices());
}

EdgeSet EdgeSet::kept(const at::Tensor& keep) const {
  TORCH_CHECK_VALUE(keep.dim() == 1 && keep.size(0) == edge_count() && keep.scalar_type() == at::kBool,
                    "EdgeSet::kept: expected a boolean tensor with one entry per edge (", edge_count(),
                    "); got ", keep.scalar_type(), " of shape ", keep.sizes());
  const at::Tensor kept = graph::zeros_and_ones(keep);
  const at::Tensor running = offsets_from_degrees(kept.to(at::kLong));
  return from_trusted_csr(shape(), running.index_select(0, row_offsets()), col_indices().masked_select(kept));
}

at::Tensor EdgeSet::degrees() const {
  return layouts_->degrees();
}

at::Tensor EdgeSet::edges_per_head() const {
  return layouts_->count_per_head();
}

at::Tensor EdgeSet::density(const std::optional<at::Tensor>& key_mask,
                            const std::optional<at::Tensor>& query_mask) const {
  const int64_t pairs = valid_pairs(shape(), key_mask, query_mask);
  return edges_per_head().sum(0).to(at::kDouble) / static_cast<double>(std::max<int64_t>(pairs, 1));
}

int64_t valid_pairs(const EdgeShape& shape, const std::optional<at::Tensor>& key_mask,
                    const std::optional<at::Tensor>& query_mask) {
  if (key_mask) graph::check_token_mask("valid_pairs", "key_mask", *key_mask, shape.batch, shape.keys);
  if (query_mask)
    graph::check_token_mask("valid_pairs", "query_mask", *query_mask, shape.batch, shape.queries);
  if (!key_mask && !query_mask) return shape.batch * shape.queries * shape.keys;
  const auto counts = [&](const std::optional<at::Tensor>& mask, int64_t length) {
    return mask ? mask_counts(*mask) : at::full({shape.batch}, length, at::kLong);
  };
  return (counts(query_mask, shape.queries) * counts(key_mask, shape.keys)).sum().item<int64_t>();
}

EdgeSet::EdgeSet(std::shared_ptr<EdgeLayouts> layouts) : layouts_(std::move(layouts)) {}

}  // namespace edgewise
