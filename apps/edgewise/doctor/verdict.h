// Does attention over edges pay against dense attention? By predicted costs and by what was measured
// (docs/performance.md); where neither says so, the answer is that it is not known, and how to find out.
#pragma once

#include <edgewise/ops/explain.h>
#include <edgewise/ops/float32_matmul.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::app {

struct VerdictShape {
  int64_t n = 0, dim = 0, heads = 0;  // heads: of all items of a batch
  double density = 0;
  std::string dtype, device;                      // "fp32", "bf16", ...; "cpu", "cuda"
  Float32Matmul matmul = Float32Matmul::kTf32x3;  // of fp32 on CUDA
};

struct Verdict {
  std::string pays;  // "yes", "no", "even", "unknown"
  std::string why;
  std::optional<double> at_least = {}, at_most = {};  // dense attention's time over ours
};

// Attention over given edges, forward.
Verdict forward_verdict(const VerdictShape& shape, const AttentionChoice& choice);
// A learned layer with 32 clusters: sampling edges and probes, forward, backward.
Verdict step_verdict(const VerdictShape& shape, const AttentionChoice& choice);

// Of an H200: what is said of GPUs is said of this one.
inline constexpr int64_t kH200Bytes = int64_t{139} << 30;

enum class Part { kForward, kStep };
struct MeasuredPoint {
  int64_t n = 0;
  double density = 0;
  double speedup = 0;  // dense attention's time over ours
};
struct Measurements {
  std::string where;  // "on an H200 with ..."
  std::vector<MeasuredPoint> points;
  int64_t tokens = 0;     // x heads, where it matters how many; else 0
  bool in_tiles = false;  // on CUDA: of edges in bit tiles, which not every shape has
};
// Of the shape's device, type and head dim; without points where there are none.
Measurements measurements(Part part, const VerdictShape& shape);

}  // namespace edgewise::app
