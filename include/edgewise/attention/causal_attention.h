// CausalAttention: what a decoder asks of its attention. Query i uses tokens up to its own: of this sequence,
// of a memory before it, or of a cache of keys and values while a sequence grows.
#pragma once

#include <edgewise/edges/edge_policy.h>
#include <edgewise/edges/row_buffer.h>
#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/random_stream.h>

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace edgewise {

struct AttentionOutput {
  at::Tensor output;             // [B, N, E]
  at::Tensor density;            // [H] double, detached: edges over valid pairs; 1 for dense attention, and
                                 // what a method says of itself
  at::Tensor penalty;            // [H] differentiable density of the learner; undefined when nothing learns
  at::Tensor edge_count;         // edges computed, over all heads and items: int64, a number on the device;
                                 // 0 for a method
  std::optional<EdgeSet> edges;  // only when asked for; dense attention has none
  std::optional<EdgePolicy> policy = {};  // of a source that learns by reward, in training
};

// What one layer keeps of the tokens before, so that a new token costs one row.
struct LayerCache {
  RowBuffer key, value;  // [B, H, S, D]
  RowBuffer features;    // what the edge source keeps about keys
  at::Tensor positions;  // a method's own table, e.g. projected distances
};

struct CausalInput {
  at::Tensor x;            // [B, L, E]
  at::Tensor memory = {};  // [B, M, E] the tokens before x; undefined = none
  RandomStream random = {};
  bool keep_edges = false;
  // In place of a memory: x are the rows after those in the cache, which takes them in. No gradients.
  LayerCache* cache = nullptr;
  std::vector<int64_t> rows = {};  // with a cache: new_rows() of the tokens that are added
};

class CausalAttention : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  virtual AttentionOutput attend(const CausalInput& input) = 0;

  // Tokens before a segment that it can use.
  virtual int64_t memory() const { return 0; }
  // Knows where tokens stand by itself: no position embedding is needed, and a cache may forget its oldest
  // rows.
  virtual bool is_relative() const { return false; }
  // Rows beside one per token, such as the spans of a tree: x then has `tokens` rows first, then these.
  virtual int64_t extra_rows() const { return 0; }
  // The rows that tokens first .. first + count - 1 add to a cache, the tokens first.
  virtual std::vector<int64_t> new_rows(int64_t first, int64_t count) const;
  // What is added to the training loss; undefined = nothing.
  virtual at::Tensor loss() const { return {}; }
  // After every optimiser step: parameters back into their range.
  virtual void after_step() {}
  // Why it sees tokens after the query's; empty when it does not.
  virtual std::string causal_refusal() const { return {}; }
  // Why a cache would give other edges than the whole sequence at once; empty when it gives the same.
  virtual std::string cache_refusal() const { return {}; }
};
using CausalAttentionPtr = std::shared_ptr<CausalAttention>;

}  // namespace edgewise
