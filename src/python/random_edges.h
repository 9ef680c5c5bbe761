// Edges drawn uniformly, as an operation.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace edgewise::python {

// `alpha` keys for each query among those that the masks allow, or key groups for each group of 16 queries
// (unit 16), as a plan. Of squares it has all pairs: attention itself leaves out what is forbidden.
std::vector<at::Tensor> random_edges(const at::Tensor& query, const at::Tensor& key,
                                     const std::optional<at::Tensor>& key_mask, const at::Tensor& seed,
                                     int64_t alpha, int64_t unit, bool is_causal);

}  // namespace edgewise::python
