// Sparse products: the kernels against the reference, and both of its forms against dense matrices.
#include <gtest/gtest.h>

#include "kit/random_inputs.h"
#include "ops/attention/attention_call.h"
#include "ops/attention/reference.h"
#include "ops/kernel_threads.h"

namespace edgewise {
namespace {

TEST(Kernels, RunOnAsManyThreadsAsTorchIsTold) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    EXPECT_EQ(ops::count_kernel_threads(), threads);
  }
  at::set_num_threads(before);
}

TEST(Products, KernelAndReferenceAgreeWithDenseMatrices) {
  const EdgeShape shape{2, 3, 40, 30};
  for (const double density : {0.3, 0.01}) {  // the reference takes its dense form above 1/64
    const at::Tensor mask = kit::random_mask(shape, density, 1);
    const EdgeSet edges = EdgeSet::from_mask(mask);
    const at::Tensor values = kit::randn({edges.edge_count()}, 2, at::kDouble);
    const at::Tensor keys = kit::randn({2, 3, 30, 5}, 3, at::kDouble),
                     queries = kit::randn({2, 3, 40, 5}, 4, at::kDouble);
    const at::Tensor matrix = at::zeros(mask.sizes(), at::kDouble).masked_scatter(mask, values);
    const at::Tensor rows = at::matmul(matrix, keys), columns = at::matmul(matrix.transpose(2, 3), queries);
    const at::Tensor dots = at::matmul(queries, keys.transpose(2, 3)).masked_select(mask);
    EXPECT_TRUE(at::allclose(ops::multiply_rows(edges, values, keys), rows));
    EXPECT_TRUE(at::allclose(ops::reference::multiply_rows(edges, values, keys), rows));
    EXPECT_TRUE(at::allclose(ops::multiply_columns(edges, values, queries), columns));
    EXPECT_TRUE(at::allclose(ops::reference::multiply_columns(edges, values, queries), columns));
    EXPECT_TRUE(at::allclose(ops::edge_dot(edges, queries, keys), dots));
    EXPECT_TRUE(at::allclose(ops::reference::edge_dot(edges, queries, keys), dots));
  }
}

}  // namespace
}  // namespace edgewise
