// IndexerEdges: the best alpha keys of a query by a cheap score of their own, as in DeepSeek's sparse
// attention (docs/how-to/choose-edges.md says what differs):
//
//   I_ij = sum_h w_ih relu(q_ih . k_j) / sqrt(heads dim),  pi_i = softmax_j(I_ij / temperature)
//
// with q, k and w projections of the tokens. Training draws alpha keys without replacement from pi (the
// largest of I / temperature + Gumbel noise), evaluation takes the largest. The tokens are not taught by the
// choice, and the choice learns from its effects alone.
//
// Scores are L S numbers an item: with SquareEdges (<edgewise/edges/square_edges.h>) 256 times fewer.
#pragma once

#include <edgewise/edges/edge_source.h>

#include <iosfwd>
#include <string_view>

namespace edgewise {

// Who shares one edge set: the heads of a layer, or nobody.
enum class IndexerSharing { kPerLayer, kPerHead };
IndexerSharing parse_indexer_sharing(std::string_view name);  // "per_layer" | "per_head"
std::string_view to_string(IndexerSharing sharing);

// kCounterfactual: the probability of including a key gets the effect of switching its edge, for chosen keys
// and for probed ones. kPaired: policy gradient from two draws, target by target.
enum class IndexerEstimator { kCounterfactual, kPaired };
IndexerEstimator parse_indexer_estimator(std::string_view name);  // "counterfactual" | "paired"
std::string_view to_string(IndexerEstimator estimator);

PolicyDecoding parse_policy_decoding(std::string_view name);  // "sample" | "greedy"
std::string_view to_string(PolicyDecoding decoding);

struct IndexerEdgesOptions {
  IndexerEdgesOptions(int64_t num_heads, int64_t embed_dim);

  int64_t num_heads;        // of attention
  int64_t embed_dim;        // width of the tokens, or num_heads * head_dim
  int64_t index_heads = 4;  // that score a pair together
  int64_t index_dim = 16;   // width of each
  int64_t alpha = 4;        // keys per query
  IndexerSharing sharing = IndexerSharing::kPerLayer;
  double temperature = 1;
  PolicyDecoding test_decoding = PolicyDecoding::kGreedy;

  IndexerEstimator estimator = IndexerEstimator::kCounterfactual;
  PresentForm present_form = PresentForm::kSoftmax;  // kCounterfactual
  double probes = 4;                                 // kCounterfactual: absent keys asked about, a query
  double least_slope = 0.25;                         // kCounterfactual: SacEdgesOptions::least_slope
  double policy_weight = 1;                          // of the estimator, beside the task loss
  double entropy_weight = 0;
  EdgeSourcePtr candidates = {};  // choose among the edges of this source only; null = all
};
std::ostream& operator<<(std::ostream& stream, const IndexerEdgesOptions& options);

class IndexerEdgesImpl : public EdgeSource {
 public:
  explicit IndexerEdgesImpl(IndexerEdgesOptions options);

  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  std::string growth_refusal() const override;
  bool decode_by(std::optional<PolicyDecoding> decoding) override;

  // I / temperature of a request: [B, G, L, S].
  at::Tensor scores(const EdgeRequest& request) const;

  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  IndexerEdgesOptions options;
  // G = 1, or the number of heads when each has its own edges.
  at::Tensor query_weight;  // [G, embed_dim, index_heads * index_dim]
  at::Tensor key_weight;    // [G, embed_dim, index_dim], of all index heads
  at::Tensor head_weight;   // [G, embed_dim, index_heads]
  at::Tensor head_bias;     // [G, index_heads], 1 at the start

 private:
  struct Draw;
  Draw draw(const EdgeRequest& request) const;
  EdgePolicy make_policy(const Draw& draw) const;
  EdgeLearner make_learner(const Draw& draw, const EdgeRequest& request, const EdgeSet& edges) const;

  std::optional<PolicyDecoding> decoding_;
};
TORCH_MODULE(IndexerEdges);

}  // namespace edgewise
