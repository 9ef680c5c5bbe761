// KL distillation: the predictor's distributions against dense attention, on a few rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/edges/sac_edges.h>

#include "edges/sac/sac_walk.h"

namespace edgewise::sac {

// Mean over the sampled rows, their steps and groups of KL(dense attention || prediction): [B]. The attention
// is that of the given query and key over the candidates, the mean over heads that share their edges; after
// the first step it is renormalised over what is left. rows [B, R] int64.
at::Tensor distillation_loss(const WalkInputs& inputs, const WalkResult& walk, const EdgeRequest& request,
                             const at::Tensor& rows);

// `count` valid queries per item, drawn independently of the walk: [B, count].
at::Tensor sampled_rows(const EdgeRequest& request, int64_t count);

}  // namespace edgewise::sac
