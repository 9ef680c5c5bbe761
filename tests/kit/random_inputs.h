// Inputs for tests: reproducible random tensors and edges.
#pragma once

#include <edgewise/graph/edge_set.h>

#include <torch/torch.h>

namespace edgewise::kit {

// Every call with the same seed gives the same numbers, whatever ran before.
inline at::Tensor randn(at::IntArrayRef sizes, int64_t seed, at::ScalarType dtype = at::kFloat) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::randn(sizes, generator, at::kDouble).to(dtype);
}

inline at::Tensor rand(at::IntArrayRef sizes, int64_t seed, at::ScalarType dtype = at::kFloat) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::rand(sizes, generator, at::kDouble).to(dtype);
}

inline at::Tensor random_mask(const EdgeShape& shape, double density, int64_t seed) {
  return rand({shape.batch, shape.heads, shape.queries, shape.keys}, seed, at::kDouble) < density;
}

}  // namespace edgewise::kit
