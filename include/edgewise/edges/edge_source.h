// EdgeSource: decides which edges a layer computes. Patterns (full, window, given), learners (SbmEdges), and
// unions.
#pragma once

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/edge_credit.h>
#include <edgewise/ops/random_stream.h>

#include <torch/nn/module.h>

#include <memory>
#include <optional>

namespace edgewise {

struct EdgeRequest {
  at::Tensor query;  // [B, H, L, D]
  at::Tensor key;    // [B, H, S, D]
  std::optional<at::Tensor>
      key_mask;  // [B, S] bool, true = valid token. With L == S it also marks valid queries.
  bool is_causal = false;
  RandomStream random;

  EdgeShape shape() const;
  // The mask of valid queries: key_mask when L == S (self-attention), else none.
  std::optional<at::Tensor> query_mask() const;
};

struct EdgeChoice {
  EdgeSet edges;
  std::optional<EdgeCredit> credit;  // present when a learner took part
  at::Tensor
      density_penalty;  // [H] differentiable expected density of the learner; undefined = use the sampled one
  at::Tensor density;   // [H] measured density where the source counts it its own way; undefined = edges
                        // over valid pairs
};

class EdgeSource : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual EdgeChoice choose(const EdgeRequest& request) = 0;
};
using EdgeSourcePtr = std::shared_ptr<EdgeSource>;

}  // namespace edgewise
