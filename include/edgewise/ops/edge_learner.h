// EdgeLearner: what the backward pass of attention tells whoever chose the edges (docs/math.md,
// "Estimators").
//
// With weights a, logits s, u = g . v_j, ubar = g . o and g = dL/do, every edge gets a number G by a rule,
// and so does every probe: an absent pair that is there only to ask what adding it would have done. Where the
// numbers go is one of two things:
//   - values, the learner's own number of every edge: they do not change the output, and receive G as their
//     gradient. With the log-probability of the action that made the edge this is a policy gradient.
//   - memberships, p_ij = query_membership_i . key_side_j: they receive G key_side and G^T query_membership.
//
// Of edges that were born as squares the memberships are those of groups of 16 tokens, p_IJ is a square's,
// and G has one number for each: the effect of switching the square as a whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace edgewise {

namespace ops {
struct ReplayedNumbers;
}

// How probabilities become edges: P(edge) = min(p, 1), or P(edge) = 1 - exp(-min(p, 1)).
enum class EdgeLaw { kBernoulli, kPoisson };

// G of an edge. Of a probe it is sigmoid(s - lse) (u - ubar), whatever the rule.
//   kLogit        a (u - ubar)            the gradient of the edge's logit: straight-through, published code
//   kPaper        a (u - ubar) s          Eq. 9 of the paper
//   kLeaveOneOut  a / (1 - a) (u - ubar)  the loss with the edge minus the loss without it
enum class CreditRule { kLogit, kPaper, kLeaveOneOut };

struct EdgeLearner {
  CreditRule rule = CreditRule::kLogit;
  std::optional<EdgeSet> probes;    // absent pairs, drawn with probability probe_rates[item]
  std::vector<double> probe_rates;  // [B]; the numbers of probes are divided by them

  // A number of the learner's own for every edge, and for every probe; or undefined.
  at::Tensor values;        // [E] in CSR order
  at::Tensor probe_values;  // [probes]

  // Memberships, or undefined.
  at::Tensor query_membership;  // [B, H, L, C]; of squares [B, H, ceil(L/16), C]
  at::Tensor key_side;          // [B, H, S, C]; of squares [B, H, ceil(S/16), C]
  double gradient_clip = 0;     // |G| on present edges is cut at this; 0 = no cut
  // p becomes an edge with P = 1 - exp(-min(p + exploration, 1)), and G is a derivative with respect to P.
  bool poisson_slope = false;
  double exploration = 0;
  // Edges that are there whatever the learner draws (self-loops, a pattern): it decided the others.
  std::optional<EdgeSet> fixed;
  std::optional<EdgeSet> discarded;  // sampled but not attended (padding, `published`): they count in the
                                     // sampled density, and only its gradient reaches them
  double pairs_per_head = 0;         // denominator of sampled_density

  // Which of these numbers follow from a mask (src/ops/step_inputs.h); null = they are the same in every
  // pass.
  std::shared_ptr<const ops::ReplayedNumbers> replayed = nullptr;
};

// The estimators of SBM. kCounterfactual: the effect of switching an edge, with probes among the absent ones.
enum class Estimator { kPaper, kLogit, kCounterfactual };
// kCounterfactual on present edges: the rule kLogit, or kLeaveOneOut.
enum class PresentForm { kSoftmax, kLeaveOneOut };
CreditRule credit_rule(Estimator estimator, PresentForm form);

EdgeLaw parse_edge_law(std::string_view name);          // "bernoulli" | "poisson"
Estimator parse_estimator(std::string_view name);       // "paper" | "logit" | "counterfactual"
PresentForm parse_present_form(std::string_view name);  // "softmax" | "leave_one_out"
std::string_view to_string(EdgeLaw law);
std::string_view to_string(Estimator estimator);
std::string_view to_string(PresentForm form);

}  // namespace edgewise
