// Parameters of the CUDA kernels for the memberships of an SBM, in bf16, head dim 32 or 64 and 32 clusters:
//   Q^ = sigmoid(f(q) M^T + b),  T = sigmoid(f(k) M^T + b) S^T,  f(x) = relu(x W1^T + b1) W2^T + b2,
// with the clusters M and the block matrix S of each head, and the sums of Q^ and of T over valid tokens, of
// which the expected number of edges is made. Torch-free and CUDA-free.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {

inline constexpr int kMembershipClusters = 32;      // C
constexpr bool takes_membership_dim(int64_t dim) {  // D
  return dim == 32 || dim == 64;
}

// S = softmax(M M^T) of each head, over all of its numbers.
struct BlockMatrixParams {
  int64_t heads = 0, dim = 0;       // dim: D
  const float* clusters = nullptr;  // M [H, C, D]
  float* blocks = nullptr;          // S [H, C, C]
};
int launch_block_matrix(const BlockMatrixParams& params, Stream stream);

// The gradient of M: what it has otherwise, and what comes from that of S.
struct BlockMatrixGradParams {
  int64_t heads = 0, dim = 0;
  const float *clusters = nullptr, *blocks = nullptr;
  const float* grads = nullptr;   // of a head: [C, D] of M, then [C, C] of S
  int64_t grad_stride = 0;        // from head to head
  float* cluster_grad = nullptr;  // [H, C, D]
};
int launch_block_matrix_grad(const BlockMatrixGradParams& params, Stream stream);

struct MembershipInputs {
  int64_t batch = 0, heads = 0, dim = 0;
  int64_t tokens[2] = {};                            // queries, keys
  HeadTensor<const Bf16> nodes[2];                   // [B, H, L or S, D], pairs of numbers aligned
  const uint8_t* masks[2] = {};                      // [B, L or S]: what counts in sums (0 = not); null = all
  const float *weight1 = nullptr, *bias1 = nullptr;  // [D, D], [D]
  const float *weight2 = nullptr, *bias2 = nullptr;  // [D, D], [D]
  const float *clusters = nullptr, *blocks = nullptr;  // [H, C, D], [H, C, C]
  float shift = 0;                                     // b
};

struct MembershipParams {
  MembershipInputs in;
  HeadTensor<Bf16> memberships[2];  // Q^ and T, [B, H, L or S, C]
  float* sum_parts = nullptr;       // [2, B*H, membership_sum_parts, C]: to be added up
};
int64_t membership_sum_parts(const MembershipInputs& in);
int launch_memberships(const MembershipParams& params, Stream stream);

// What a thread block adds to the gradients of a head: those of clusters, blocks, weight1 and weight2, then
// of bias1 and bias2.
constexpr int64_t membership_grads_of(int64_t dim) {
  return kMembershipClusters * (dim + kMembershipClusters) + 2 * dim * dim + 2 * dim;
}
struct MembershipGradParams {
  MembershipInputs in;
  HeadTensor<const Bf16> grads[2];   // of Q^ and T; null = 0
  const float* sum_grads = nullptr;  // [2, B, H, C]; null = 0
  HeadTensor<Bf16> node_grads[2];
  int64_t parts = 1;            // of each side, from membership_grad_parts
  float* grad_parts = nullptr;  // [H, 2 parts, membership_grads_of(D)]: to be added up
};
int64_t membership_grad_parts(const MembershipInputs& in);
int launch_membership_grads(const MembershipGradParams& params, Stream stream);

}  // namespace edgewise::kernels::cuda
