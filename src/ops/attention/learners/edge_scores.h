// left_i . right_j of every edge, differentiable: what attention computes before its softmax.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

namespace edgewise::ops {

// left [B, H, L, W], right [B, H, S, W] of one dtype, fp32 or fp64: [E] in CSR order. O(E W) time; on the CPU
// O(E) memory.
at::Tensor edge_scores(const EdgeSet& edges, const at::Tensor& left, const at::Tensor& right);

}  // namespace edgewise::ops
