// EdgeSource: decides which edges a layer computes. Patterns (full, window, given), learners (SbmEdges,
// SacEdges), and unions.
#pragma once

#include <edgewise/edges/edge_policy.h>
#include <edgewise/edges/row_buffer.h>
#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/edge_credit.h>
#include <edgewise/ops/random_stream.h>

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>

namespace edgewise {

// What is known about pairs beforehand: the edges of an input graph, or the relations of a dependency tree.
struct EdgeRelations {
  EdgeSet edges;   // [B, H = 1, L, S]
  at::Tensor ids;  // [E] int64, 1 or more; a pair without an edge has relation 0
};

struct EdgeRequest {
  at::Tensor query;  // [B, H, L, D]
  at::Tensor key;    // [B, H, S, D]
  std::optional<at::Tensor>
      key_mask;  // [B, S] bool, true = valid token. Where the queries are keys too it marks valid queries.
  bool is_causal = false;
  RandomStream random;
  // What query and key were projected from, for sources that look at tokens rather than at heads. Undefined
  // tokens: the heads side by side; undefined key_tokens: the tokens.
  at::Tensor tokens = {};      // [B, L, embed_dim]
  at::Tensor key_tokens = {};  // [B, S, embed_dim]
  // Query i stands at key query_offset + i: the keys before it are a memory of earlier tokens. Under
  // is_causal it uses keys j <= query_offset + i.
  int64_t query_offset = 0;
  std::optional<EdgeRelations> relations = {};
  // A sequence that grows: the keys before query_offset were there in earlier requests with the same buffer,
  // in which the source keeps what it worked out about them; `tokens` are the new ones. Query i then draws
  // the random numbers of row query_offset + i, as in one request for the whole sequence.
  RowBuffer* known_keys = nullptr;

  EdgeShape shape() const;
  // The mask of valid queries: their part of key_mask when they are the last keys (self-attention, with or
  // without memory), else none.
  std::optional<at::Tensor> query_mask() const;
  // The number by which query 0 draws.
  int64_t first_row() const { return known_keys ? query_offset : 0; }
};

struct EdgeChoice {
  EdgeSet edges;
  std::optional<EdgeCredit> credit;  // present when a learner took part
  at::Tensor
      density_penalty;  // [H] differentiable expected density of the learner; undefined = use the sampled one
  at::Tensor density;   // [H] measured density where the source counts it its own way; undefined = edges
                        // over valid pairs
  std::optional<EdgePolicy> policy = {};  // present when a source that acts (SacEdges) is in training
};

class EdgeSource : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual EdgeChoice choose(const EdgeRequest& request) = 0;
  // Why the edges of a query depend on tokens after it even in causal requests; empty when they do not.
  virtual std::string causal_refusal() const { return {}; }
  // Why a growing sequence (EdgeRequest::known_keys) gets other edges than the whole at once; empty when it
  // gets the same.
  virtual std::string growth_refusal() const { return {}; }
};
using EdgeSourcePtr = std::shared_ptr<EdgeSource>;

}  // namespace edgewise
