// Walks by the fused kernels: memory linear in the edges, the same probabilities as the plain walks.
#pragma once

#include "edges/sac/sac_walk.h"

namespace edgewise::sac {

// Whether the kernels take this walk: on the CPU or on a GPU that they are built for, scorer dot, distance
// none or bias, no relations, candidates that are a run of keys per query (all, causal, window), sampled or
// greedy, and nobody asks for whole distributions.
bool fused_walk_applies(const SacEdgesImpl& predictor, const EdgeRequest& request, WalkDecoding decoding);

// inputs.allowed is not needed.
WalkResult fused_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs, const EdgeRequest& request,
                      WalkDecoding decoding);

}  // namespace edgewise::sac
