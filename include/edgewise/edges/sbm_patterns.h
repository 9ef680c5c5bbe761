// The sparsity patterns of the paper's Appendix A as explicit SBM parameters: with self-loops added, the
// three together meet the conditions under which sparse Transformers approximate any sequence function (Yun
// et al. 2020).
#pragma once

#include <ATen/core/Tensor.h>

namespace edgewise {

// p = query_membership block_matrix key_membership^T, all entries 0 or 1.
struct SbmParameters {
  at::Tensor query_membership;  // [N, C]
  at::Tensor block_matrix;      // [C, C]
  at::Tensor key_membership;    // [N, C]

  at::Tensor key_side() const;       // [N, C] = key_membership block_matrix^T
  at::Tensor probabilities() const;  // [N, N]
};

// Tokens 0 .. N-1 in `blocks` runs of equal length (the last may be shorter). The last token of a run is its
// relay.
SbmParameters block_diagonal_pattern(int64_t tokens, int64_t blocks);  // every token sees its own run
SbmParameters relay_readers_pattern(int64_t tokens, int64_t blocks);   // every token sees every relay
SbmParameters relay_writers_pattern(int64_t tokens, int64_t blocks);   // every relay sees every token

}  // namespace edgewise
