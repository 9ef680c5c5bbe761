// A block model's choice of squares by the CUDA kernels (kernels/cuda/squares/square_choice_params.h): from
// tensors to launches. Inline, so that tests run the same on kernels that are compiled for a CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "graph/bool_bytes.h"
#include "graph/squares/transposed_squares.h"
#include "kernels/cuda/squares/square_choice_params.h"
#include "ops/squares/square_choice.h"

namespace edgewise::ops {

template <typename T>
kernels::cuda::HeadTensor<const T> choice_view(const at::Tensor& x) {
  return {static_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

// Rows of memberships as the kernels read them, 16 bytes at a time.
inline at::Tensor choice_rows(const at::Tensor& x) {
  const int64_t step = 16 / x.element_size();
  const bool aligned = x.stride(3) == 1 && (x.stride(0) | x.stride(1) | x.stride(2)) % step == 0 &&
                       reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  return aligned ? x : x.contiguous();
}

template <typename Body>
void with_choice_type(at::ScalarType dtype, const Body& body) {
  if (dtype == at::kBFloat16)
    body(kernels::Bf16{});
  else
    body(float{});
}

// edge_keys and probe_keys: [B*H] int64, probe_rates [B] double, all on the device; the last two undefined
// without probes.
template <typename Check>
ChosenSquares choose_squares_by_kernels(const SquareSampling& sampling, const at::Tensor& edge_keys,
                                        const at::Tensor& probe_keys, const at::Tensor& probe_rates,
                                        kernels::cuda::Stream stream, const Check& check) {
  const at::Tensor query = choice_rows(sampling.query_membership.detach()),
                   side = choice_rows(sampling.key_side.detach());
  const SampleOptions& options = sampling.options;
  const auto bytes = [](const std::optional<at::Tensor>& mask) {
    return mask ? mask->contiguous() : at::Tensor();
  };
  const at::Tensor query_mask = bytes(options.query_mask), key_mask = bytes(options.key_mask);
  const int64_t rows = query.size(0) * query.size(1) * query.size(2), room = side.size(2);
  const at::TensorOptions int32 = query.options().dtype(at::kInt);
  const at::Tensor begin = at::arange(rows, int32) * room;
  const auto empty_lists = [&] {
    return graph::Squares{sampling.shape, begin, at::empty({rows}, int32), at::empty({rows * room}, int32)};
  };
  ChosenSquares result{empty_lists(), std::nullopt};
  with_choice_type(query.scalar_type(), [&]<typename T>(T) {
    kernels::cuda::SquareSampleParams<T> params;
    params.batch = query.size(0), params.heads = query.size(1);
    params.query_groups = query.size(2), params.key_groups = room, params.clusters = query.size(3);
    params.query_membership = choice_view<T>(query), params.key_side = choice_view<T>(side);
    params.query_mask = graph::bool_bytes(query_mask), params.key_mask = graph::bool_bytes(key_mask);
    params.is_causal = options.is_causal, params.first_row = sampling.first_row;
    params.is_poisson = options.law == EdgeLaw::kPoisson;
    params.exploration = static_cast<float>(options.exploration);
    params.edge_keys = reinterpret_cast<const uint64_t*>(edge_keys.const_data_ptr<int64_t>());
    params.count = result.squares.count.template mutable_data_ptr<int32_t>();
    params.cols = result.squares.cols.template mutable_data_ptr<int32_t>();
    if (probe_keys.defined()) {
      result.probes = empty_lists();
      params.probe_keys = reinterpret_cast<const uint64_t*>(probe_keys.const_data_ptr<int64_t>());
      params.probe_rates = probe_rates.const_data_ptr<double>();
      params.probe_count = result.probes->count.template mutable_data_ptr<int32_t>();
      params.probe_cols = result.probes->cols.template mutable_data_ptr<int32_t>();
    }
    check("sample_squares", kernels::cuda::launch_sample_squares(params, stream));
  });
  return result;
}

// Numbers of squares and, with `probes`, of probes, which are divided by `rates` [B] double.
struct WeighedSquares {
  graph::Squares squares;
  graph::TransposedSquares by_keys;
  at::Tensor values;
};
template <typename Check>
SquareMembershipGrads membership_grads_by_kernels(const WeighedSquares& present, const WeighedSquares* probes,
                                                  const at::Tensor& rates, double clip,
                                                  const at::Tensor& query_membership,
                                                  const at::Tensor& key_side, kernels::cuda::Stream stream,
                                                  const Check& check) {
  const at::Tensor query = choice_rows(query_membership.detach()), side = choice_rows(key_side.detach());
  const auto like = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
  SquareMembershipGrads result{like(query), like(side)};
  const auto int32s = [](const at::Tensor& x) { return x.const_data_ptr<int32_t>(); };
  const auto by_queries = [&](const WeighedSquares& list) {
    const graph::Squares& squares = list.squares;
    return kernels::cuda::WeightedSquares{
        {int32s(squares.begin), int32s(squares.count), int32s(squares.cols)},
        nullptr,
        list.values.const_data_ptr<float>()};
  };
  const auto by_keys = [&](const WeighedSquares& list) {
    const graph::TransposedSquares& squares = list.by_keys;
    return kernels::cuda::WeightedSquares{
        {int32s(squares.begin), int32s(squares.count), int32s(squares.rows)},
        int32s(squares.places),
        list.values.const_data_ptr<float>()};
  };
  with_choice_type(query.scalar_type(), [&]<typename T>(T) {
    kernels::cuda::SquareSumParams<T> params;
    params.batch = query.size(0), params.heads = query.size(1), params.clusters = query.size(3);
    params.clip = static_cast<float>(clip);
    const auto set = [&](auto& of, const auto& list, const at::Tensor& other, const at::Tensor& out) {
      of.groups = out.size(2);
      of.present = list(present);
      if (probes) {
        of.probes = list(*probes);
        of.probes.rates = rates.const_data_ptr<double>();
      }
      of.other = choice_view<T>(other);
      of.out = static_cast<T*>(out.mutable_data_ptr());
    };
    set(params.sides[0], by_queries, side, result.query);
    set(params.sides[1], by_keys, query, result.key_side);
    check("sum_squares", kernels::cuda::launch_sum_squares(params, stream));
  });
  return result;
}

template <typename T>
void set_mean_sides(kernels::cuda::SquareMeanParams<T>& params, const at::Tensor& query,
                    const at::Tensor& key, const at::Tensor& query_mask, const at::Tensor& key_mask) {
  params.batch = query.size(0), params.heads = query.size(1), params.dim = query.size(3);
  params.tokens[0] = query.size(2), params.tokens[1] = key.size(2);
  params.masks[0] = graph::bool_bytes(query_mask), params.masks[1] = graph::bool_bytes(key_mask);
}

// Masks: [B, N] bool, contiguous, or undefined. Numbers of a row are contiguous.
template <typename Check>
GroupMeans means_by_kernels(const at::Tensor& query, const at::Tensor& key, const at::Tensor& query_mask,
                            const at::Tensor& key_mask, kernels::cuda::Stream stream, const Check& check) {
  const auto means = [](const at::Tensor& x) {
    return at::empty({x.size(0), x.size(1), graph::groups_of(x.size(2)), x.size(3)}, x.options());
  };
  GroupMeans result{means(query), means(key)};
  with_choice_type(query.scalar_type(), [&]<typename T>(T) {
    kernels::cuda::SquareMeanParams<T> params;
    set_mean_sides(params, query, key, query_mask, key_mask);
    params.rows[0] = choice_view<T>(query), params.rows[1] = choice_view<T>(key);
    params.means[0] = static_cast<T*>(result.query.mutable_data_ptr());
    params.means[1] = static_cast<T*>(result.key.mutable_data_ptr());
    check("square_means", kernels::cuda::launch_square_means(params, stream));
  });
  return result;
}

// From the gradients of means, and of the tokens where there are any, to those of query and key, of which
// only sizes and types are looked at.
template <typename Check>
GroupMeans mean_grads_by_kernels(const GroupMeans& grads, const at::Tensor& query, const at::Tensor& key,
                                 const at::Tensor& query_mask, const at::Tensor& key_mask,
                                 kernels::cuda::Stream stream, const Check& check) {
  const at::Tensor query_grads = grads.query.contiguous(), key_grads = grads.key.contiguous();
  GroupMeans result{at::empty(query.sizes(), query.options()), at::empty(key.sizes(), key.options())};
  with_choice_type(query.scalar_type(), [&]<typename T>(T) {
    kernels::cuda::SquareMeanParams<T> params;
    set_mean_sides(params, query, key, query_mask, key_mask);
    if (grads.query_tokens.defined()) params.rows[0] = choice_view<T>(grads.query_tokens);
    if (grads.key_tokens.defined()) params.rows[1] = choice_view<T>(grads.key_tokens);
    params.mean_grads[0] = static_cast<const T*>(query_grads.const_data_ptr());
    params.mean_grads[1] = static_cast<const T*>(key_grads.const_data_ptr());
    params.row_grads[0] = static_cast<T*>(result.query.mutable_data_ptr());
    params.row_grads[1] = static_cast<T*>(result.key.mutable_data_ptr());
    check("square_mean_grads", kernels::cuda::launch_square_mean_grads(params, stream));
  });
  return result;
}

}  // namespace edgewise::ops
