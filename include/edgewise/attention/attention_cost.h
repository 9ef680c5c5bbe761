// What a forward pass costs: one formula per operation, in multiply-adds of matrix products and convolutions.
// torch's count of FLOPs is two per multiply-add of the same operations; softmax, norms and other work that
// is linear in its input is left out, as there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace edgewise {

struct Operation {
  std::string name;
  std::string formula;  // in the letters of the function that made it
  double multiply_adds = 0;
};
using Operations = std::vector<Operation>;

double flops(const Operations& operations);  // 2 * multiply-adds

// Every function below: one head, one sequence of n tokens, head width d; padding is computed like tokens.
Operations dense_operations(double n, double d);
// Attention over E = density * n^2 given edges.
Operations edge_operations(double n, double d, double density);
// kDirect visits every pair; kPerEdge needs the probability of the edges it draws only.
enum class SamplingCost { kDirect, kPerEdge };
// Memberships, block matrix and sampling of SbmEdges with c clusters; attention over the edges comes on top.
Operations sbm_operations(double n, double d, double c, double density, SamplingCost sampling);
// Hashing of BucketEdges; attention over the edges comes on top.
Operations bucket_operations(double n, double d, double rounds, double chunk);
Operations linear_operations(double n, double d, bool normalised);
Operations performer_operations(double n, double d, double features);
Operations linformer_operations(double n, double d, double projected);
Operations nystrom_operations(double n, double d, double landmarks, double iterations, double conv_kernel);
// The harness form, with its output projection of width d * heads.
Operations reformer_operations(double n, double d, double rounds, double chunk, double heads);

// Everything of an encoder layer but what its heads do, for all heads: `projections` in_proj parts (3, or 2
// with shared queries and keys) and the output projection of width e, and the MLP.
Operations layer_operations(double n, double e, double hidden, double projections);
// The classifier of a sequence: features -> hidden -> classes.
Operations classifier_operations(double features, double hidden, double classes);

}  // namespace edgewise
