#include "graph/edge_plan.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <utility>

#include "graph/edge_layouts.h"
#include "graph/huge_pages.h"
#include "graph/lists_cuda.h"
#include "graph/squares/squares.h"
#include "graph/tiles/tiles.h"
#include "graph/tiles/tiles_cuda.h"
#include "kernels/cpu/transpose.h"

namespace edgewise::graph {
namespace {

TransposedEdges transposed_on_cpu(const EdgeSet& edges) {
  const EdgeShape& shape = edges.shape();
  const auto int64 = edges.row_offsets().options();
  TransposedEdges result;
  result.column_offsets = at::empty({shape.columns() + 1}, int64);
  result.row_indices = on_huge_pages(at::empty_like(edges.col_indices()));
  result.edge_ids = on_huge_pages(at::empty({edges.edge_count()}, int64));
  kernels::cpu::TransposeParams params;
  params.edges = {shape.heads, shape.queries, shape.keys, edges.row_offsets().const_data_ptr<int64_t>(),
                  edges.col_indices().const_data_ptr<int32_t>()};
  params.column_offsets = result.column_offsets.mutable_data_ptr<int64_t>();
  params.row_indices = result.row_indices.mutable_data_ptr<int32_t>();
  params.edge_ids = result.edge_ids.mutable_data_ptr<int64_t>();
  params.column_offsets[0] = 0;
  at::parallel_for(0, shape.batch * shape.heads, 1,
                   [&](int64_t begin, int64_t end) { kernels::cpu::transpose_heads(params, begin, end); });
  return result;
}

TransposedEdges transposed_by_sorting(const EdgeSet& edges) {
  const EdgeShape& shape = edges.shape();
  const at::Tensor rows = edges.edge_rows();
  const int64_t queries = std::max<int64_t>(shape.queries, 1);
  const at::Tensor columns = rows.div(queries, "floor") * shape.keys + edges.col_indices();
  TransposedEdges result;
  at::Tensor sorted;
  std::tie(sorted, result.edge_ids) = at::sort(columns, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  result.column_offsets =
      at::searchsorted(sorted, at::arange(shape.columns() + 1, edges.row_offsets().options()));
  result.row_indices = rows.remainder(queries).to(at::kInt).index_select(0, result.edge_ids);
  return result;
}

}  // namespace

EdgePlan& EdgePlan::of(const EdgeSet& edges) {
  return edges.layouts_->plan;
}

EdgeSet edges_in_units(const EdgeShape& shape, at::Tensor tiles, EdgeUnits units) {
  EdgeSet edges = EdgeSet::from_trusted_tiles(shape, std::move(tiles));
  EdgePlan& plan = EdgePlan::of(edges);
  plan.units_ = std::move(units);
  plan.squares_alone_ = true;
  return edges;
}

const TransposedEdges& EdgePlan::transposed() {
  const std::lock_guard lock(layouts_.mutex);
  if (transposed_) return *transposed_;
  layouts_.make_csr();
  const EdgeSet edges = EdgeSet::from_trusted_csr(layouts_.shape, layouts_.row_offsets, layouts_.col_indices);
  if (edges.device().is_cpu())
    transposed_ = transposed_on_cpu(edges);
  else if (auto lists = cuda_transposed_lists(layouts_.shape, edges.row_offsets(), edges.col_indices()))
    transposed_ = std::move(*lists);
  else
    transposed_ = transposed_by_sorting(edges);
  return *transposed_;
}

const at::Tensor& EdgePlan::transposed_tiles(const SparseHeads& without) {
  const std::lock_guard lock(layouts_.mutex);
  const bool some_are_missing = missing_.edges_per_head.defined();
  if (transposed_tiles_.defined() && (!some_are_missing || missing_ == without)) return transposed_tiles_;
  transposed_tiles_ = without.edges_per_head.defined()
                          ? cuda_transposed_tiles(layouts_.shape, tiles(without), without)
                          : graph::transposed_tiles(layouts_.shape, tiles());
  missing_ = without;
  return transposed_tiles_;
}

const at::Tensor& EdgePlan::used_tiles() {
  const std::lock_guard lock(layouts_.mutex);
  TORCH_CHECK_VALUE(layouts_.device().is_cuda(), "EdgePlan::used_tiles: expected edges on CUDA; got ",
                    layouts_.device());
  if (!used_tiles_.defined()) used_tiles_ = cuda_used_tiles(layouts_.shape, tiles());
  return used_tiles_;
}

SparseHeads EdgePlan::sparse_heads(double density) {
  const std::lock_guard lock(layouts_.mutex);
  layouts_.edges_per_head = layouts_.count_per_head().contiguous();
  return {layouts_.edges_per_head,
          density * static_cast<double>(layouts_.shape.queries * layouts_.shape.keys)};
}

EdgeWindows EdgePlan::windows(double density, bool by_keys) {
  const std::lock_guard lock(layouts_.mutex);
  TORCH_CHECK_VALUE(layouts_.device().is_cuda(), "EdgePlan::windows: expected edges on CUDA; got ",
                    layouts_.device());
  const SparseHeads heads = sparse_heads(density);
  auto& kept = windows_[by_keys];
  if (kept && kept->heads.most_edges >= heads.most_edges) return {kept->entries, kept->turns, heads};
  EdgeWindows result = edge_windows(layouts_.shape, tiles(), heads, by_keys);
  if (windows_asked_for_[by_keys] >= density && result.entries.numel() * 4 <= kKeptWindowBytes) kept = result;
  windows_asked_for_[by_keys] = density;
  return result;
}

const at::Tensor& EdgePlan::unit_tiles() const {
  TORCH_CHECK(units_, "EdgePlan::unit_tiles: expected a set that was born with units");
  return layouts_.tiles;
}

const at::Tensor& EdgePlan::tiles(const SparseHeads& without) {
  const std::lock_guard lock(layouts_.mutex);
  if (!layouts_.tiles.defined()) {
    layouts_.make_csr();
    layouts_.tiles = tiles_from_csr(layouts_.shape, layouts_.row_offsets, layouts_.col_indices);
  }
  if (!squares_alone_) return layouts_.tiles;
  // What is only recorded has not happened outside of the recording.
  const bool recording = cuda_is_recording(layouts_.tiles.device());
  if (dirty_ != without || (is_recorded_ && !recording)) {
    cuda_clear_outside(layouts_.shape, *units_, without, layouts_.tiles);
    dirty_ = without;
    is_recorded_ = recording;
    squares_alone_ = recording || without.edges_per_head.defined();
  }
  return layouts_.tiles;
}

at::Device EdgeLayouts::device() const {
  if (squares) return squares->cols.device();
  return tiles.defined() ? tiles.device() : col_indices.device();
}

bool EdgeLayouts::is_tiles_alone() {
  const std::lock_guard lock(mutex);
  return !col_indices.defined() && !squares;
}

void EdgeLayouts::make_csr() {
  const std::lock_guard lock(mutex);
  if (col_indices.defined()) return;
  if (squares) {
    const EdgeSet edges = edges_of_squares(*squares, square_pairs);
    row_offsets = edges.row_offsets();
    col_indices = edges.col_indices();
  } else {
    std::tie(row_offsets, col_indices) = csr_from_tiles(shape, plan.tiles());
  }
}

at::Tensor EdgeLayouts::degrees() {
  const std::lock_guard lock(mutex);
  if (squares && !col_indices.defined()) return pairs_per_query(*squares, square_pairs);
  const at::Tensor rows = col_indices.defined() ? row_offsets.diff() : tile_degrees(shape, plan.tiles());
  return rows.view({shape.batch, shape.heads, shape.queries});
}

const at::Tensor& EdgeLayouts::count_per_head() {
  const std::lock_guard lock(mutex);
  if (!edges_per_head.defined())
    edges_per_head = squares ? pairs_per_head(*squares, square_pairs) : degrees().sum(2);
  return edges_per_head;
}

}  // namespace edgewise::graph
