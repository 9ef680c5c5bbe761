// The edges and gates of Adaptive Span.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <edgewise/edges/special_case_edges.h>
#include <edgewise/ops/scored_attention.h>

#include "edges/range_edges.h"

namespace edgewise {

SpanEdges::SpanEdges(SpanEdgesOptions given) : options(given) {
  TORCH_CHECK_VALUE(options.num_heads >= 1 && options.limit >= 1 && options.ramp >= 1,
                    "SpanEdges: expected num_heads, limit and ramp of at least 1; got ", options.num_heads,
                    ", ", options.limit, " and ", options.ramp);
  span = register_parameter("span", at::zeros({options.num_heads}));
}

EdgeChoice SpanEdges::choose(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  TORCH_CHECK_VALUE(shape.heads == options.num_heads, "SpanEdges: expected ", options.num_heads,
                    " heads; got query ", request.query.sizes());
  // Keys with m > 0: x < ramp + z, of which there are ceil(ramp + z); x < limit.
  const at::Tensor count =
      (span.detach().to(at::kDouble) * static_cast<double>(options.limit) + static_cast<double>(options.ramp))
          .ceil()
          .to(at::kLong)
          .clamp_max(options.limit)
          .unsqueeze(1);  // [H, 1]
  const at::Tensor position =
      at::arange(shape.queries, count.options()).unsqueeze(0) + request.query_offset;  // [1, L]
  if (!request.is_causal)
    return plain_choice(restricted(range_edges(shape, position - count + 1, position + count), request));
  const at::Tensor last = options.include_self ? position + 1 : position;
  return plain_choice(restricted(range_edges(shape, last - count, last.expand({shape.heads, -1})), request));
}

at::Tensor SpanEdges::reach(const EdgeRequest& request, const EdgeSet& edges) const {
  const at::Tensor far = functional::edge_distances(edges, request.query_offset).abs();
  return request.is_causal && !options.include_self ? far - 1 : far;
}

at::Tensor SpanEdges::gates(const EdgeRequest& request, const EdgeSet& edges) const {
  const EdgeShape& shape = edges.shape();
  const at::Tensor heads =
      edges.edge_rows().div(std::max<int64_t>(shape.queries, 1), "floor").remainder(shape.heads);
  const at::Tensor z = (span * static_cast<double>(options.limit)).index_select(0, heads);
  const auto ramp = static_cast<double>(options.ramp);
  return ((ramp + z - reach(request, edges).to(span.scalar_type())) / ramp).clamp(0, 1);
}

at::Tensor SpanEdges::mean_span() const {
  return static_cast<double>(options.limit) * span.mean();
}

void SpanEdges::clamp_span() {
  const at::NoGradGuard guard;
  span.clamp_(0, 1);
}

}  // namespace edgewise
