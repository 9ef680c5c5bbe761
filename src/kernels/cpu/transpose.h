// CSR to CSC of one head by counting sort: keys in order, queries ascending within a key.
#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace edgewise::kernels::cpu {

struct TransposeParams {
  CsrView edges;
  int64_t* column_offsets = nullptr;  // [B*H*S + 1]; entry 0 is set by the caller
  int32_t* row_indices = nullptr;     // [E]
  int64_t* edge_ids = nullptr;        // [E]
};

// Writes the columns of heads head_begin .. head_end (b*H + h).
void transpose_heads(const TransposeParams& params, int64_t head_begin, int64_t head_end);

}  // namespace edgewise::kernels::cpu
