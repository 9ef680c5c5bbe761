#include "ops/attention/learners/edge_scores.h"

#include <edgewise/ops/functional.h>

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ops/attention/attention_call.h"
#include "ops/attention/learners/look_up.h"

namespace edgewise::ops {
namespace {

struct ScoredEdges : torch::CustomClassHolder {
  explicit ScoredEdges(EdgeSet edges_) : edges(std::move(edges_)) {}
  EdgeSet edges;
};

struct EdgeScores : torch::autograd::Function<EdgeScores> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& left,
                            const at::Tensor& right, const c10::intrusive_ptr<ScoredEdges>& of) {
    context->save_for_backward({left, right});
    context->saved_data["of"] = c10::IValue::make_capsule(of);
    return edge_dot(of->edges, left, right);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    functional::check_differentiated_once();
    const auto saved = context->get_saved_variables();
    const auto of = c10::static_intrusive_pointer_cast<ScoredEdges>(context->saved_data["of"].toCapsule());
    const at::Tensor grad = grads[0].contiguous();
    return {multiply_rows(of->edges, grad, saved[1]), multiply_columns(of->edges, grad, saved[0]), {}};
  }
};

}  // namespace

at::Tensor edge_scores(const EdgeSet& edges, const at::Tensor& left, const at::Tensor& right) {
  if (!left.is_cpu()) {
    const EdgeShape& shape = edges.shape();
    const at::Tensor rows = edges.edge_rows();
    const at::Tensor keys =
        rows.div(std::max<int64_t>(shape.queries, 1), "floor") * shape.keys + edges.col_indices();
    const auto of_edges = [](const at::Tensor& dense, const at::Tensor& places) {
      return looked_up(dense.reshape({-1, dense.size(3)}), places);
    };
    return (of_edges(left, rows) * of_edges(right, keys)).sum(1);
  }
  return EdgeScores::apply(left, right, c10::make_intrusive<ScoredEdges>(edges));
}

}  // namespace edgewise::ops
