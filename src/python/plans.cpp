#include "python/plans.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <limits>

#include "graph/checks.h"
#include "graph/squares/squares.h"

namespace edgewise::python {
namespace {

constexpr size_t kKept = 4;

// Layouts that a set was born with: {row_offsets, col_indices} or {begin, count, cols}.
std::vector<at::Tensor> layout_of(const EdgeSet& edges) {
  if (const graph::Squares* squares = edges.squares()) return {squares->begin, squares->count, squares->cols};
  return {edges.row_offsets(), edges.col_indices()};
}

uint64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

EdgeSet again(const EdgeSet& edges) {
  if (const graph::Squares* squares = edges.squares())
    return EdgeSet::from_trusted_squares(*squares, edges.square_pairs());
  return EdgeSet::from_trusted_csr(edges.shape(), edges.row_offsets(), edges.col_indices());
}

EdgeSet spread_lists(const EdgeSet& edges, const EdgeShape& wanted) {
  const EdgeShape& shape = edges.shape();
  const at::Tensor degrees = edges.degrees().expand({wanted.batch, wanted.heads, wanted.queries});
  const at::Tensor offsets = at::cat({at::zeros({1}, degrees.options()), at::cumsum(degrees.reshape(-1), 0)});
  at::Tensor columns = edges.col_indices();
  if (shape.heads < wanted.heads) {
    // The edges of an item lie together; every item's are repeated.
    const at::Tensor ends = edges.edges_per_head().sum(1).cpu();
    std::vector<at::Tensor> items;
    items.reserve(static_cast<size_t>(shape.batch));
    for (int64_t item = 0, begin = 0; item < shape.batch; ++item) {
      const int64_t count = ends.const_data_ptr<int64_t>()[item];
      items.push_back(columns.narrow(0, begin, count).repeat({wanted.heads}));
      begin += count;
    }
    columns = at::cat(items);
  }
  if (shape.batch < wanted.batch) columns = columns.repeat({wanted.batch});
  return EdgeSet::from_trusted_csr(wanted, offsets, columns);
}

EdgeSet spread_squares(const EdgeSet& edges, const EdgeShape& wanted) {
  const EdgeShape& shape = edges.shape();
  const graph::Squares& squares = *edges.squares();
  const int64_t items = wanted.batch / shape.batch, heads = wanted.heads / shape.heads,
                places = squares.cols.size(0), copies = items * heads;
  TORCH_CHECK_VALUE(places * copies < std::numeric_limits<int32_t>::max(),
                    "edge_attention: expected fewer than 2^31 squares; got ", places, " for each of ", copies,
                    " items and heads");
  const auto spread = [&](const at::Tensor& rows) {  // [b*h*groups] -> [B, H, groups]
    return rows.view({shape.batch, shape.heads, -1}).expand({wanted.batch, wanted.heads, -1});
  };
  const at::TensorOptions int32 = squares.begin.options();
  // Which copy of the squares a row reads: rows share no place.
  const at::Tensor item = at::arange(wanted.batch, int32).div(shape.batch, "floor").view({-1, 1, 1}),
                   head = at::arange(wanted.heads, int32).div(shape.heads, "floor").view({1, -1, 1}),
                   copy = (item * heads + head) * places;
  graph::Squares result{wanted, (spread(squares.begin) + copy).reshape(-1).to(at::kInt),
                        spread(squares.count).reshape(-1), squares.cols.repeat({copies})};
  return EdgeSet::from_trusted_squares(result, edges.square_pairs());
}

// Tensors of inference mode cannot be saved for a backward pass; edges may serve one all the same.
EdgeSet of_no_mode(const EdgeSet& edges) {
  if (!c10::InferenceMode::is_enabled()) return edges;
  std::vector<at::Tensor> layout = layout_of(edges);
  const c10::InferenceMode off(false);
  for (at::Tensor& tensor : layout) tensor = tensor.clone();
  if (layout.size() == 2) return EdgeSet::from_trusted_csr(edges.shape(), layout[0], layout[1]);
  return EdgeSet::from_trusted_squares({edges.shape(), layout[0], layout[1], layout[2]},
                                       edges.square_pairs());
}

std::vector<at::Tensor> with_ticket(const EdgeSet& edges) {
  const EdgeSet usable = of_no_mode(edges);
  const c10::InferenceMode off(false);
  auto plan = std::make_shared<Plan>(usable);
  std::vector<at::Tensor> result = plan->tensors();
  result.insert(result.begin(), make_ticket(std::move(plan)));
  return result;
}

}  // namespace

Plan::Plan(EdgeSet edges) : edges_(std::move(edges)), tensors_(layout_of(edges_)) {
  for (const at::Tensor& tensor : tensors_) versions_.push_back(version_of(tensor));
}

bool Plan::stands_for(at::TensorList tensors, const EdgeShape& shape) const {
  if (tensors.size() != tensors_.size() || !(shape == edges_.shape())) return false;
  for (size_t n = 0; n < tensors_.size(); ++n) {
    const at::Tensor &mine = tensors_[n], &theirs = tensors[n];
    if (!theirs.defined() || theirs.scalar_type() != mine.scalar_type() || theirs.device() != mine.device() ||
        theirs.sizes() != mine.sizes() || theirs.strides() != mine.strides() ||
        theirs.const_data_ptr() != mine.const_data_ptr() || version_of(theirs) != versions_[n])
      return false;
  }
  return true;
}

EdgeSet Plan::spread(const char* function, int64_t batch, int64_t heads, bool is_causal) {
  const EdgeShape& shape = edges_.shape();
  TORCH_CHECK_VALUE((shape.batch == batch || shape.batch == 1) && (shape.heads == heads || shape.heads == 1),
                    function, ": expected edges of ", batch, " items (or 1 for all) and ", heads,
                    " heads (or 1 for all); got edges ", to_string(shape));
  const bool inference = c10::InferenceMode::is_enabled();
  const std::lock_guard lock(mutex_);
  const auto found = spread_.find({batch, heads, is_causal, inference});
  if (found != spread_.end()) return found->second;
  if (spread_.size() >= kKept) spread_.clear();  // batches of many sizes would fill the memory
  EdgeShape wanted = shape;
  wanted.batch = batch, wanted.heads = heads;
  EdgeSet result = wanted == shape    ? again(edges_)
                   : edges_.squares() ? spread_squares(edges_, wanted)
                                      : spread_lists(edges_, wanted);
  if (is_causal) result = result.causal();
  return spread_.emplace(std::tuple(batch, heads, is_causal, inference), result).first->second;
}

EdgeShape edge_shape(const char* function, at::IntArrayRef shape) {
  TORCH_CHECK_VALUE(shape.size() == 4, function, ": expected a shape of four numbers, (B, H, L, S); got ",
                    shape);
  for (const int64_t size : shape)
    TORCH_CHECK_VALUE(size >= 0, function, ": expected a shape (B, H, L, S) of at least 0; got ", shape);
  return {shape[0], shape[1], shape[2], shape[3]};
}

std::shared_ptr<Plan> plan_of(const char* function, at::TensorList tensors, at::IntArrayRef sizes) {
  const EdgeShape shape = edge_shape(function, sizes);
  TORCH_CHECK_VALUE(tensors.size() == 3 || tensors.size() == 4, function,
                    ": expected a plan of 3 tensors (single edges) or 4 (squares); got ", tensors.size(),
                    ". Take EdgeSet.plan()");
  const at::TensorList layout = tensors.slice(1);
  if (auto plan = kept_by<Plan>(tensors[0]); plan && plan->stands_for(layout, shape)) return plan;
  if (layout.size() == 2) return std::make_shared<Plan>(EdgeSet::from_csr(shape, layout[0], layout[1]));
  return std::make_shared<Plan>(
      EdgeSet::from_squares(graph::Squares{shape, layout[0], layout[1], layout[2]}, {}));
}

std::vector<at::Tensor> edge_plan(const at::Tensor& row_offsets, const at::Tensor& col_indices,
                                  at::IntArrayRef sizes) {
  const EdgeShape shape = edge_shape("edge_plan", sizes);
  TORCH_CHECK_TYPE(col_indices.scalar_type() == at::kLong || col_indices.scalar_type() == at::kInt,
                   "edge_plan: expected col_indices of int32 or int64; got ", col_indices.scalar_type());
  TORCH_CHECK_TYPE(row_offsets.scalar_type() == at::kLong || row_offsets.scalar_type() == at::kInt,
                   "edge_plan: expected row_offsets of int64 or int32; got ", row_offsets.scalar_type());
  graph::check_shape("edge_plan", shape);
  TORCH_CHECK_VALUE(col_indices.dim() == 1 && col_indices.size(0) <= shape.pairs(),
                    "edge_plan: expected at most ", shape.pairs(), " columns, one for each pair of ",
                    to_string(shape), "; got ", col_indices.sizes());
  TORCH_CHECK_VALUE(row_offsets.dim() == 1 && row_offsets.size(0) == shape.rows() + 1,
                    "edge_plan: expected row_offsets [", shape.rows() + 1, "]; got ", row_offsets.sizes());
  if (col_indices.scalar_type() == at::kLong && col_indices.numel() > 0) {
    // Before they are narrowed: a number beyond int32 would come out as another one.
    const auto [lowest, highest] = col_indices.aminmax();
    TORCH_CHECK_INDEX(lowest.item<int64_t>() >= 0 && highest.item<int64_t>() < shape.keys,
                      "edge_plan: expected columns in [0, ", shape.keys, "); got columns from ",
                      lowest.item<int64_t>(), " to ", highest.item<int64_t>());
  }
  // Copies of its own: what was checked stays as it was.
  return with_ticket(EdgeSet::from_csr(shape, row_offsets.detach().to(at::kLong, false, true).contiguous(),
                                       col_indices.detach().to(at::kInt, false, true).contiguous()));
}

std::vector<at::Tensor> edge_plan_from_mask(const at::Tensor& mask) {
  return with_ticket(EdgeSet::from_mask(mask));
}

std::vector<at::Tensor> square_plan(const at::Tensor& mask, at::IntArrayRef sizes) {
  const EdgeShape shape = edge_shape("square_plan", sizes);
  TORCH_CHECK_TYPE(mask.scalar_type() == at::kBool,
                   "EdgeSet.from_squares: expected a bool mask, true = square; got ", mask.scalar_type());
  const std::vector<int64_t> expected = {shape.batch, shape.heads, graph::groups_of(shape.queries),
                                         graph::groups_of(shape.keys)};
  TORCH_CHECK_VALUE(mask.sizes() == at::IntArrayRef(expected), "EdgeSet.from_squares: expected a mask ",
                    at::IntArrayRef(expected), ", one number per 16 queries and 16 keys of ", sizes, "; got ",
                    mask.sizes());
  return with_ticket(EdgeSet::from_trusted_squares(graph::squares_from_mask(shape, mask), {}));
}

std::vector<at::Tensor> plan_of_edges(const EdgeSet& edges) {
  // A plan has all pairs of its squares.
  const bool whole = edges.squares() && !edges.square_pairs().is_causal &&
                     !edges.square_pairs().key_bits.defined() && !edges.square_pairs().query_mask.defined();
  if (!edges.squares() || whole) return with_ticket(edges);
  return with_ticket(EdgeSet::from_trusted_csr(edges.shape(), edges.row_offsets(), edges.col_indices()));
}

std::vector<at::Tensor> plan_of_layout(at::TensorList layout, at::IntArrayRef shape) {
  std::vector<at::Tensor> tensors = {empty_ticket()};
  for (const at::Tensor& tensor : layout) tensors.push_back(tensor.clone());
  return with_ticket(plan_of("plan_of_layout", tensors, shape)->edges());
}

std::vector<at::Tensor> plan_to(at::TensorList plan, at::IntArrayRef shape, at::Device device) {
  const EdgeSet& edges = plan_of("EdgeSet.to", plan, shape)->edges();
  if (edges.device() != device) return plan_of_edges(edges.to(device));
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : plan.slice(1)) copies.push_back(tensor.clone());
  return plan_of_layout(copies, shape);
}

void save_plan(c10::string_view path, at::TensorList plan, at::IntArrayRef shape) {
  plan_of("EdgeSet.save", plan, shape)->edges().save(std::string(path));
}

std::tuple<std::vector<at::Tensor>, std::vector<int64_t>> load_plan(c10::string_view path) {
  const EdgeSet edges = EdgeSet::load(std::string(path));
  const EdgeShape shape = edges.shape();
  return {plan_of_edges(edges), {shape.batch, shape.heads, shape.queries, shape.keys}};
}

std::vector<at::Tensor> plan_as_edges(at::TensorList plan, at::IntArrayRef shape) {
  const EdgeSet& edges = plan_of("plan_as_edges", plan, shape)->edges();
  return with_ticket(
      EdgeSet::from_trusted_csr(edges.shape(), edges.row_offsets().clone(), edges.col_indices().clone()));
}

at::Tensor plan_mask(at::TensorList plan, at::IntArrayRef shape) {
  return plan_of("EdgeSet.to_dense", plan, shape)->edges().to_mask().clone();
}

std::vector<at::Tensor> plan_union(at::TensorList a, at::TensorList b, at::IntArrayRef shape) {
  return plan_of_edges(
      plan_of("EdgeSet |", a, shape)->edges().united_with(plan_of("EdgeSet |", b, shape)->edges()));
}

std::vector<at::Tensor> plan_difference(at::TensorList a, at::TensorList b, at::IntArrayRef shape) {
  return plan_of_edges(
      plan_of("EdgeSet -", a, shape)->edges().minus(plan_of("EdgeSet -", b, shape)->edges()));
}

at::Tensor plan_counts(at::TensorList plan, at::IntArrayRef shape) {
  return plan_of("EdgeSet.density", plan, shape)->edges().edges_per_head().clone();
}

}  // namespace edgewise::python
