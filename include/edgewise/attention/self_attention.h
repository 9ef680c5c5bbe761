// SelfAttention: what a block of a model asks of its attention, over edges or not, in an encoder or a
// decoder. Decoders ask more: CausalAttention.
#pragma once

#include <edgewise/edges/edge_policy.h>
#include <edgewise/edges/edge_source.h>
#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/random_stream.h>

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <vector>

namespace edgewise {

struct LayerCache;

struct AttentionInput {
  at::Tensor x;                             // [B, N, E]
  std::optional<at::Tensor> key_mask = {};  // [B, N] bool, true = valid token; none = all valid
  RandomStream random = {};
  bool keep_edges = false;
  std::optional<EdgeRelations> relations = {};  // of pairs of tokens, for sources that look at them

  // Of cross-attention: what keys and values are projected from, [B, S, E]. key_mask is then of these, and
  // query_mask [B, N] of x. With a cache that holds keys already, undefined.
  bool is_cross = false;
  at::Tensor source = {};
  std::optional<at::Tensor> query_mask = {};

  // Of causal attention alone; of cross-attention the cache and the rows, which count queries.
  at::Tensor memory = {};  // [B, M, E] the tokens before x; undefined = none
  // In place of a memory: x are the rows after those in the cache, which takes them in. No gradients.
  LayerCache* cache = nullptr;
  std::vector<int64_t> rows = {};  // with a cache: CausalAttention::new_rows() of the tokens that are added
};

// What a picture of one layer is drawn from, detached.
struct AttentionView {
  std::optional<EdgeSet> edges = {};  // none: every allowed pair
  // [B, H, L, D] and [B, H, S, D], whose scaled products are the scores; undefined where scores are others.
  at::Tensor query = {}, key = {};
  // Of a block model, p_ij = query_membership_i . key_side_j (of groups of 16 tokens in squares); else
  // undefined. [B, H, L, C] and [B, H, S, C].
  at::Tensor query_membership = {}, key_side = {};
};

struct AttentionOutput {
  at::Tensor output;             // [B, N, E]
  at::Tensor density;            // [H] double, detached: edges over valid pairs; 1 for dense attention, and
                                 // what a method says of itself
  at::Tensor penalty;            // [H] differentiable density of the learner; undefined when nothing learns
  at::Tensor edge_count;         // edges computed, over all heads and items: int64, a number on the device;
                                 // 0 for a method
  std::optional<EdgeSet> edges;  // only when asked for; dense attention has none
  std::optional<EdgePolicy> policy = {};   // of a source that learns by reward, in training
  std::optional<AttentionView> view = {};  // with the edges; of dense attention too, not of a method
};

class SelfAttention : public torch::nn::Module {
 public:
  virtual AttentionOutput attend(const AttentionInput& input) = 0;
};
using SelfAttentionPtr = std::shared_ptr<SelfAttention>;

}  // namespace edgewise
