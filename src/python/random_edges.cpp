#include "python/random_edges.h"

#include <edgewise/edges/patterns.h>

#include "python/plain_call.h"
#include "python/plans.h"
#include "python/source_call.h"

namespace edgewise::python {

std::vector<at::Tensor> random_edges(const at::Tensor& query, const at::Tensor& key,
                                     const std::optional<at::Tensor>& key_mask, const at::Tensor& seed,
                                     int64_t alpha, int64_t unit, bool is_causal) {
  const PlainCall guard(false);
  check_heads("random_edges", query, key, key);
  const SourceCall call{query, key, key, key_mask, seed, "", false, is_causal, std::nullopt, 0};
  const EdgeRequest request =
      request_of("random_edges", call, query.detach(), with_heads(key.detach(), query.size(1)));
  const EdgeSet edges = RandomEdges(alpha, unit).choose(request).edges;
  return plan_of_edges(edges.squares() ? EdgeSet::from_trusted_squares(*edges.squares(), {}) : edges);
}

}  // namespace edgewise::python
