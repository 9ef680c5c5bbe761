#include <edgewise/attention/attention_cost.h>

#include <cmath>

namespace edgewise {

double flops(const Operations& operations) {
  double total = 0;
  for (const Operation& operation : operations) total += 2 * operation.multiply_adds;
  return total;
}

Operations dense_operations(double n, double d) {
  // q k^T: n x d times d x n. a v: n x n times n x d.
  return {{"scores", "n^2 d", n * n * d}, {"values", "n^2 d", n * n * d}};
}

Operations edge_operations(double n, double d, double density) {
  // One dot product and one scaled row per edge, E = density n^2.
  const double edges = density * n * n;
  return {{"edge scores", "E d", edges * d}, {"edge values", "E d", edges * d}};
}

Operations sbm_operations(double n, double d, double c, double density, SamplingCost sampling) {
  Operations result = {
      {"node MLP of q and k", "4 n d^2", 4 * n * d * d},     // two layers each
      {"memberships of q and k", "2 n d c", 2 * n * d * c},  // MLP(x) Z^T
      {"block matrix", "c^2 d", c * c * d},                  // Z Z^T; once per batch, counted in full
      {"key side", "n c^2", n * c * c},                      // T = K^ S^T
  };
  if (sampling == SamplingCost::kDirect) {
    result.push_back({"sampling, every pair", "n^2 c", n * n * c});  // p_ij = Q^_i . T_j
  } else {
    result.push_back({"sampling, per edge", "E c", density * n * n * c});
  }
  return result;
}

Operations bucket_operations(double n, double d, double rounds, double chunk) {
  // x R, with ceil(n / m) rotations (half the buckets) in each of r rounds.
  return {{"hashing", "r n d ceil(n / m)", rounds * n * d * std::ceil(n / chunk)}};
}

Operations linear_operations(double n, double d, bool normalised) {
  Operations result = {{"phi(k)^T v", "n d^2", n * d * d}, {"phi(q) S", "n d^2", n * d * d}};
  if (normalised) result.push_back({"denominator", "n d", n * d});
  return result;
}

Operations performer_operations(double n, double d, double features) {
  const double m = features;
  return {{"features of q and k", "2 n d m", 2 * n * d * m},  // w . x'
          {"phi(k)^T v", "n m d", n * m * d},
          {"phi(q) S", "n m d", n * m * d},
          {"denominator", "n m", n * m}};
}

Operations linformer_operations(double n, double d, double projected) {
  const double k = projected;
  return {{"projection of k and v", "2 k n d", 2 * k * n * d},
          {"scores", "n k d", n * k * d},
          {"values", "n k d", n * k * d}};
}

Operations nystrom_operations(double n, double d, double landmarks, double iterations, double conv_kernel) {
  const double m = landmarks;
  return {{"F = q k~^T", "n m d", n * m * d},
          {"A = q~ k~^T", "m^2 d", m * m * d},
          {"B = q~ k^T", "n m d", n * m * d},
          {"pseudo-inverse", "4 i m^3", 4 * iterations * m * m * m},  // four products of [m, m] a step
          {"F A^+", "n m^2", n * m * m},
          {"B v", "n m d", n * m * d},
          {"(F A^+) (B v)", "n m d", n * m * d},
          {"convolution", "n w d", n * conv_kernel * d}};
}

Operations reformer_operations(double n, double d, double rounds, double chunk, double heads) {
  if (n <= chunk) {
    Operations whole = dense_operations(n, d);
    whole.push_back({"output projection", "n d (h d)", n * d * heads * d});
    return whole;
  }
  // Half of the n / m buckets are rotations; a query meets 2 m keys in each of r rounds.
  return {{"hashing", "r n d n / (2 m)", rounds * n * d * n / (2 * chunk)},
          {"scores", "2 r n m d", 2 * rounds * n * chunk * d},
          {"values", "2 r n m d", 2 * rounds * n * chunk * d},
          {"output projection", "n d (h d)", n * d * heads * d}};  // this head's share of (h d)^2
}

Operations layer_operations(double n, double e, double hidden, double projections) {
  return {{"input projections", "p n e^2", projections * n * e * e},
          {"output projection", "n e^2", n * e * e},
          {"MLP", "2 n e f", 2 * n * e * hidden}};
}

Operations classifier_operations(double features, double hidden, double classes) {
  return {{"classifier", "g f + f k", features * hidden + hidden * classes}};
}

}  // namespace edgewise
