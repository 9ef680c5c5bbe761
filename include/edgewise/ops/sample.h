// Edges from memberships: p_ij = query_membership_i . key_side_j (+ exploration), then the edge law.
// docs/math.md, "Laws".
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/edge_learner.h>
#include <edgewise/ops/random_stream.h>

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace edgewise {

// kDirect computes every probability (cost L*S*C). kSqueezed decides nearly every pair from a random byte and
// two bounds (cost L*S/64 + edges). kThinning and kFastRg draw edges (cost edges + (L + S)*C): kThinning from
// one bound, for memberships that point roughly the same way; kFastRg cluster by cluster, for sharp clusters.
// kAuto takes the cheapest per item and head by predicted cost. All have the same law.
enum class Sampler { kAuto, kDirect, kFastRg, kSqueezed, kThinning };
Sampler parse_sampler(std::string_view name);  // "auto" | "direct" | "fastrg" | "squeezed" | "thinning"
std::string_view to_string(Sampler sampler);

struct SampleOptions {
  EdgeLaw law = EdgeLaw::kBernoulli;
  double exploration = 0;                // delta, added to p before the law
  std::optional<at::Tensor> key_mask;    // [B, S] bool, true = key takes part
  std::optional<at::Tensor> query_mask;  // [B, L] bool, rows that are not valid get no edge
  bool is_causal = false;
  // Query i stands at key query_offset + i, and draws the random numbers of that row: one row at a time gives
  // the edges of all at once. Direct sampler only.
  int64_t query_offset = 0;
  bool self_loops = false;  // adds (i, i); needs L == S
  // Probes one by one (1), or in squares of 16 queries and 16 keys that are probed as a whole (16).
  int64_t probe_unit = 1;
  std::shared_ptr<const ops::ReplayedNumbers> replayed = nullptr;  // of probes: see EdgeLearner
  Sampler sampler = Sampler::kAuto;
  RandomStream random;
  bool check_values =
      false;  // refuse NaN and negative memberships also on CUDA, where looking stops the device
};

// query_membership [B, H, L, C], key_side = K^ S^T [B, H, S, C], non-negative. On CUDA the direct
// sampler or thinning, as kernels, or the direct one in plain ATen; edges are bit tiles there or, for long
// sequences, lists, for whose number the host waits.
EdgeSet sample_sbm_edges(const at::Tensor& query_membership, const at::Tensor& key_side,
                         const SampleOptions& options = {});

// Absent pairs, each drawn with probability rates[item], uniformly among the pairs that are not in `edges`
// and that the masks allow: independently, or all those of a square of `probe_unit` together.
EdgeSet sample_probe_edges(const EdgeSet& edges, const std::vector<double>& rates,
                           const SampleOptions& options);

}  // namespace edgewise
