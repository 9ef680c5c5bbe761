// The edges of Transformer-XL.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <edgewise/edges/special_case_edges.h>

#include "edges/range_edges.h"

namespace edgewise {

SegmentEdges::SegmentEdges(SegmentEdgesOptions given) : options(given) {
  TORCH_CHECK_VALUE(options.segment >= 1 && options.memory >= 0,
                    "SegmentEdges: expected segments of at least 1 token and a memory of at least 0; got ",
                    options.segment, " and ", options.memory);
  TORCH_CHECK_VALUE(!options.same_length || options.memory >= 1,
                    "SegmentEdges: expected a memory of at least 1 with same_length; got 0");
}

EdgeChoice SegmentEdges::choose(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  const at::Tensor query =
      at::arange(shape.queries, at::TensorOptions().dtype(at::kLong).device(request.query.device()));
  const at::Tensor position = query + request.query_offset;
  // Segments are counted from the first query; where a sequence grows that is the token at 0.
  const at::Tensor segment =
      request.known_keys ? position.div(options.segment, "floor") * options.segment
                         : query.div(options.segment, "floor") * options.segment + request.query_offset;
  const at::Tensor first = options.same_length ? position - options.memory + 1 : segment - options.memory;
  return plain_choice(
      restricted(range_edges(shape, first.unsqueeze(0), (position + 1).unsqueeze(0)), request));
}

}  // namespace edgewise
