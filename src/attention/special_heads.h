// Heads of the special cases: projections without bias, queries from x, keys and values from [memory ; x].
#pragma once

#include <edgewise/attention/causal_attention.h>

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

// Queries of x; keys and values of [memory ; x], or behind those of a cache.
struct SpecialHeads {
  at::Tensor query, key, value;  // [B, H, L, D], [B, H, S, D]
  at::Tensor all;                // [B, M + L, E] what keys were projected from; with a cache x alone

  int64_t keys() const { return key.size(2); }
};

inline SpecialHeads project_heads(const AttentionInput& input, int64_t heads, torch::nn::Linear& q_proj,
                                  torch::nn::Linear& k_proj, torch::nn::Linear& v_proj) {
  const at::Tensor all = input.memory.defined() ? at::cat({input.memory, input.x}, 1) : input.x;
  SpecialHeads result{.query = split_heads(q_proj->forward(input.x), heads),
                      .key = split_heads(k_proj->forward(all), heads),
                      .value = split_heads(v_proj->forward(all), heads),
                      .all = all};
  return result;
}

// The request of self-attention over x behind a memory or a cache.
inline EdgeRequest special_request(const char* name, const AttentionInput& input, const SpecialHeads& heads) {
  const std::optional<at::Tensor>& mask = input.key_mask;
  TORCH_CHECK_VALUE(
      !mask || (mask->dim() == 2 && mask->size(0) == heads.all.size(0) && mask->size(1) == heads.all.size(1)),
      name, ": expected key_mask [", heads.all.size(0), ", ", heads.all.size(1),
      "] over memory and segment; got ", mask ? c10::str(mask->sizes()) : "none");
  EdgeRequest request;
  request.query = heads.query;
  request.key = heads.key;
  request.key_mask = mask;
  request.is_causal = true;
  request.random = input.random;
  request.tokens = input.x;
  request.key_tokens = heads.all;
  request.query_offset = heads.keys() - heads.query.size(2);
  request.relations = input.relations;
  return request;
}

// A source's edges. Scores of their own bring gradients to the source by rewards only.
inline EdgeChoice scored_choice(const char* name, EdgeSource& source, const EdgeRequest& request) {
  EdgeChoice choice = allowed_choice(source, request);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !choice.learner, name,
      ": expected edges that nothing learns, or that learn by reward: the scores here tell a source nothing "
      "about single edges. Use a pattern, or SacEdges with the estimator reinforce.");
  return choice;
}

// What is told beside the output of attention over a choice; `pairs` per head, over all items.
inline void describe_choice(AttentionOutput& result, const EdgeChoice& choice, double pairs,
                            bool keep_edges) {
  const at::Tensor edges = choice.edges.edges_per_head();  // [B, H]
  result.density = edges.sum(0).to(at::kDouble) / pairs;
  result.edge_count = edges.sum();
  if (keep_edges) result.edges = choice.edges;
  if (choice.policy && choice.policy->log_prob.defined()) result.policy = choice.policy;
}

// Why decoders with a source of edges have no cache: it forgets rows, and with them where keys stand.
inline std::string source_cache_refusal(const EdgeSourcePtr& source) {
  return source ? "its edges are those of a source, which looks at a whole segment and its memory" : "";
}

}  // namespace edgewise
