// Memberships of an SBM on CUDA: autograd around src/kernels/cuda/layers/memberships.cu.
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "graph/bool_bytes.h"
#include "kernels/cuda/layers/membership_params.h"
#include "ops/layers/row_tensors.h"
#include "ops/sample/memberships.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using kernels::Bf16;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
namespace cuda = kernels::cuda;
constexpr int64_t kClusters = cuda::kMembershipClusters;

// Rows of pairs of numbers, which the kernels read at once.
bool has_pairs(const at::Tensor& x) {
  return x.stride(3) == 1 && x.stride(0) % 2 == 0 && x.stride(1) % 2 == 0 && x.stride(2) % 2 == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 4 == 0;
}

template <typename T>
cuda::HeadTensor<T> heads_of(T* rows, const at::Tensor& x) {
  return {rows, x.stride(0), x.stride(1), x.stride(2)};
}

// What a forward pass keeps for the backward pass, in this order.
cuda::MembershipInputs inputs_of(const tensor_list& saved, double shift) {
  cuda::MembershipInputs in;
  const at::Tensor &query = saved[0], &key = saved[1];
  in.batch = query.size(0), in.heads = query.size(1), in.dim = query.size(3);
  in.tokens[0] = query.size(2), in.tokens[1] = key.size(2);
  in.nodes[0] = heads_of(const_data<Bf16>(query), query), in.nodes[1] = heads_of(const_data<Bf16>(key), key);
  in.weight1 = saved[2].const_data_ptr<float>(), in.bias1 = saved[3].const_data_ptr<float>();
  in.weight2 = saved[4].const_data_ptr<float>(), in.bias2 = saved[5].const_data_ptr<float>();
  in.clusters = saved[6].const_data_ptr<float>(), in.blocks = saved[7].const_data_ptr<float>();
  in.shift = static_cast<float>(shift);
  for (size_t side = 0; side < 2; ++side) in.masks[side] = graph::bool_bytes(saved[8 + side]);
  return in;
}

struct MembershipsOfAll : torch::autograd::Function<MembershipsOfAll> {
  static tensor_list forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                             const at::Tensor& weight1, const at::Tensor& bias1, const at::Tensor& weight2,
                             const at::Tensor& bias2, const at::Tensor& clusters,
                             const std::optional<at::Tensor>& query_mask,
                             const std::optional<at::Tensor>& key_mask, double shift) {
    const c10::cuda::CUDAGuard device(query.device());
    const at::Tensor blocks = at::empty({clusters.size(0), kClusters, kClusters}, clusters.options());
    cuda::BlockMatrixParams matrix;
    matrix.heads = clusters.size(0), matrix.dim = clusters.size(2);
    matrix.clusters = clusters.const_data_ptr<float>();
    matrix.blocks = blocks.mutable_data_ptr<float>();
    check_launch("block_matrix", cuda::launch_block_matrix(matrix, current_stream()));

    tensor_list saved = {query,
                         key,
                         weight1,
                         bias1,
                         weight2,
                         bias2,
                         clusters,
                         blocks,
                         query_mask.value_or(at::Tensor()),
                         key_mask.value_or(at::Tensor())};
    cuda::MembershipParams params;
    params.in = inputs_of(saved, shift);
    const auto rows_like = [](const at::Tensor& nodes) {
      return at::empty({nodes.size(0), nodes.size(1), nodes.size(2), kClusters}, nodes.options());
    };
    const at::Tensor membership = rows_like(query), side = rows_like(key);
    const at::Tensor parts =
        at::empty({2, query.size(0), query.size(1), cuda::membership_sum_parts(params.in), kClusters},
                  clusters.options());
    params.memberships[0] = heads_of(data<Bf16>(membership), membership);
    params.memberships[1] = heads_of(data<Bf16>(side), side);
    params.sum_parts = parts.mutable_data_ptr<float>();
    check_launch("memberships", cuda::launch_memberships(params, current_stream()));
    const at::Tensor sums = parts.sum(3);  // [2, B, H, C]
    saved.push_back(sums);
    context->save_for_backward(saved);
    context->saved_data["shift"] = shift;
    context->set_materialize_grads(false);
    return {membership, side, (sums[0] * sums[1]).sum(at::IntArrayRef{0, 2})};
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    check_first_derivative("memberships");
    const tensor_list saved = context->get_saved_variables();
    const at::Tensor &query = saved[0], &key = saved[1], &clusters = saved[6], &sums = saved[10];
    const c10::cuda::CUDAGuard device(query.device());
    cuda::MembershipGradParams params;
    params.in = inputs_of(saved, context->saved_data["shift"].toDouble());
    for (size_t side = 0; side < 2; ++side) {
      if (!grads[side].defined()) continue;
      if (!has_pairs(grads[side])) grads[side] = whole_rows(grads[side]);
      params.grads[side] = heads_of(const_data<Bf16>(grads[side]), grads[side]);
    }
    at::Tensor sum_grads;  // each side's is the other's sum
    if (grads[2].defined()) {
      sum_grads = (sums.flip(0) * grads[2].view({1, 1, -1, 1})).contiguous();
      params.sum_grads = sum_grads.const_data_ptr<float>();
    }
    const at::Tensor query_grad = at::empty(query.sizes(), query.options()),
                     key_grad = at::empty(key.sizes(), key.options());
    params.node_grads[0] = heads_of(data<Bf16>(query_grad), query_grad);
    params.node_grads[1] = heads_of(data<Bf16>(key_grad), key_grad);
    params.parts = cuda::membership_grad_parts(params.in);
    const int64_t dim = params.in.dim;
    const at::Tensor parts =
        at::empty({query.size(1), 2 * params.parts, cuda::membership_grads_of(dim)}, clusters.options());
    params.grad_parts = parts.mutable_data_ptr<float>();
    check_launch("membership_grads", cuda::launch_membership_grads(params, current_stream()));

    const at::Tensor all = parts.sum(1);  // [H, membership_grads_of(D)]
    const at::Tensor cluster_grad = at::empty_like(clusters);
    cuda::BlockMatrixGradParams matrix;
    matrix.heads = clusters.size(0), matrix.dim = clusters.size(2);
    matrix.clusters = clusters.const_data_ptr<float>();
    matrix.blocks = saved[7].const_data_ptr<float>();
    matrix.grads = all.const_data_ptr<float>(), matrix.grad_stride = all.stride(0);
    matrix.cluster_grad = cluster_grad.mutable_data_ptr<float>();
    check_launch("block_matrix_grad", cuda::launch_block_matrix_grad(matrix, current_stream()));

    const at::Tensor shared =
        all.narrow(1, kClusters * (dim + kClusters), 2 * dim * dim + 2 * dim).sum(0);  // of all heads
    const auto square = [&](int64_t n) {
      return shared.narrow(0, n * dim * dim, dim * dim).view({1, dim, dim});
    };
    const auto row = [&](int64_t n) { return shared.narrow(0, 2 * dim * dim + n * dim, dim).view({1, dim}); };
    return {query_grad, key_grad, square(0), row(0), square(1), row(1), cluster_grad, {}, {}, {}};
  }
};

}  // namespace

bool cuda_takes_memberships(const MembershipInput& input) {
  const at::Tensor &query = input.query, &key = input.key;
  if (!graph::is_hopper(query.device()) || !at::autocast::is_autocast_enabled(at::kCUDA) ||
      at::autocast::get_autocast_dtype(at::kCUDA) != at::kBFloat16)
    return false;
  const auto nodes = [&](const at::Tensor& x) {
    return x.dim() == 4 && x.device() == query.device() && x.scalar_type() == at::kBFloat16 &&
           x.numel() > 0 && cuda::takes_membership_dim(x.size(3)) && has_pairs(x);
  };
  const auto weights = [&](const at::Tensor& x) {
    return x.device() == query.device() && x.scalar_type() == at::kFloat && x.is_contiguous();
  };
  const auto fits = [&](const std::optional<at::Tensor>& mask, const at::Tensor& x) {
    return !mask || (mask->device() == x.device() && mask->scalar_type() == at::kBool && mask->dim() == 2 &&
                     mask->size(0) == x.size(0) && mask->size(1) == x.size(2));
  };
  // A grid has 65,535 blocks in its second dimension.
  return nodes(query) && nodes(key) && key.size(0) == query.size(0) && key.size(1) == query.size(1) &&
         fits(input.query_mask, query) && fits(input.key_mask, key) &&
         input.clusters.size(0) == query.size(1) && key.size(3) == query.size(3) &&
         input.clusters.size(1) == kClusters && input.clusters.size(2) == query.size(3) &&
         2 * query.size(0) * query.size(1) <= 65535 && weights(input.weight1) && weights(input.bias1) &&
         weights(input.weight2) && weights(input.bias2) && weights(input.clusters);
}

Memberships cuda_memberships(const MembershipInput& input) {
  const auto whole = [](const std::optional<at::Tensor>& mask) {
    return mask ? std::optional(mask->contiguous()) : std::nullopt;
  };
  const tensor_list result =
      MembershipsOfAll::apply(input.query, input.key, input.weight1, input.bias1, input.weight2, input.bias2,
                              input.clusters, whole(input.query_mask), whole(input.key_mask), input.shift);
  return {result[0], result[1], result[2]};
}

}  // namespace edgewise::ops
