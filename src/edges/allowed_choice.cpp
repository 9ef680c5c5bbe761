// What a request allows, and a source's choice without the rest: see the contract in edge_source.h.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include "edges/range_edges.h"
#include "graph/tiles/allowed_tiles.h"
#include "ops/step_inputs.h"

namespace edgewise {
namespace {

// [E] bool.
at::Tensor allowed_edges(const EdgeSet& edges, const EdgeRequest& request) {
  const EdgeShape shape = edges.shape();
  const at::Tensor rows = edges.edge_rows();
  const at::Tensor& keys = edges.col_indices();
  const int64_t item_rows = std::max<int64_t>(shape.heads * shape.queries, 1);
  const at::Tensor query = rows.remainder(std::max<int64_t>(shape.queries, 1));
  at::Tensor allowed;
  const auto also = [&](const at::Tensor& more) { allowed = allowed.defined() ? allowed & more : more; };
  const auto of_mask = [&](const at::Tensor& mask, const at::Tensor& token) {
    const at::Tensor place = rows.div(item_rows, "floor") * mask.size(1) + token;
    return mask.to(edges.device()).reshape(-1).index_select(0, place);
  };
  if (request.key_mask) also(of_mask(*request.key_mask, keys));
  if (const auto mask = request.query_mask()) also(of_mask(*mask, query));
  if (request.is_causal) also(keys <= query + request.query_offset);
  return allowed.defined() ? allowed : at::ones_like(keys, at::kBool);
}

bool forbids_nothing(const EdgeRequest& request) {
  return !request.key_mask && !request.query_mask() && !request.is_causal;
}

}  // namespace

EdgeSet restricted(EdgeSet edges, const EdgeRequest& request) {
  if (forbids_nothing(request)) return edges;
  if (edges.squares()) {
    if (request.key_mask) edges = edges.restricted_to_keys(*request.key_mask);
    if (const auto mask = request.query_mask()) edges = edges.restricted_to_queries(*mask);
    return request.is_causal ? edges.causal(request.query_offset) : edges;
  }
  // How many edges are left is known on the device alone; lists of them would have to wait for it.
  if (!edges.has_csr() || ops::StepInputs::recording())
    return graph::restricted_tiles(edges, {.key_mask = request.key_mask,
                                           .query_mask = request.query_mask(),
                                           .is_causal = request.is_causal,
                                           .query_offset = request.query_offset});
  return edges.kept(allowed_edges(edges, request));
}

EdgeChoice allowed_choice(EdgeSource& source, const EdgeRequest& request) {
  EdgeChoice choice = source.choose(request);
  TORCH_CHECK_VALUE(choice.edges.shape() == request.shape(),
                    "EdgeSource::choose: expected edges of the request's shape, ", to_string(request.shape()),
                    "; got ", to_string(choice.edges.shape()), " from ", source.name());
  if (source.respects_masks() || forbids_nothing(request)) return choice;
  // Of the edges that are left; and the learner's own numbers of them, if it has any, in CSR order.
  const auto restrict = [&](const EdgeSet& edges, at::Tensor& values, const char* name) {
    if (!values.defined() || edges.squares()) return restricted(edges, request);  // squares stay squares
    const at::Tensor keep = allowed_edges(edges, request);
    TORCH_CHECK_VALUE(values.dim() == 1 && values.size(0) == keep.size(0), "EdgeSource::choose: expected ",
                      name, " [", keep.size(0), "], one per edge; got ", values.sizes(), " from ",
                      source.name());
    values = values.masked_select(keep);
    return edges.kept(keep);
  };
  EdgeLearner none, &learner = choice.learner ? *choice.learner : none;
  choice.edges = restrict(choice.edges, learner.values, "learner.values");
  if (learner.probes)
    learner.probes = restrict(*learner.probes, learner.probe_values, "learner.probe_values");
  if (learner.fixed) learner.fixed = restricted(*learner.fixed, request);
  choice.density.reset();  // counted before the restriction
  return choice;
}

}  // namespace edgewise
