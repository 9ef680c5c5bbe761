// Does attention over edges pay against dense attention? By predicted costs and by what was measured
// (docs/performance.md); where neither says so, the answer is that it is not known, and how to find out.
#pragma once

#include <edgewise/ops/explain.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::app {

struct VerdictShape {
  int64_t n = 0, dim = 0, heads = 0;  // heads: of all items of a batch
  double density = 0;
  std::string dtype, device;  // "fp32", "bf16", ...; "cpu", "cuda"
};

struct Verdict {
  std::string pays;  // "yes", "no", "unknown"
  std::string why;
  std::optional<double> at_least = {}, at_most = {};  // dense attention's time over ours
};

// Attention over given edges, forward.
Verdict forward_verdict(const VerdictShape& shape, const AttentionChoice& choice);
// A learned layer with 32 clusters: sampling edges and probes, forward, backward.
Verdict step_verdict(const VerdictShape& shape, const AttentionChoice& choice);

// One measurement; of a CPU from results/cpu/attention.txt, of a GPU from results/h200/bench.jsonl.
enum class Part { kForward, kStep };
struct MeasuredPoint {
  int64_t n = 0;
  double density = 0;
  double speedup = 0;  // dense attention's time over ours
};
// Of the shape's device, type and head dim; empty where there are none.
std::vector<MeasuredPoint> measured_points(Part part, const VerdictShape& shape);

}  // namespace edgewise::app
