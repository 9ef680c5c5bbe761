// Memberships of an SBM and their gradients, lane by lane on a CPU, against torch's autograd in fp64.
#include <ATen/core/grad_mode.h>

#include "graph/bool_bytes.h"
#include "kernels/cuda/layers/membership_params.h"
#include "kit/random_inputs.h"
#include "simt_kit.h"

namespace edgewise {
namespace {

using namespace simt_kit;
using kernels::Bf16;

struct Case {
  int64_t dim, batch, heads, queries, keys;
  bool masked, with_grads, with_sums;
};

// Numbers that bf16 holds, so that only what the kernels round themselves differs.
at::Tensor held(at::IntArrayRef shape, int64_t seed, double scale) {
  return (kit::randn(shape, seed) * scale).to(at::kBFloat16).to(at::kFloat);
}

void check(const Case& c) {
  constexpr int64_t kClusters = kernels::cuda::kMembershipClusters;
  const int64_t dim = c.dim;
  const at::Tensor q = held({c.batch, c.heads, c.queries, dim}, 1, 1).to(at::kBFloat16),
                   k = held({c.batch, c.heads, c.keys, dim}, 2, 1).to(at::kBFloat16),
                   weight1 = held({dim, dim}, 3, 0.2), bias1 = held({dim}, 4, 0.2),
                   weight2 = held({dim, dim}, 5, 0.2), bias2 = held({dim}, 6, 0.2),
                   clusters = held({c.heads, kClusters, dim}, 7, 0.3),
                   blocks = held({c.heads, kClusters, kClusters}, 8, 0.1);
  const at::Tensor query_mask = kit::rand({c.batch, c.queries}, 9) > 0.3,
                   key_mask = kit::rand({c.batch, c.keys}, 10) > 0.3;
  const at::Tensor query_grad = held({c.batch, c.heads, c.queries, kClusters}, 11, 1).to(at::kBFloat16),
                   side_grad = held({c.batch, c.heads, c.keys, kClusters}, 12, 1).to(at::kBFloat16),
                   sum_grads = held({2, c.batch, c.heads, kClusters}, 13, 1);

  // What is expected.
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : {q, k, weight1, bias1, weight2, bias2, clusters, blocks})
    leaves.push_back(x.to(at::kDouble).requires_grad_());
  const auto membership = [&](const at::Tensor& x) {
    const at::Tensor hidden = (at::matmul(x, leaves[2].t()) + leaves[3]).relu();
    return at::matmul(at::matmul(hidden, leaves[4].t()) + leaves[5], leaves[6].transpose(1, 2)).sigmoid();
  };
  const at::Tensor expected_q = membership(leaves[0]),
                   expected_t = at::matmul(membership(leaves[1]), leaves[7].transpose(1, 2));
  const auto valid = [&](const at::Tensor& x, const at::Tensor& mask) {
    return (c.masked ? x * mask.view({c.batch, 1, -1, 1}) : x).sum(2);
  };
  const at::Tensor expected_sums = at::stack({valid(expected_q, query_mask), valid(expected_t, key_mask)});
  at::Tensor loss = (expected_q * 0).sum() + (expected_t * 0).sum();
  if (c.with_grads) loss = loss + (expected_q * query_grad).sum() + (expected_t * side_grad).sum();
  if (c.with_sums) loss = loss + (expected_sums * sum_grads).sum();
  loss.backward();

  // The kernels.
  kernels::cuda::MembershipInputs in;
  in.batch = c.batch, in.heads = c.heads, in.dim = dim, in.tokens[0] = c.queries, in.tokens[1] = c.keys;
  in.nodes[0] = view<Bf16>(q), in.nodes[1] = view<Bf16>(k);
  if (c.masked) in.masks[0] = graph::bool_bytes(query_mask), in.masks[1] = graph::bool_bytes(key_mask);
  in.weight1 = weight1.const_data_ptr<float>(), in.bias1 = bias1.const_data_ptr<float>();
  in.weight2 = weight2.const_data_ptr<float>(), in.bias2 = bias2.const_data_ptr<float>();
  in.clusters = clusters.const_data_ptr<float>(), in.blocks = blocks.const_data_ptr<float>();
  const at::Tensor found_q = at::full(query_grad.sizes(), NAN, at::kBFloat16),
                   found_t = at::full(side_grad.sizes(), NAN, at::kBFloat16),
                   sum_parts = at::full(
                       {2, c.batch, c.heads, kernels::cuda::membership_sum_parts(in), kClusters}, NAN);
  kernels::cuda::MembershipParams forward;
  forward.in = in;
  forward.memberships[0] = mutable_view<Bf16>(found_q), forward.memberships[1] = mutable_view<Bf16>(found_t);
  forward.sum_parts = sum_parts.mutable_data_ptr<float>();
  ASSERT_EQ(kernels::cuda::launch_memberships(forward, nullptr), 0);
  EXPECT_LT(error(found_q, expected_q.detach()), 4e-3);
  EXPECT_LT(error(found_t, expected_t.detach()), 4e-3);
  EXPECT_LT(error(sum_parts.sum(3), expected_sums.detach()), 2e-3);

  kernels::cuda::MembershipGradParams backward;
  backward.in = in;
  if (c.with_grads) backward.grads[0] = view<Bf16>(query_grad), backward.grads[1] = view<Bf16>(side_grad);
  if (c.with_sums) backward.sum_grads = sum_grads.const_data_ptr<float>();
  const at::Tensor q_grad = at::full_like(q, NAN), k_grad = at::full_like(k, NAN);
  backward.node_grads[0] = mutable_view<Bf16>(q_grad), backward.node_grads[1] = mutable_view<Bf16>(k_grad);
  backward.parts = kernels::cuda::membership_grad_parts(in);
  const at::Tensor grad_parts =
      at::full({c.heads, 2 * backward.parts, kernels::cuda::membership_grads_of(dim)}, NAN);
  backward.grad_parts = grad_parts.mutable_data_ptr<float>();
  ASSERT_EQ(kernels::cuda::launch_membership_grads(backward, nullptr), 0);
  const at::Tensor grads = grad_parts.sum(1), shared = grads.sum(0);
  EXPECT_LT(error(q_grad, leaves[0].grad()), 1e-2);
  EXPECT_LT(error(k_grad, leaves[1].grad()), 1e-2);
  // In the order of membership_grads_of.
  int64_t next = 0;
  const auto part = [&](const at::Tensor& of, at::IntArrayRef shape) {
    const int64_t numbers = c10::multiply_integers(shape), first = std::exchange(next, next + numbers);
    std::vector<int64_t> sizes = shape.vec();
    if (of.dim() == 2) sizes.insert(sizes.begin(), c.heads);
    return of.narrow(-1, first, numbers).reshape(sizes);
  };
  EXPECT_LT(error(part(grads, {kClusters, dim}), leaves[6].grad()), 1e-2);
  EXPECT_LT(error(part(grads, {kClusters, kClusters}), leaves[7].grad()), 1e-2);
  EXPECT_LT(error(part(shared, {dim, dim}), leaves[2].grad()), 1e-2);
  EXPECT_LT(error(part(shared, {dim, dim}), leaves[4].grad()), 1e-2);
  EXPECT_LT(error(part(shared, {dim}), leaves[3].grad()), 1e-2);
  EXPECT_LT(error(part(shared, {dim}), leaves[5].grad()), 1e-2);
  EXPECT_EQ(next, grads.size(1));
}

TEST(Memberships, AreThoseOfTheMlp) {
  for (const int64_t dim : {32, 64}) {
    SCOPED_TRACE(dim);
    check({.dim = dim,
           .batch = 1,
           .heads = 1,
           .queries = 16,
           .keys = 16,
           .masked = false,
           .with_grads = true,
           .with_sums = false});
    check({.dim = dim,
           .batch = 2,
           .heads = 3,
           .queries = 37,
           .keys = 90,
           .masked = true,
           .with_grads = true,
           .with_sums = true});
  }
}

TEST(Memberships, MixByASoftmaxOfAllPairsOfClusters) {
  for (const int64_t dim : {32, 64}) {
    SCOPED_TRACE(dim);
    const int64_t heads = 3, square = 1024, stride = 32 * dim + square + 7;
    const at::Tensor clusters = kit::randn({heads, 32, dim}, 1) * 0.4, found = at::full({heads, 32, 32}, NAN),
                     grads = kit::randn({heads, stride}, 2), cluster_grad = at::full({heads, 32, dim}, NAN);
    const at::Tensor wide = clusters.to(at::kDouble).requires_grad_();
    const at::Tensor logits = at::matmul(wide, wide.transpose(1, 2)),
                     expected = logits.flatten(1).softmax(1).view_as(logits);
    kernels::cuda::BlockMatrixParams forward;
    forward.heads = heads, forward.dim = dim, forward.clusters = clusters.const_data_ptr<float>();
    forward.blocks = found.mutable_data_ptr<float>();
    ASSERT_EQ(kernels::cuda::launch_block_matrix(forward, nullptr), 0);
    EXPECT_LT(error(found, expected.detach()), dim == 32 ? 1e-6 : 2e-6);  // logits are sums of D products

    const at::Tensor of_clusters = grads.narrow(1, 0, 32 * dim).view({heads, 32, dim}),
                     of_blocks = grads.narrow(1, 32 * dim, square).view({heads, 32, 32});
    (expected * of_blocks.to(at::kDouble)).sum().backward();
    kernels::cuda::BlockMatrixGradParams backward;
    backward.heads = heads, backward.dim = dim, backward.clusters = clusters.const_data_ptr<float>();
    backward.blocks = found.const_data_ptr<float>();
    backward.grads = grads.const_data_ptr<float>(), backward.grad_stride = stride;
    backward.cluster_grad = cluster_grad.mutable_data_ptr<float>();
    ASSERT_EQ(kernels::cuda::launch_block_matrix_grad(backward, nullptr), 0);
    EXPECT_LT(error(cluster_grad - of_clusters, wide.grad()), 1e-3);  // of fp32, after a difference
  }
}

TEST(Memberships, HaveGradientsOfTheirSumsAlone) {
  check({.dim = 64,
         .batch = 1,
         .heads = 2,
         .queries = 50,
         .keys = 20,
         .masked = true,
         .with_grads = false,
         .with_sums = true});
}

TEST(Memberships, OfManyTokensAreAddedUpOverThreadBlocks) {
  check({.dim = 32,
         .batch = 1,
         .heads = 1,
         .queries = 1100,
         .keys = 530,
         .masked = false,
         .with_grads = true,
         .with_sums = true});
}

}  // namespace
}  // namespace edgewise
