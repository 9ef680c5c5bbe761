// SacEdges: an LSTM walks over the tokens and emits edges (Sparse Adaptive Connection, arXiv 2003.09833).
//
//   h_t, c_t = LSTM(w of the node chosen last, h_{t-1}, c_{t-1});  p(node j) = softmax_j score(h_t, w_j)
//
// over the candidates that are left. Walk `pairs`: source, destination, source, ... as published. Walk
// `rooted`: every query is a source and makes alpha predictions of its own, all queries side by side. No code
// was ever released; what the paper leaves open is an option here (docs/how-to/choose-edges.md).
#pragma once

#include <edgewise/edges/edge_source.h>

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <iosfwd>
#include <string_view>

namespace edgewise {

enum class SacWalk { kRooted, kPairs };
SacWalk parse_sac_walk(std::string_view name);  // "rooted" | "pairs"
std::string_view to_string(SacWalk walk);

// kDot: h . w_j, tied to the node representations. kMlp: v . tanh(A h + C w_j + b).
enum class SacScorer { kDot, kMlp };
SacScorer parse_sac_scorer(std::string_view name);  // "dot" | "mlp"
std::string_view to_string(SacScorer scorer);

// Who shares one edge set: all layers and heads, the heads of a layer, or nobody.
enum class SacSharing { kAllLayers, kPerLayer, kPerHead };
SacSharing parse_sac_sharing(std::string_view name);  // "all_layers" | "per_layer" | "per_head"
std::string_view to_string(SacSharing sharing);

// What the distance from the source adds to a destination's score: a number b[bucket], or h . v[bucket].
enum class DistanceEncoding { kNone, kBias, kVector };
DistanceEncoding parse_distance_encoding(std::string_view name);  // "none" | "bias" | "vector"
std::string_view to_string(DistanceEncoding encoding);

// May a token choose itself? kAlways: it has itself whatever it chooses, outside of the budget.
enum class SelfEdges { kAllowed, kNever, kAlways };
SelfEdges parse_self_edges(std::string_view name);  // "allowed" | "never" | "always"
std::string_view to_string(SelfEdges edges);

enum class WalkDecoding { kSample, kGreedy, kBeam };
WalkDecoding parse_walk_decoding(std::string_view name);  // "sample" | "greedy" | "beam"
std::string_view to_string(WalkDecoding decoding);

// kCounterfactual: the probability of including an edge gets the effect of switching it, for chosen keys and
// for probed ones; rooted walks only. kPaired: policy gradient from two draws, target by target. kReinforce:
// as published, one reward per item. kDistillation: KL from dense attention on sampled rows.
enum class SacEstimator { kCounterfactual, kPaired, kReinforce, kDistillation };
SacEstimator parse_sac_estimator(
    std::string_view name);  // "counterfactual" | "paired" | "reinforce" | "distillation"
std::string_view to_string(SacEstimator estimator);

enum class RewardBaseline { kNone, kRunningMean, kLearned };
RewardBaseline parse_reward_baseline(std::string_view name);  // "none" | "running_mean" | "learned"
std::string_view to_string(RewardBaseline baseline);

struct SacEdgesOptions {
  SacEdgesOptions(int64_t num_heads, int64_t embed_dim);

  int64_t num_heads;
  int64_t embed_dim;      // width of the tokens, or num_heads * head_dim
  int64_t node_dim = 32;  // P: width of node representations and of the LSTM

  SacWalk walk = SacWalk::kRooted;
  SacScorer scorer = SacScorer::kDot;
  SacSharing sharing = SacSharing::kPerLayer;
  int64_t alpha = 4;        // edges per query (rooted), or per query on average (pairs)
  int64_t budget = 0;       // edges per sequence instead, however long it is; 0 = alpha decides
  bool duplicates = false;  // an edge may be chosen again; it then counts once
  SelfEdges self_edges = SelfEdges::kAllowed;
  EdgeSourcePtr candidates;  // choose among the edges of this source only; null = all that the request allows

  DistanceEncoding distance = DistanceEncoding::kBias;
  int64_t distance_buckets = 32;  // half of them for each side
  int64_t max_distance = 128;     // farther ones share a bucket
  // kBias: at the start a destination at distance d is scored distance_decay * log(1 + d) lower, so that the
  // walk begins near its source; 0 = all distances are equal.
  double distance_decay = 0;
  int64_t relations = 0;  // ids 1 .. relations of EdgeRequest::relations are encoded too

  WalkDecoding train_decoding = WalkDecoding::kSample;
  WalkDecoding test_decoding = WalkDecoding::kBeam;
  int64_t beam = 5;

  bool fused = true;          // walk by the fused kernel where it applies; false = always in plain ATen
  bool detach_inputs = true;  // the predictor's gradient stops at its inputs
  SacEstimator estimator = SacEstimator::kCounterfactual;
  PresentForm present_form = PresentForm::kSoftmax;  // kCounterfactual
  double probes = 4;  // kCounterfactual: absent keys asked about, so many a query on average
  // kCounterfactual: with its log-probability a key's chance to be included counts as moving by at least so
  // much, which keeps improbable keys within reach; 0 = as it does, the unbiased gradient.
  double least_slope = 0.25;
  double policy_weight = 1;  // of the estimator, beside the task loss
  double entropy_weight = 0;
  RewardBaseline baseline = RewardBaseline::kRunningMean;  // kReinforce
  double baseline_decay = 0.99;
  bool normalize_rewards = false;  // advantages over the running deviation of the rewards
  int64_t distilled_rows = 16;     // kDistillation: queries per item whose dense attention is computed
};
std::ostream& operator<<(std::ostream& stream, const SacEdgesOptions& options);

namespace sac {
struct WalkInputs;
struct WalkResult;
}  // namespace sac

class SacEdgesImpl : public EdgeSource {
 public:
  explicit SacEdgesImpl(SacEdgesOptions options);

  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  std::string causal_refusal() const override;
  std::string growth_refusal() const override;
  bool decode_by(std::optional<PolicyDecoding> decoding) override;
  // Whether choose() also says what its policy was: to a learner, and in evaluation to who asked for draws.
  bool reports_policy() const;
  std::string cross_refusal() const override;
  std::string cross_growth_refusal() const override;

  // With sharing kAllLayers: the choice of the last call, which the other layers use.
  const EdgeChoice& last_choice() const;

  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  SacEdgesOptions options;
  // G = 1, or the number of heads when each has its own edges. P = node_dim.
  at::Tensor node_weight;                              // [G, embed_dim, P]
  at::Tensor node_bias;                                // [G, P]
  at::Tensor lstm_weight_ih;                           // [G, P, 4P]: input, forget, cell, output gates
  at::Tensor lstm_weight_hh;                           // [G, P, 4P]
  at::Tensor lstm_bias;                                // [G, 4P]
  at::Tensor start;                                    // [G, P], input of the first step; pairs only
  at::Tensor mlp_state;                                // [G, P, P] A; mlp only, as the next three
  at::Tensor mlp_node;                                 // [G, P, P] C
  at::Tensor mlp_bias;                                 // [G, P] b
  at::Tensor mlp_out;                                  // [G, P] v
  at::Tensor distance_table;                           // [G, buckets] or [G, buckets, P]
  at::Tensor relation_table;                           // [G, relations + 1] or [G, relations + 1, P]
  torch::nn::Linear value1{nullptr}, value2{nullptr};  // the learned baseline, on the mean token
  std::shared_ptr<RewardStatistics> rewards;

  // The pieces of choose(), for tests and for other back ends of the walk.
  // with_pairs: also the candidates as [B, G, L, S] masks, which the fused kernel does without.
  sac::WalkInputs walk_inputs(const EdgeRequest& request, bool with_pairs = true) const;
  sac::WalkResult walk(const sac::WalkInputs& inputs, const EdgeRequest& request,
                       WalkDecoding decoding) const;
  EdgeChoice choice_of(const sac::WalkInputs& inputs, const sac::WalkResult& result,
                       const EdgeRequest& request) const;

 private:
  EdgePolicy make_policy(const sac::WalkInputs& inputs, const sac::WalkResult& result,
                         const EdgeRequest& request) const;
  at::Tensor baseline_of(const sac::WalkInputs& inputs, const EdgeRequest& request) const;

  // What the estimator `counterfactual` needs: of every edge the probability that the walk includes it.
  EdgeLearner make_learner(const sac::WalkInputs& inputs, const sac::WalkResult& result,
                           const EdgeRequest& request, const EdgeSet& edges, const at::Tensor& action) const;

  std::optional<EdgeChoice> last_choice_;
  std::optional<PolicyDecoding> decoding_;  // decode_by()
};
TORCH_MODULE(SacEdges);

// The edges that another layer's SacEdges chose in the same forward pass.
class SharedSacEdges : public EdgeSource {
 public:
  explicit SharedSacEdges(SacEdges leader);
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }

 private:
  SacEdges leader_;  // not registered: its parameters belong to its own layer
};

// One source per layer; with sharing kAllLayers the first one predicts for all.
class SacEdgesFactory {
 public:
  explicit SacEdgesFactory(SacEdgesOptions options);
  EdgeSourcePtr operator()(int64_t layer);

 private:
  SacEdgesOptions options_;
  SacEdges leader_{nullptr};
};

}  // namespace edgewise
