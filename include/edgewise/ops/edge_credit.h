// EdgeCredit: how the loss teaches the learner that chose the edges (docs/math.md, "Estimators").
//
// The learner's edge probability is p_ij = query_membership_i . key_side_j. The backward pass of
// edge_attention turns the attention's own gradient into G = dL/dp on the decided edges and on the probe
// edges, and sends dquery_membership = G key_side and dkey_side = G^T query_membership.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace edgewise {

// How probabilities become edges: P(edge) = min(p, 1), or P(edge) = 1 - exp(-min(p, 1)).
enum class EdgeLaw { kBernoulli, kPoisson };

// G on a present edge, with weights a, logits s, u = g . v_j and ubar = g . o (g = dL/do):
//   kLogit           a (u - ubar)                     the published code
//   kPaper           a (u - ubar) s                   Eq. 9 of the paper
//   kCounterfactual  the effect of switching the edge, and the same for probe edges among the absent ones
enum class Estimator { kPaper, kLogit, kCounterfactual };

// kCounterfactual on present edges: a (u - ubar), or the exact effect of removal a / (1 - a) (u - ubar).
enum class PresentForm { kSoftmax, kLeaveOneOut };

struct EdgeCredit {
  at::Tensor query_membership;  // [B, H, L, C], requires grad
  at::Tensor key_side;          // [B, H, S, C], requires grad
  EdgeLaw law = EdgeLaw::kBernoulli;
  Estimator estimator = Estimator::kCounterfactual;
  PresentForm present_form = PresentForm::kSoftmax;
  double gradient_clip = 0;         // |G| on present edges is cut at this; 0 = no cut
  std::optional<EdgeSet> probes;    // absent pairs, drawn with probability probe_rates[item]
  std::vector<double> probe_rates;  // [B]
  double exploration = 0;           // delta that was added to p before the law
  // Edges that are there whatever the learner draws (self-loops, a pattern): it decided the others.
  std::optional<EdgeSet> fixed;
  std::optional<EdgeSet> discarded;  // sampled but not attended (padding, `published`): they count in the
                                     // sampled density, and only its gradient reaches them
  double pairs_per_head = 0;         // denominator of sampled_density
  // Where they follow from a mask: pairs_per_head and probe_rates for what now stands in it, so that a pass
  // that was recorded can be replayed with another batch. Empty = the same for every batch.
  std::function<double()> pairs_again = {};
  std::function<std::vector<double>()> rates_again = {};
};

EdgeLaw parse_edge_law(std::string_view name);          // "bernoulli" | "poisson"
Estimator parse_estimator(std::string_view name);       // "paper" | "logit" | "counterfactual"
PresentForm parse_present_form(std::string_view name);  // "softmax" | "leave_one_out"
std::string_view to_string(EdgeLaw law);
std::string_view to_string(Estimator estimator);
std::string_view to_string(PresentForm form);

}  // namespace edgewise
