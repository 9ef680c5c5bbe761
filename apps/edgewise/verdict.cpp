#include "verdict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <utility>

#include "table.h"

namespace edgewise::app {
namespace {

// Our time over dense attention's on an H200, bf16, at 25, 10, 5, 2 and 1 %.
using Ratios = std::array<double, 5>;

std::vector<MeasuredPoint> on_gpu(const Ratios& at_2048, const Ratios& at_4096, const Ratios& at_8192) {
  constexpr Ratios kDensities = {0.25, 0.1, 0.05, 0.02, 0.01};
  std::vector<MeasuredPoint> points;
  for (const auto& [n, ratios] : {std::pair{2048, at_2048}, {4096, at_4096}, {8192, at_8192}})
    for (size_t i = 0; i < ratios.size(); ++i) points.push_back({n, kDensities[i], 1 / ratios[i]});
  return points;
}

const char* where_measured(const VerdictShape& shape) {
  return shape.device == "cpu" ? "measured on two cores with AVX-512 at n = 2048"
                               : "measured on an H200 with 262,144 tokens x heads, n = 2048 to 8192";
}

// A GPU wants work for all of its cores: what was measured of many heads says nothing of a few.
constexpr int64_t kMeasuredOnGpu = 262144;  // tokens x heads
bool is_too_small_for_gpu(const VerdictShape& shape) {
  return shape.device == "cuda" && shape.n < kMeasuredOnGpu / 2 / shape.heads;
}

// Only this machine can tell the rest.
std::string how_to_measure(Part part, const VerdictShape& shape) {
  if (shape.dtype == "fp64" && (part == Part::kStep || shape.device == "cuda")) return "";
  const char* const on_cpu = part == Part::kStep ? "step" : "attention";
  std::ostringstream text;
  text << "; measure it: edgewise bench " << (shape.device == "cuda" ? "cuda" : on_cpu) << " --n " << shape.n
       << " --dim " << shape.dim << " --density " << shape.density << " --dtype " << shape.dtype
       << " --heads " << shape.heads;
  if (is_too_small_for_gpu(shape)) text << " --tokens " << shape.n * shape.heads;
  return text.str();
}

std::string in_words(const Verdict& bounds) {
  const auto shown = [](double speedup) { return fixed(speedup, 2); };
  constexpr const char* kUnit = " times as fast as dense attention";
  if (!bounds.at_least && !bounds.at_most) return "";
  if (!bounds.at_most) return "at least " + shown(*bounds.at_least) + kUnit;
  if (!bounds.at_least) return "at most " + shown(*bounds.at_most) + kUnit;
  const std::string low = shown(*bounds.at_least), high = shown(*bounds.at_most);
  return low == high ? low + kUnit : "between " + low + " and " + high + kUnit;
}

std::string pays(const Verdict& bounds) {
  if (bounds.at_least && *bounds.at_least > 1) return "yes";
  if (bounds.at_most && *bounds.at_most < 1) return "no";
  return "unknown";
}

// Far beyond what was measured other kernels run (docs/kernels/cuda-lists.md).
constexpr int64_t kLengthsBeyond = 4;

// More edges cost more, and on a GPU a longer sequence gains more, so that other points bound a shape that
// was not measured, unless it is far longer. On a CPU caches are against long sequences: there a length
// speaks for itself alone.
Verdict bounds_of(const std::vector<MeasuredPoint>& points, const VerdictShape& shape) {
  Verdict result;
  int64_t longest = 0;
  for (const MeasuredPoint& point : points) longest = std::max(longest, point.n);
  for (const MeasuredPoint& point : points) {
    if (shape.device == "cpu" && point.n != shape.n) continue;
    if (point.n == shape.n && point.density == shape.density)
      return {.pays = "", .why = "", .at_least = point.speedup, .at_most = point.speedup};
    if (point.n <= shape.n && shape.n <= kLengthsBeyond * longest && point.density >= shape.density)
      result.at_least = std::max(result.at_least.value_or(point.speedup), point.speedup);
    if (point.n >= shape.n && point.density <= shape.density)
      result.at_most = std::min(result.at_most.value_or(point.speedup), point.speedup);
  }
  // Where density makes no difference, noise does.
  if (result.at_least && result.at_most && *result.at_least > *result.at_most)
    std::swap(result.at_least, result.at_most);
  return result;
}

Verdict by_measurements(Part part, const VerdictShape& shape) {
  if (is_too_small_for_gpu(shape) && !measured_points(part, shape).empty())
    return {"unknown", "262,144 tokens x heads were measured on an H200; these are " +
                           std::to_string(shape.n * shape.heads) +
                           ", too few to keep a GPU as busy (--heads counts those of all items of a batch)" +
                           how_to_measure(part, shape)};
  Verdict result = bounds_of(measured_points(part, shape), shape);
  result.pays = pays(result);
  const std::string found = in_words(result);
  result.why = found.empty()
                   ? (shape.device == "cpu" && !measured_points(part, shape).empty()
                          ? "this length was not measured (n = 2048 was: docs/performance.md)"
                          : "no such shape was measured")
                   : found + (part == Part::kStep ? " with 32 clusters, " : ", ") + where_measured(shape);
  if (result.pays == "unknown") result.why += how_to_measure(part, shape);
  return result;
}

// Of one core; the cores of a machine are shared by heads and rows on both sides.
Verdict by_prediction(const VerdictShape& shape, const AttentionChoice& choice) {
  if (!choice.is_calibrated)
    return {"unknown",
            "costs were measured for fp32 rows on AVX-512 alone" + how_to_measure(Part::kForward, shape)};
  if (choice.implementation == "dense") return {"no", "every pair is an edge: dense attention runs", 1, 1};
  const double in_blocks =
      choice.heads > 0 ? static_cast<double>(choice.blocks_forward) / static_cast<double>(choice.heads) : 0;
  const double ours_ms = choice.gather_ms * (1 - in_blocks) + choice.blocks_ms * in_blocks,
               speedup = choice.dense_ms / ours_ms;
  if (!std::isfinite(speedup)) return {"unknown", "there is nothing to compute"};
  return {speedup > 1 ? "yes" : "no",
          "predicted " + fixed(speedup, 2) + " times as fast as dense attention; it breaks even at " +
              percent(choice.break_even_density, 0) + " of the pairs",
          speedup, speedup};
}

}  // namespace

std::vector<MeasuredPoint> measured_points(Part part, const VerdictShape& shape) {
  if (shape.dim != 32 && shape.dim != 64) return {};
  const bool narrow = shape.dim == 32;
  if (shape.device == "cpu") {
    if (part != Part::kStep || shape.dtype != "fp32") return {};
    if (narrow) return {{2048, 0.25, 0.66}, {2048, 0.1, 1.33}, {2048, 0.01, 3.49}};
    return {{2048, 0.25, 0.92}, {2048, 0.1, 1.72}, {2048, 0.01, 4.98}};
  }
  if (shape.dtype != "bf16") return {};
  if (part == Part::kForward)
    return narrow ? on_gpu({0.85, 0.86, 0.85, 0.57, 0.41}, {0.83, 0.85, 0.85, 0.52, 0.36},
                           {0.84, 0.84, 0.84, 0.49, 0.34})
                  : on_gpu({1.07, 1.08, 1.08, 0.80, 0.62}, {1.04, 1.04, 1.04, 0.71, 0.52},
                           {1.02, 1.02, 1.01, 0.68, 0.48});
  return narrow ? on_gpu({1.68, 1.68, 1.67, 1.26, 1.07}, {1.58, 1.59, 1.54, 1.08, 0.84},
                         {1.51, 1.51, 1.46, 0.97, 0.72})
                : on_gpu({1.92, 1.94, 1.92, 1.53, 1.26}, {1.88, 1.90, 1.88, 1.38, 1.04},
                         {1.84, 1.85, 1.84, 1.27, 0.93});
}

Verdict forward_verdict(const VerdictShape& shape, const AttentionChoice& choice) {
  if (shape.device == "cpu") return by_prediction(shape, choice);
  if (choice.implementation == "reference")
    return {"unknown", "the reference runs, which was not measured" + how_to_measure(Part::kForward, shape)};
  return by_measurements(Part::kForward, shape);
}

Verdict step_verdict(const VerdictShape& shape, const AttentionChoice& choice) {
  if (choice.implementation == "reference")
    return {"unknown", "the reference runs, which was not measured" + how_to_measure(Part::kStep, shape)};
  if (shape.device == "cpu" && !choice.is_calibrated)
    return {"unknown", "fp32 rows on AVX-512 alone were measured" + how_to_measure(Part::kStep, shape)};
  return by_measurements(Part::kStep, shape);
}

}  // namespace edgewise::app
