// Rows and columns of the backward over a head in one go. Compiled once per level (simd.h).
#pragma once

#include "kernels/params.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

template <typename T>
bool joins_passes(const AttentionBackwardParams<T>& params, int64_t head_index);
// Heads for which joins_passes.
template <typename T>
void backward_heads(const HeadBackwardParams<T>& params, int64_t head_begin, int64_t head_end);

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
