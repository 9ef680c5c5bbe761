#include "edges/policy_probes.h"

#include <edgewise/graph/mask_counts.h>
#include <edgewise/ops/sample.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <algorithm>

namespace edgewise {

std::vector<double> probe_rates(const EdgeRequest& request, double per_query, int64_t nearby) {
  const EdgeShape shape = request.shape();
  const at::Tensor keys =
      request.key_mask ? mask_counts(*request.key_mask) : at::full({shape.batch}, shape.keys, at::kLong);
  std::vector<double> rates;
  for (int64_t item = 0; item < shape.batch; ++item) {
    auto candidates = static_cast<double>(std::max<int64_t>(keys.const_data_ptr<int64_t>()[item], 1));
    if (request.is_causal) candidates = (candidates + 1) / 2;  // on average
    if (nearby > 0) candidates = std::min(candidates, static_cast<double>(nearby));
    rates.push_back(std::min(per_query / candidates, 1.0));
  }
  return rates;
}

EdgeSet draw_probes(const EdgeRequest& request, const EdgeSet& edges, const std::vector<double>& rates) {
  SampleOptions sampling;
  sampling.key_mask = request.key_mask;
  sampling.query_mask = request.query_mask();
  sampling.is_causal = request.is_causal;
  sampling.query_offset = request.query_offset;
  sampling.random = request.random;
  return sample_probe_edges(edges, rates, sampling);
}

at::Tensor with_least_slope(const at::Tensor& p, const at::Tensor& x, const at::Tensor& slope, double least) {
  if (least == 0) return p;
  return p + (least - slope.detach()).clamp_min(0) * (x - x.detach());
}

at::Tensor rows_in_groups(const EdgeSet& edges, int64_t groups) {
  const EdgeShape& shape = edges.shape();
  const at::Tensor rows = edges.edge_rows();
  if (groups == shape.heads) return rows;
  const int64_t queries = std::max<int64_t>(shape.queries, 1);
  return rows.div(std::max<int64_t>(shape.heads * shape.queries, 1), "floor") * queries +
         rows.remainder(queries);
}

at::Tensor places_in_groups(const EdgeSet& edges, int64_t groups) {
  return rows_in_groups(edges, groups) * edges.shape().keys + edges.col_indices();
}

}  // namespace edgewise
