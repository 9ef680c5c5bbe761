// What attention over edges, by whatever scores, owes a learner.
#pragma once

#include "ops/attention/attention_call.h"

namespace edgewise::ops {

// Gradients of an EdgeLearner's tensors; undefined where it has none.
struct LearnerGrads {
  at::Tensor query_membership, key_side, values, probe_values;
};

// From the credit of edges and probes. Of `in` the learner, its call in numbers, the edges and the dtype are
// read. density_grad: [H], the gradient of the sampled density, or undefined.
LearnerGrads learner_grads(const AttentionInputs& in, const AttentionBackward& backward,
                           const at::Tensor& density_grad);

// LearnedAttention::sampled_density of a learner with memberships.
at::Tensor sampled_density(const EdgeLearner& learner, const EdgeSet& edges, at::ScalarType dtype);

// Throws, naming `function`, unless the learner's tensors fit each other and the edges.
void check_learner(const char* function, const EdgeLearner& learner, const EdgeSet& edges);

}  // namespace edgewise::ops
