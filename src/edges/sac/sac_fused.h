// Walks by the fused kernels: memory linear in the edges, the same probabilities as the plain walks.
#pragma once

#include <optional>

#include "edges/sac/sac_walk.h"

namespace edgewise::sac {

// Whether the kernels take this walk: on the CPU or on a GPU that they are built for, scorer dot, distance
// none or bias, no relations, candidates that are a run of keys per query (all, causal, window), sampled or
// greedy, and nobody asks for whole distributions.
bool fused_walk_applies(const SacEdgesImpl& predictor, const EdgeRequest& request, WalkDecoding decoding);

// Of a walk that fused_walk_applies() to: straight from the tokens, where nobody learns from it and the
// device can do so; nothing where it cannot. Everything that belongs to actions is undefined.
std::optional<WalkResult> token_walk(const SacEdgesImpl& predictor, const EdgeRequest& request,
                                     WalkDecoding decoding);

// inputs.allowed is not needed. On a GPU, with destinations in blocks and a request in bf16, nodes and LSTM
// weights count as rounded to bf16.
WalkResult fused_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs, const EdgeRequest& request,
                      WalkDecoding decoding);

}  // namespace edgewise::sac
