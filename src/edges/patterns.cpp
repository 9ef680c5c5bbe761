// Full, window and given edges, and unions.
#include <edgewise/edges/patterns.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/zeros.h>

#include <ostream>

namespace edgewise {
namespace {

// What the request forbids goes: padding keys, padding queries, the future.
EdgeSet restricted(EdgeSet edges, const EdgeRequest& request) {
  if (request.key_mask) edges = edges.restricted_to_keys(*request.key_mask);
  if (const auto query_mask = request.query_mask()) edges = edges.restricted_to_queries(*query_mask);
  return request.is_causal ? edges.causal() : edges;
}

EdgeChoice plain_choice(EdgeSet edges) {
  EdgeChoice choice;
  choice.edges = std::move(edges);
  return choice;
}

}  // namespace

EdgeChoice FullEdges::choose(const EdgeRequest& request) {
  return plain_choice(restricted(EdgeSet::full(request.shape(), request.query.device()), request));
}

WindowEdges::WindowEdges(int64_t width) : width_(width) {
  TORCH_CHECK_VALUE(width >= 0, "WindowEdges: expected a width of 0 or more tokens on each side; got ",
                    width);
}

EdgeChoice WindowEdges::choose(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  const auto options = at::TensorOptions().dtype(at::kLong).device(request.query.device());
  const at::Tensor queries = at::arange(shape.queries, options);
  const at::Tensor first = (queries - width_).clamp(0, shape.keys);     // [L]
  const at::Tensor last = (queries + width_ + 1).clamp(0, shape.keys);  // [L], one past
  const at::Tensor degrees = (last - first).clamp_min(0).repeat({shape.batch * shape.heads});
  at::Tensor offsets = at::zeros({shape.rows() + 1}, options);
  offsets.narrow(0, 1, shape.rows()).copy_(at::cumsum(degrees, 0));
  // Within a row, columns count up from `first`.
  const at::Tensor rows = at::arange(shape.rows(), options).repeat_interleave(degrees);
  const at::Tensor position = at::arange(rows.size(0), options) - offsets.index_select(0, rows);
  const at::Tensor columns =
      first.index_select(0, rows.remainder(std::max<int64_t>(shape.queries, 1))) + position;
  return plain_choice(restricted(EdgeSet::from_trusted_csr(shape, offsets, columns.to(at::kInt)), request));
}

void WindowEdges::pretty_print(std::ostream& stream) const {
  stream << "edgewise::WindowEdges(width=" << width_ << ")";
}

GivenEdges::GivenEdges(EdgeSet edges) : edges_(std::move(edges)) {}

EdgeChoice GivenEdges::choose(const EdgeRequest& request) {
  TORCH_CHECK_VALUE(edges_.shape() == request.shape(), "GivenEdges: expected edges of shape ",
                    to_string(request.shape()), "; the given ones are ", to_string(edges_.shape()));
  return plain_choice(restricted(edges_.to(request.query.device()), request));
}

UnionEdges::UnionEdges(std::vector<EdgeSourcePtr> sources) : sources_(std::move(sources)) {
  TORCH_CHECK_VALUE(!sources_.empty(), "UnionEdges: expected at least one source; got none");
  for (size_t n = 0; n < sources_.size(); ++n) register_module("source" + std::to_string(n), sources_[n]);
}

EdgeChoice UnionEdges::choose(const EdgeRequest& request) {
  std::optional<EdgeChoice> learned;
  std::optional<EdgeSet> fixed;
  for (const EdgeSourcePtr& source : sources_) {
    EdgeChoice choice = source->choose(request);
    if (choice.credit) {
      TORCH_CHECK_VALUE(!learned, "UnionEdges: expected at most one source that learns; got two");
      learned = std::move(choice);
    } else {
      fixed = fixed ? fixed->united_with(choice.edges) : choice.edges;
    }
  }
  if (!learned) return plain_choice(*fixed);
  return fixed ? with_fixed_edges(*learned, *fixed) : *learned;
}

EdgeChoice with_fixed_edges(const EdgeChoice& learned, const EdgeSet& fixed) {
  EdgeChoice result = learned;
  result.edges = learned.edges.united_with(fixed);
  if (!result.credit) return result;
  EdgeCredit& credit = *result.credit;
  at::Tensor decided = result.edges.contained_in(fixed).logical_not();
  if (credit.decided) {
    // What the learner already disowned stays disowned.
    const EdgeSet own = learned.edges.kept(*credit.decided);
    decided = decided.logical_and(result.edges.contained_in(own));
  }
  credit.decided = decided;
  if (credit.probes) credit.probes = credit.probes->minus(fixed);
  return result;
}

}  // namespace edgewise
