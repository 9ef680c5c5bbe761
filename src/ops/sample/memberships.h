// Memberships of queries and keys in the clusters of an SBM, and the edges to expect, by a few kernels on
// CUDA (docs/kernels/cuda-memberships.md); elsewhere SbmEdges makes them of torch's operations. Without CUDA
// in the build, no call is taken.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace edgewise::ops {

struct MembershipInput {
  at::Tensor query, key;                           // [B, H, L, D], [B, H, S, D]
  std::optional<at::Tensor> query_mask, key_mask;  // [B, L], [B, S]: what is counted
  at::Tensor weight1, bias1, weight2, bias2;       // [1, D, D], [1, D]: the MLP that all heads share
  at::Tensor clusters;                             // [H, C, D]
  double shift = 0;                                // added to every logit of a membership
};
struct Memberships {
  at::Tensor query;     // Q^ [B, H, L, C]
  at::Tensor key_side;  // T [B, H, S, C]
  at::Tensor expected;  // [H]: edges to expect, the sum of Q^ T^T over all items and tokens that count
};
bool cuda_takes_memberships(const MembershipInput& input);
Memberships cuda_memberships(const MembershipInput& input);

}  // namespace edgewise::ops
