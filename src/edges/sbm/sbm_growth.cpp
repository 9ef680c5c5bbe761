// SbmEdges of unit 16 where a sequence grows: the squares of the whole sequence, as single edges, since new
// queries begin anywhere in a group.
//
// A row is kept for every token: Q^ of the token, which speaks for its group if it is the first, and T of the
// group that it completes.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros_like.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/graph/square_lists.h>

#include "edges/sbm/sbm_pairs.h"
#include "edges/sbm/sbm_squares.h"
#include "edges/square_patterns.h"

namespace edgewise {

using graph::kSquare;

void keep_grown(RowBuffer& known, const at::Tensor& queries, const at::Tensor& key_sides) {
  const at::NoGradGuard guard;
  const int64_t before = known.size(), count = queries.size(2), clusters = queries.size(3);
  at::Tensor rows = at::cat({queries, at::zeros_like(queries)}, 3);
  // The last token of group J is 16 J + 15.
  const int64_t first = before / kSquare * kSquare + kSquare - 1 - before;
  if (key_sides.size(2) > 0)
    rows.narrow(3, clusters, clusters).slice(2, first, count, kSquare).copy_(key_sides);
  known.append(rows);
}

EdgeChoice SbmEdgesImpl::choose_grown_squares(const EdgeRequest& request) const {
  const at::NoGradGuard guard;
  const EdgeShape shape = request.shape();
  RowBuffer& known = *request.known_keys;
  const int64_t before = request.query_offset, after = before + shape.queries;
  TORCH_CHECK_VALUE(request.is_causal && !request.key_mask && known.size() == before && shape.keys == after,
                    "SbmEdges: expected a causal request without a mask for the tokens after the ",
                    known.size(), " that are known; got ", to_string(shape), " with query_offset ", before);
  const int64_t complete = after / kSquare, were_complete = before / kSquare;
  const at::Tensor new_groups =
      request.key.narrow(2, were_complete * kSquare, (complete - were_complete) * kSquare);
  keep_grown(known, membership(as_read(request.query)),
             key_side(membership(as_read(mean_of_groups(new_groups, std::nullopt)))));

  // Query group I, from the first new token's on, chooses among the groups before it.
  const int64_t last = (after - 1) / kSquare, first = std::max<int64_t>(before / kSquare, 1);
  EdgeChoice choice;
  choice.edges = EdgeSet::none(shape, request.query.device());
  if (last >= first) {
    const at::Tensor rows = known.rows();  // [B, H, after, 2 C]
    const at::Tensor queries = rows.slice(2, first * kSquare, after, kSquare).narrow(3, 0, options.clusters),
                     sides = rows.slice(2, kSquare - 1, last * kSquare, kSquare)
                                 .narrow(3, options.clusters, options.clusters);
    SampleOptions sampling = sampling_options(options, request, is_training());
    sampling.query_offset = first - 1;  // group I draws as row I - 1, like in choose_squares
    const at::Tensor drawn = sample_sbm_edges(queries, sides, sampling).to_mask();  // [B, H, groups, last]
    const at::Tensor group =
        (at::arange(before, after, drawn.options().dtype(at::kLong)).div(kSquare, "floor"));
    const at::Tensor chosen = drawn.index_select(2, (group - first).clamp_min(0))
                                  .logical_and((group >= first).unsqueeze(1))
                                  .repeat_interleave(kSquare, 3);
    choice.edges = EdgeSet::from_mask(at::constant_pad_nd(chosen, {0, after - last * kSquare}, 0));
  }
  if (options.self_loops) choice.edges = choice.edges.united_with(window_squares(request, 0));
  return choice;
}

}  // namespace edgewise
