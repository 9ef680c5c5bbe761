// What each sampler would cost for one head: the choice between them. sample_cost.cpp.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/cpu/sample/sample_bounds.h"
#include "kernels/cpu/sample/sampler.h"

namespace edgewise::kernels::cpu {

// Predicted nanoseconds on one core.
struct SamplerCosts {
  double bounds = 0;  // SampleBounds, which the choice itself needs
  // The squeezed sampler with bounds from one direction of each side, from several, from integer products.
  double one_direction = 0, groups = std::numeric_limits<double>::infinity(), products = 0;
  double thinning = 0, fastrg = 0;

  double squeezed() const { return std::min({one_direction, groups, products}); }
};

// `groups` receives directions where they are worth looking for.
SamplerCosts sampler_costs(const SampleHead& head, const SampleBounds& bounds, GroupBounds& groups);
double direct_cost(const SampleHead& head);

}  // namespace edgewise::kernels::cpu
