// Heads of the special cases: projections without bias, queries from x, keys and values from [memory ; x].
#pragma once

#include <edgewise/edges/edge_source.h>
#include <edgewise/edges/patterns.h>

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>

namespace edgewise {

inline torch::nn::Linear plain_linear(int64_t in, int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}
inline at::Tensor split_heads(const at::Tensor& x, int64_t heads) {  // [B, N, E] -> [B, H, N, D]
  return x.unflatten(2, {heads, -1}).transpose(1, 2);
}
inline at::Tensor merge_heads(const at::Tensor& heads) {  // [B, H, N, D] -> [B, N, E]
  return heads.transpose(1, 2).flatten(2);
}
inline double head_scale(const at::Tensor& query) {
  return 1 / std::sqrt(static_cast<double>(query.size(3)));
}

// Scores by distance become scores by key: column d of by_distance [B, H, L, S] is the score at distance S -
// 1 - d; query i stands at key S - L + i. Keys after the query get what is left over. Copies only, so its
// gradient adds nothing up.
inline at::Tensor by_key(const at::Tensor& by_distance) {
  const int64_t batch = by_distance.size(0), heads = by_distance.size(1), queries = by_distance.size(2),
                keys = by_distance.size(3);
  return at::constant_pad_nd(by_distance, {1, 0})
      .view({batch, heads, keys + 1, queries})
      .narrow(2, 1, keys)
      .reshape({batch, heads, queries, keys});
}

// p - j of query i at p = keys - queries + i: [L, S] int64.
inline at::Tensor distances_back(int64_t queries, int64_t keys, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  return (at::arange(queries, options) + (keys - queries)).unsqueeze(1) -
         at::arange(keys, options).unsqueeze(0);
}

// Pairs (i, j) with j no later than the query, per head and item.
inline int64_t causal_pairs(int64_t queries, int64_t keys) {
  return queries * (keys - queries) + queries * (queries + 1) / 2;
}

// The request of self-attention over x behind a memory.
inline EdgeRequest memory_request(const char* name, const at::Tensor& x, const at::Tensor& all,
                                  const at::Tensor& query, const at::Tensor& key,
                                  const std::optional<at::Tensor>& key_mask, const RandomStream& random) {
  TORCH_CHECK_VALUE(!key_mask || (key_mask->dim() == 2 && key_mask->size(0) == all.size(0) &&
                                  key_mask->size(1) == all.size(1)),
                    name, ": expected key_mask [", all.size(0), ", ", all.size(1),
                    "] over memory and segment; got ", key_mask ? c10::str(key_mask->sizes()) : "none");
  EdgeRequest request;
  request.query = query;
  request.key = key;
  request.key_mask = key_mask;
  request.is_causal = true;
  request.random = random;
  request.tokens = x;
  request.key_tokens = all;
  request.query_offset = all.size(1) - x.size(1);
  return request;
}

}  // namespace edgewise
