// EdgeSource: decides which edges a layer computes. Patterns (full, window, given), learners (SbmEdges,
// SacEdges), and unions. A source of one's own derives from it: examples/strided_pattern.cpp is a pattern,
// examples/top_k_learner.cpp a learner.
//
// The contract:
//   - choose() returns edges of request.shape() on the device of request.query. They are a set; a row may
//     have none, and its query then attends to nothing.
//   - Masks are not its concern. Attention itself takes out pairs with padding and, in causal requests, pairs
//     with the future (allowed_choice). A source that leaves them out anyway says so with respects_masks()
//     and saves that work.
//   - Random choices come from request.random alone, so that a run can be repeated and resumed. An item's
//     edges depend neither on its batch mates nor on how far it is padded.
//   - A source that learns returns `learner` (ops/edge_learner.h): one number per edge through which the loss
//     reaches the choice, or memberships. choose() may run without gradients, or in evaluation: then it need
//     not.
//   - In a causal request which edges a query gets may depend on tokens up to its own only. Attention can
//     take out a pair, but it cannot see why the others were chosen: what looks ahead to choose says so with
//     causal_refusal().
//   - To be recorded in a CUDA graph choose() must not wait for the device: it returns bit tiles, or lists
//     whose size does not depend on the data.
#pragma once

#include <edgewise/edges/edge_policy.h>
#include <edgewise/edges/row_buffer.h>
#include <edgewise/graph/edge_set.h>
#include <edgewise/graph/sparse_matrix.h>
#include <edgewise/ops/edge_learner.h>
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
  // Cross-attention: the queries are tokens of another sequence than the keys, query i is the
  // (query_offset + i)-th of them, and cross_mask marks the valid ones, [B, L] bool; none = all.
  bool is_cross = false;
  std::optional<at::Tensor> cross_mask = {};
  // Query i stands at key query_offset + i: the keys before it are a memory of earlier tokens. Under
  // is_causal it uses keys j <= query_offset + i.
  int64_t query_offset = 0;
  std::optional<EdgeRelations> relations = {};
  const SparseMatrix* features = nullptr;  // of the nodes of an input graph, as it has them; null: none
  // A sequence that grows: the keys before query_offset were there in earlier requests with the same buffer,
  // in which the source keeps what it worked out about them; `tokens` are the new ones. Query i then draws
  // the random numbers of row query_offset + i, as in one request for the whole sequence.
  RowBuffer* known_keys = nullptr;
  // Edges that are there whatever the source chooses: in a union of squares those of its patterns. A source
  // with a number of choices spends none on them.
  std::optional<EdgeSet> present = {};

  EdgeShape shape() const;
  // The mask of valid queries: cross_mask, or their part of key_mask when they are the last keys
  // (self-attention, with or without memory), else none.
  std::optional<at::Tensor> query_mask() const;
  // The pairs that attention will keep, for sources that look at every pair: [B, 1, L, S] bool.
  at::Tensor allowed() const;
  // The number by which query 0 draws.
  int64_t first_row() const { return known_keys ? query_offset : 0; }
};

struct EdgeChoice {
  EdgeSet edges;
  std::optional<EdgeLearner> learner;  // present when a learner took part
  at::Tensor
      density_penalty;  // [H] differentiable expected density of the learner; undefined = use the sampled one
  at::Tensor density;   // [H] measured density where the source counts it its own way; undefined = edges
                        // over valid pairs
  std::optional<EdgePolicy> policy = {};  // present when the learner is also rewarded (SacEdges)
  // The request's query and key again, [B, H, N, D]. Attention that reads these sends its gradient through
  // the choice, where it is added to the choice's own in one go. Undefined: read the request's.
  at::Tensor query = {}, key = {};
};

class EdgeSource : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual EdgeChoice choose(const EdgeRequest& request) = 0;
  // Whether choose() leaves out every pair that the request forbids. Believed: say true only of what a test
  // shows.
  virtual bool respects_masks() const { return false; }
  // In evaluation, of a source that chooses by a policy: how it decides, whatever its options say; nullopt
  // leaves it to them again. Who draws also reports its entropy (EdgeChoice::policy). Says whether it has a
  // policy.
  virtual bool decode_by(std::optional<PolicyDecoding> /*decoding*/) { return false; }
  // Why the edges of a query depend on tokens after it even in causal requests; empty when they do not.
  virtual std::string causal_refusal() const { return {}; }
  // Why a growing sequence (EdgeRequest::known_keys) gets other edges than the whole at once; empty when it
  // gets the same.
  virtual std::string growth_refusal() const { return {}; }
  // Why it cannot choose keys of one sequence for queries of another (EdgeRequest::is_cross); and why it
  // chooses others where the queries come a few at a time, with known_keys. Empty when it can, and the same.
  virtual std::string cross_refusal() const { return {}; }
  virtual std::string cross_growth_refusal() const { return growth_refusal(); }
};
using EdgeSourcePtr = std::shared_ptr<EdgeSource>;

// What attention computes: the source's choice without the pairs that the request forbids. Those are pairs
// with a key outside of key_mask or a query outside of query_mask() and, if causal, with a key after its
// query. What the learner is told goes with the edges. Waits for nothing while a pass is recorded.
EdgeChoice allowed_choice(EdgeSource& source, const EdgeRequest& request);

}  // namespace edgewise
