// Plans: edges as Python passes them. A plan is a list of tensors,
//
//   {ticket, row_offsets, col_indices}    single edges
//   {ticket, begin, count, cols}          squares of 16 x 16 pairs (edgewise/graph/square_lists.h)
//
// beside the shape [B or 1, H or 1, L, S]; a 1 broadcasts over items or heads. The ticket stands for edges
// that have been checked, and for all that kernels have derived from them since. Tensors that were changed,
// or that come without their ticket, are checked again.
#pragma once

#include <ATen/core/Tensor.h>
#include <edgewise/graph/edge_set.h>
#include <edgewise/graph/square_lists.h>

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "python/tickets.h"

namespace edgewise::python {

class Plan : public Kept {
 public:
  explicit Plan(EdgeSet edges);

  // Whether these are the tensors of the edges, as they were.
  bool stands_for(at::TensorList tensors, const EdgeShape& shape) const;
  const EdgeSet& edges() const { return edges_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  // The edges for `batch` items of `heads` heads; causal: of them those with key <= query. Kept.
  EdgeSet spread(const char* function, int64_t batch, int64_t heads, bool is_causal);

 private:
  EdgeSet edges_;
  std::vector<at::Tensor> tensors_;
  std::vector<uint64_t> versions_;
  std::mutex mutex_;
  // What is made in inference mode cannot serve training.
  std::map<std::tuple<int64_t, int64_t, bool, bool>, EdgeSet> spread_;
};

// Throws with a sentence when the tensors are no edges of that shape.
std::shared_ptr<Plan> plan_of(const char* function, at::TensorList tensors, at::IntArrayRef shape);
EdgeShape edge_shape(const char* function, at::IntArrayRef shape);

// ---- operations ----

std::vector<at::Tensor> edge_plan(const at::Tensor& row_offsets, const at::Tensor& col_indices,
                                  at::IntArrayRef shape);
std::vector<at::Tensor> edge_plan_from_mask(const at::Tensor& mask);  // [B, H, L, S] bool
// mask: [B, H, groups(L), groups(S)] bool, true = square.
std::vector<at::Tensor> square_plan(const at::Tensor& mask, at::IntArrayRef shape);
std::vector<at::Tensor> plan_of_edges(const EdgeSet& edges);
// A plan's tensors without the ticket, as they come from a file or another process.
std::vector<at::Tensor> plan_of_layout(at::TensorList layout, at::IntArrayRef shape);
std::vector<at::Tensor> plan_to(at::TensorList plan, at::IntArrayRef shape, at::Device device);
// Files of EdgeSet::save().
void save_plan(c10::string_view path, at::TensorList plan, at::IntArrayRef shape);
std::tuple<std::vector<at::Tensor>, std::vector<int64_t>> load_plan(c10::string_view path);
// {ticket, row_offsets, col_indices} of either.
std::vector<at::Tensor> plan_as_edges(at::TensorList plan, at::IntArrayRef shape);
at::Tensor plan_mask(at::TensorList plan, at::IntArrayRef shape);  // [B, H, L, S] bool
// Of two plans of one shape: edges of either, or of the first alone.
std::vector<at::Tensor> plan_union(at::TensorList a, at::TensorList b, at::IntArrayRef shape);
std::vector<at::Tensor> plan_difference(at::TensorList a, at::TensorList b, at::IntArrayRef shape);
at::Tensor plan_counts(at::TensorList plan, at::IntArrayRef shape);  // [B, H] int64

}  // namespace edgewise::python
