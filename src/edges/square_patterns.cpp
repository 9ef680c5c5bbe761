#include "edges/square_patterns.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "edges/bands.h"
#include "edges/range_edges.h"
#include "graph/bool_bytes.h"
#include "graph/squares/squares.h"
#include "ops/attention/reference.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

using graph::kSquare;

// The keys at which the first and the last query of each group stand: [groups(L)] int64.
struct GroupPlaces {
  at::Tensor first, last;

  explicit GroupPlaces(const EdgeRequest& request) {
    const auto options = at::TensorOptions().dtype(at::kLong).device(request.query.device());
    const at::Tensor begin = at::arange(graph::groups_of(request.query.size(2)), options) * kSquare;
    first = begin + request.query_offset;
    last = first + (kSquare - 1);  // of a whole group: what lies across does not depend on padding
  }
};

bool has_grown(const EdgeRequest& request) {
  return request.known_keys && request.query_offset > 0;
}

EdgeSet of_groups(const EdgeRequest& request, const EdgeSet& groups) {
  return restricted(EdgeSet::from_square_groups(request.shape(), groups, {}), request);
}

}  // namespace

void check_unit(const char* who, int64_t unit) {
  TORCH_CHECK_VALUE(
      unit == 1 || unit == kSquare, who,
      ": expected the unit 1 (edges one by one) or 16 (squares of 16 queries and 16 keys); got ", unit);
}

graph::SquarePairs allowed_square_pairs(const EdgeRequest& request) {
  graph::SquarePairs pairs{.is_causal = request.is_causal, .query_offset = request.query_offset};
  if (request.key_mask) pairs.key_bits = graph::key_bits_of(*request.key_mask);
  if (const auto mask = request.query_mask()) pairs.query_mask = graph::zeros_and_ones(*mask);
  return pairs;
}

EdgeShape shape_of_groups(const EdgeShape& tokens) {
  return {tokens.batch, tokens.heads, graph::groups_of(tokens.queries), graph::groups_of(tokens.keys)};
}

at::Tensor group_mask(const at::Tensor& mask) {
  const int64_t groups = graph::groups_of(mask.size(1));
  return at::constant_pad_nd(graph::zeros_and_ones(mask), {0, groups * kSquare - mask.size(1)}, 0)
      .view({mask.size(0), groups, kSquare})
      .any(2);
}
std::optional<at::Tensor> group_mask(const std::optional<at::Tensor>& mask) {
  return mask ? std::optional(group_mask(*mask)) : std::nullopt;
}

EdgeSet full_squares(const EdgeRequest& request) {
  if (has_grown(request)) return restricted(EdgeSet::full(request.shape(), request.query.device()), request);
  return of_groups(request, EdgeSet::full(shape_of_groups(request.shape()), request.query.device()));
}

EdgeSet window_squares(const EdgeRequest& request, int64_t width) {
  const int64_t ahead = request.is_causal ? 0 : width;
  const auto group_of = [](const at::Tensor& places) { return places.div(kSquare, "floor"); };
  if (has_grown(request)) {
    const at::Tensor place = at::arange(request.query.size(2),
                                        at::TensorOptions().dtype(at::kLong).device(request.query.device())) +
                             request.query_offset;
    const at::Tensor group = group_of(place) * kSquare;
    const at::Tensor first = group_of(group - width) * kSquare,
                     end = (group_of(group + (kSquare - 1) + ahead) + 1) * kSquare;
    return restricted(range_edges(request.shape(), first.unsqueeze(0), end.unsqueeze(0)), request);
  }
  const GroupPlaces places(request);
  const at::Tensor first = group_of(places.first - width), last = group_of(places.last + ahead);
  const EdgeShape groups = shape_of_groups(request.shape());
  // Whole groups, where a last query group that is not full has no keys after it.
  const bool is_band =
      request.query_offset % kSquare == 0 && groups.keys <= request.query_offset / kSquare + groups.queries;
  const auto with_band = [&](EdgeSet edges) {
    if (is_band) remember_band(edges, (width + kSquare - 1) / kSquare);
    return edges;
  };
  if (request.query.is_cuda()) {
    // Without waiting: as much room a row as a window may need.
    const int64_t room = std::min(groups.keys, (width + ahead + 2 * kSquare - 2) / kSquare + 1);
    const at::Tensor begin = first.clamp(0, groups.keys), end = (last + 1).clamp(0, groups.keys);
    const auto of_rows = [&](const at::Tensor& x) {  // [groups(L), ...] -> [B*H*groups(L) ...], one by one
      return x.to(at::kInt).unsqueeze(0).expand({groups.batch * groups.heads, x.size(0), -1}).reshape(-1);
    };
    const at::Tensor cols = begin.unsqueeze(1) + at::arange(room, begin.options());
    return with_band(EdgeSet::from_trusted_squares(
        {request.shape(), at::arange(groups.rows(), begin.options().dtype(at::kInt)) * room,
         of_rows((end - begin).clamp(0, room).unsqueeze(1)), of_rows(cols)},
        allowed_square_pairs(request)));
  }
  return with_band(of_groups(request, range_edges(groups, first.unsqueeze(0), (last + 1).unsqueeze(0))));
}

EdgeSet first_squares(const EdgeRequest& request, int64_t keys) {
  const EdgeShape tokens = request.shape();
  const auto range = [&](const EdgeShape& shape, int64_t end) {
    const at::Tensor last = at::full({1, shape.queries}, std::min(end, shape.keys),
                                     at::TensorOptions().dtype(at::kLong).device(request.query.device()));
    return range_edges(shape, at::zeros_like(last), last);
  };
  const int64_t groups = graph::groups_of(keys);
  if (has_grown(request)) return restricted(range(tokens, groups * kSquare), request);
  return of_groups(request, range(shape_of_groups(tokens), groups));
}

EdgeSet random_squares(const EdgeRequest& request, int64_t alpha) {
  TORCH_CHECK_VALUE(!has_grown(request), "RandomEdges: expected no growing sequence with unit 16; got one");
  const EdgeShape shape = shape_of_groups(request.shape());
  const auto on_device = at::TensorOptions().device(request.query.device());
  at::Tensor allowed =
      at::ones({shape.batch, shape.heads, shape.queries, shape.keys}, on_device.dtype(at::kBool));
  if (request.key_mask)
    allowed = allowed & group_mask(*request.key_mask).view({shape.batch, 1, 1, shape.keys});
  if (const auto mask = request.query_mask())
    allowed = allowed & group_mask(*mask).view({shape.batch, 1, shape.queries, 1});
  if (request.is_causal)
    allowed = allowed & (at::arange(shape.keys, on_device.dtype(at::kLong)) * kSquare <=
                         GroupPlaces(request).last.unsqueeze(1));
  const at::Tensor keys = ops::stream_keys(request.random, kernels::Purpose::kEdges, shape);
  const at::Tensor numbers = ops::reference::pair_numbers(keys, shape, request.query.device())
                                 .masked_fill(allowed.logical_not(), -1);
  const at::Tensor chosen = std::get<1>(numbers.topk(std::min(alpha, shape.keys), -1));
  return of_groups(request, EdgeSet::from_mask(at::zeros_like(allowed).scatter(-1, chosen, true) & allowed));
}

}  // namespace edgewise
