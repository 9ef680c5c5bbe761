// Attention over what a source has chosen, with all that a layer reports of it. One piece of code for modules
// and for the operations that Python calls.
#pragma once

#include <edgewise/attention/self_attention.h>
#include <edgewise/edges/edge_source.h>
#include <edgewise/ops/functional.h>

namespace edgewise {

struct PairMasks {
  std::optional<at::Tensor> key = {};    // [B, S]
  std::optional<at::Tensor> query = {};  // [B, L]
};

// Pairs per head that attention may compute: valid queries x valid keys, of which only j <= i under a causal
// mask, where queries and keys are the same tokens.
int64_t allowed_pairs(const EdgeShape& shape, const PairMasks& masks, bool is_causal);

// query, key, value: [B, H, N, D]; of squares key and value may have fewer heads. `choice` is for `request`,
// which has as many heads for both. The result's output is [B, H, N, Dv]; edges are not among it.
AttentionOutput attend_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const EdgeRequest& request, const EdgeChoice& choice,
                              const functional::EdgeAttentionOptions& options);

}  // namespace edgewise
