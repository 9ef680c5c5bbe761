#include <edgewise/edges/sbm_patterns.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

namespace edgewise {
namespace {

int64_t run_length(int64_t tokens, int64_t blocks) {
  TORCH_CHECK_VALUE(tokens >= 1 && blocks >= 1 && blocks <= tokens,
                    "SBM pattern: expected 1 <= blocks <= tokens; got ", blocks, " blocks of ", tokens,
                    " tokens");
  return (tokens + blocks - 1) / blocks;
}

// Cluster 0 holds every token, cluster 1 the relays.
at::Tensor relay_membership(int64_t tokens, int64_t blocks) {
  const int64_t length = run_length(tokens, blocks);
  at::Tensor membership = at::zeros({tokens, 2});
  membership.select(1, 0).fill_(1);
  const at::Tensor position = at::arange(tokens, at::kLong);
  const at::Tensor is_relay = (position + 1).remainder(length).eq(0).logical_or(position.eq(tokens - 1));
  membership.select(1, 1).masked_fill_(is_relay, 1);
  return membership;
}

SbmParameters relay_pattern(int64_t tokens, int64_t blocks, int64_t from, int64_t to) {
  at::Tensor block_matrix = at::zeros({2, 2});
  block_matrix.index_put_({at::tensor({from}), at::tensor({to})}, at::ones({1}));
  const at::Tensor membership = relay_membership(tokens, blocks);
  return {membership, block_matrix, membership};
}

}  // namespace

at::Tensor SbmParameters::key_side() const {
  return at::matmul(key_membership, block_matrix.t());
}
at::Tensor SbmParameters::probabilities() const {
  return at::matmul(query_membership, key_side().t());
}

SbmParameters block_diagonal_pattern(int64_t tokens, int64_t blocks) {
  const int64_t length = run_length(tokens, blocks), runs = (tokens + length - 1) / length;
  const at::Tensor membership =
      at::one_hot(at::arange(tokens, at::kLong).div(length, "floor"), runs).to(at::kFloat);
  return {membership, at::eye(runs), membership};
}
SbmParameters relay_readers_pattern(int64_t tokens, int64_t blocks) {
  return relay_pattern(tokens, blocks, 0, 1);
}
SbmParameters relay_writers_pattern(int64_t tokens, int64_t blocks) {
  return relay_pattern(tokens, blocks, 1, 0);
}

}  // namespace edgewise
