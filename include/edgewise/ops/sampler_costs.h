// What the CPU samplers of SBM edges are predicted to take: what Sampler::kAuto chooses by.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/ops/sample.h>

namespace edgewise {

// Milliseconds of one core, all items and heads together. `chosen`: each head by the sampler that kAuto
// takes.
struct SamplerCosts {
  double squeezed = 0, thinning = 0, fastrg = 0, direct = 0, chosen = 0;

  double of(Sampler sampler) const;
};
// Memberships as in sample_sbm_edges, on CPU.
SamplerCosts predict_sampler_costs(const at::Tensor& query_membership, const at::Tensor& key_side,
                                   const SampleOptions& options = {});

}  // namespace edgewise
