// The probability that a rooted walk includes an edge: what the estimator `counterfactual` teaches
// (docs/math.md, "SAC").
//
//   p_ij = 1 - prod_t (1 - pi_tj)
//
// over the steps t of query i's walk at which key j may still be chosen, with pi_t the distribution of step t
// given the choices before it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "edges/sac/sac_walk.h"

namespace edgewise::sac {

class InclusionProbabilities {
 public:
  // `walk` has its distributions, or is one of the fused kernels' (scorer dot, distance none or bias). All
  // are kept by reference.
  InclusionProbabilities(const SacEdgesImpl& predictor, const WalkInputs& inputs, const WalkResult& walk,
                         const EdgeRequest& request);

  // [E], differentiable. action [E]: which of the walk's actions made each edge, its place in [B, G, A]; -1
  // where none did, whose probability is a constant 0. Undefined: the walk passed all of these by.
  at::Tensor of(const EdgeSet& edges, const at::Tensor& action = {}) const;

 private:
  void read_states();
  at::Tensor group_rows(const EdgeSet& edges) const;  // of every edge its row in [B, G, L]
  // What distances [...] add to scores; first_bucket: of each its group's row of the table.
  at::Tensor distance_bias(const at::Tensor& distance, const at::Tensor& first_bucket) const;
  // log pi_t of every edge at every step: [E, T].
  at::Tensor log_pi(const EdgeSet& edges, const at::Tensor& rows) const;

  const SacEdgesImpl& predictor_;
  const WalkInputs& inputs_;
  const WalkResult& walk_;
  const EdgeRequest& request_;
  int64_t groups_;
  // Of a walk without distributions:
  at::Tensor states_;  // [B, H, L, T, P + 1]: hidden state, and minus the log of the softmax's sum
  at::Tensor keys_;    // [B, H, S, P + 1]: nodes, and 1
};

// Of each item, so that options.probes keys a query are probed on average.
std::vector<double> probe_rates(const SacEdgesOptions& options, const EdgeRequest& request);
// Candidates that are no edges, drawn at these rates.
EdgeSet draw_probes(const SacEdgesOptions& options, const WalkInputs& inputs, const EdgeRequest& request,
                    const EdgeSet& edges, const std::vector<double>& rates);

}  // namespace edgewise::sac
