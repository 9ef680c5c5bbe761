// Attention over edges on CPU, a range of rows at a time; the caller divides the rows among threads.
#pragma once

#include "kernels/params.h"

namespace edgewise::kernels::cpu {

template <typename T>
void edge_attention_forward(const AttentionForwardParams<T>& params, int64_t row_begin, int64_t row_end);

// The row pass of the backward: weights, logit gradients and credit per edge.
template <typename T>
void edge_attention_backward(const AttentionBackwardParams<T>& params, int64_t row_begin, int64_t row_end);

template <typename T>
void probe_credit(const ProbeCreditParams<T>& params, int64_t row_begin, int64_t row_end);

}  // namespace edgewise::kernels::cpu
