// SbmEdges: a head samples its edges from a mixed-membership stochastic block model (arXiv 2210.15541).
//
//   Q^ = sigmoid(MLP(q) C^T), K^ = sigmoid(MLP(k) C^T), S = softmax over all C*C entries of C C^T, p = Q^ S
//   K^^T.
//
// With unit 16 the nodes are groups of 16 tokens, and what is sampled are squares of 16 x 16 pairs. A group
// is the mean of its valid tokens; in a causal request the first token speaks for its queries, and the key
// groups to choose from are those that lie wholly before it.
//
// docs/math.md maps each equation to its function; docs/how-to/choose-edges.md lists the presets.
#pragma once

#include <edgewise/edges/edge_source.h>
#include <edgewise/ops/sample.h>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <iosfwd>
#include <string_view>

namespace edgewise {

// kPaper: as printed. kPublished: as the released code behaves. kEdgewise: our best, the default.
enum class SbmPreset { kPaper, kPublished, kEdgewise };
SbmPreset parse_sbm_preset(std::string_view name);  // "paper" | "published" | "edgewise"
std::string_view to_string(SbmPreset preset);

// kExact: closed form of the expected density and its gradient. kSampled: the sampled edges' count,
// straight-through.
enum class DensityPenalty { kExact, kSampled };
DensityPenalty parse_density_penalty(std::string_view name);  // "exact" | "sampled"
std::string_view to_string(DensityPenalty penalty);

struct SbmEdgesOptions {
  SbmEdgesOptions(int64_t num_heads, int64_t head_dim, SbmPreset preset = SbmPreset::kEdgewise,
                  int64_t unit = 1);

  int64_t num_heads;
  int64_t head_dim;
  int64_t unit;        // edges one by one (1), or in squares of 16 queries and 16 keys (16)
  int64_t clusters;    // C: 128 in paper and published, 32 in edgewise
  bool shared_mlp;     // one node MLP for all heads (published, edgewise) or one per head (paper)
  double cluster_std;  // standard deviation of the initial cluster embeddings; 0 = sqrt(2 / (C * D))
  // About the density that a new layer has: sigmoid(x + logit(sqrt(initial_density))) on both sides. 0.25
  // adds 0.
  double initial_density = 0.25;
  EdgeLaw law;
  double exploration;        // delta
  bool exploration_in_eval;  // published adds delta at test time too
  Estimator estimator;
  PresentForm present_form;
  double gradient_clip;    // |dL/dp| is cut at this; 0 = no cut
  double probe_rate;       // counterfactual only: share of the absent pairs (squares) that is probed ...
  int64_t probes_per_row;  // ... but at most so many per query (group) on average: long sequences stay linear
  int64_t probe_unit;      // probes one by one (1), or in squares of 16 queries and 16 keys (16): edgewise
  DensityPenalty density_penalty;
  bool self_loops = false;  // of unit 16: the square of a group with itself
  bool count_padding;       // published: padding is sampled and counted in the density
  Sampler sampler = Sampler::kAuto;
  // Both for nodes without an order, of unit 1, without masks. Edges that a query has on average, whatever is
  // learned: memberships of the queries are multiplied by a number a head, with which it expects as many
  // edges beside those of EdgeRequest::relations; 0 = as many as are learned.
  double edges_per_row = 0;
  // Choose among the edges of this source only, which gives every head the same; null = all pairs.
  EdgeSourcePtr candidates = {};
};
std::ostream& operator<<(std::ostream& stream, const SbmEdgesOptions& options);

// The parameters of SbmEdges by themselves.
struct SbmTensors {
  at::Tensor clusters;     // [H, C, D]
  at::Tensor mlp_weight1;  // [G, D, D], G = 1 (shared) or H
  at::Tensor mlp_bias1;    // [G, D]
  at::Tensor mlp_weight2;  // [G, D, D]
  at::Tensor mlp_bias2;    // [G, D]
};

// What SbmEdges with these parameters chooses, without a module. The graph of the choice reaches them.
EdgeChoice choose_sbm_edges(const SbmEdgesOptions& options, const SbmTensors& tensors,
                            const EdgeRequest& request, bool training);

struct SbmScope;

class SbmEdgesImpl : public EdgeSource {
 public:
  explicit SbmEdgesImpl(SbmEdgesOptions options);

  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  std::string growth_refusal() const override;
  std::string cross_refusal() const override;
  std::string cross_growth_refusal() const override;

  at::Tensor block_matrix() const;                              // S: [H, C, C], sums to 1 per head
  at::Tensor membership(const at::Tensor& nodes) const;         // [B, H, N, D] -> [B, H, N, C]
  at::Tensor key_side(const at::Tensor& key_membership) const;  // K^ S^T: [B, H, S, C]

  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  SbmEdgesOptions options;
  at::Tensor clusters, mlp_weight1, mlp_bias1, mlp_weight2, mlp_bias2;  // as in SbmTensors

 private:
  friend EdgeChoice choose_sbm_edges(const SbmEdgesOptions& options, const SbmTensors& tensors,
                                     const EdgeRequest& request, bool training);
  SbmEdgesImpl(const SbmEdgesOptions& options, const SbmTensors& tensors);  // of which none is a parameter
  EdgeChoice choose_squares(const EdgeRequest& request) const;
  EdgeChoice choose_grown_squares(const EdgeRequest& request) const;
  EdgeChoice choose_in_scope(const EdgeRequest& request);
  double membership_shift() const;  // logit(sqrt(initial_density))
  at::Tensor as_read(const at::Tensor& nodes) const;
  // Memberships of nodes [B, H, N, D], by one kernel where there is one.
  struct Sides {
    at::Tensor query;     // Q^ [B, H, L, C]
    at::Tensor key_side;  // T [B, H, S, C]
    at::Tensor
        expected;  // [H] edges to expect without causality, where the kernel has counted; else undefined
  };
  Sides sides(const at::Tensor& query_nodes, const at::Tensor& key_nodes,
              const std::optional<at::Tensor>& query_mask, const std::optional<at::Tensor>& key_mask) const;

  std::shared_ptr<SbmScope> scope_;  // of choose_in_scope(): what it has made of a graph, which comes again
};
TORCH_MODULE(SbmEdges);

}  // namespace edgewise
