#include "doctor/verdict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <utility>

#include "ops/attention/cuda_choice_shape.h"
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

// A GPU wants work for all of its cores: what was measured of many heads says nothing of a few.
constexpr int64_t kManyTokens = 262144;  // x heads

// results/h200/bench.jsonl
std::vector<MeasuredPoint> bf16_points(Part part, bool narrow) {
  if (part == Part::kForward)
    return narrow ? on_gpu({0.85, 0.85, 0.85, 0.56, 0.40}, {0.83, 0.83, 0.84, 0.51, 0.35},
                           {0.82, 0.82, 0.82, 0.48, 0.32})
                  : on_gpu({1.09, 1.09, 1.09, 0.80, 0.61}, {1.04, 1.05, 1.04, 0.71, 0.51},
                           {1.02, 1.03, 1.02, 0.67, 0.47});
  return narrow ? on_gpu({1.63, 1.63, 1.60, 1.19, 0.93}, {1.54, 1.54, 1.48, 1.00, 0.76},
                         {1.48, 1.48, 1.42, 0.91, 0.65})
                : on_gpu({1.93, 1.93, 1.92, 1.49, 1.17}, {1.87, 1.86, 1.87, 1.31, 0.98},
                         {1.71, 1.70, 1.71, 1.13, 0.81});
}

// results/h200/fp32.jsonl: n = 4096 alone, ratios at 25, 10, 5 and 1 %; `ieee` at 10 and 1 % only.
std::vector<MeasuredPoint> fp32_points(Part part, bool narrow, Float32Matmul matmul) {
  const auto at = [](std::array<double, 4> ratios) {
    constexpr std::array<double, 4> kDensities = {0.25, 0.1, 0.05, 0.01};
    std::vector<MeasuredPoint> points;
    for (size_t i = 0; i < ratios.size(); ++i)
      if (ratios[i] > 0) points.push_back({4096, kDensities[i], 1 / ratios[i]});
    return points;
  };
  const bool forward = part == Part::kForward;
  switch (matmul) {
    case Float32Matmul::kTf32x3:
      if (forward) return narrow ? at({0.346, 0.342, 0.345, 0.0726}) : at({0.588, 0.596, 0.483, 0.109});
      return narrow ? at({0.636, 0.635, 0.632, 0.420}) : at({1.012, 1.015, 1.066, 0.469});
    case Float32Matmul::kTf32:
      if (forward) return narrow ? at({0.179, 0.172, 0.171, 0.0727}) : at({0.256, 0.253, 0.254, 0.108});
      return narrow ? at({0.398, 0.398, 0.397, 0.484}) : at({0.610, 0.609, 0.604, 0.616});
    case Float32Matmul::kIeee:
      break;
  }
  if (forward) return narrow ? at({0, 0.573, 0, 0.0724}) : at({0, 0.930, 0, 0.108});
  return narrow ? at({0, 1.471, 0, 0.415}) : at({0, 1.778, 0, 0.466});
}

Measurements gpu_measurements(Part part, const VerdictShape& shape) {
  const bool narrow = shape.dim == 32;
  // results/h200/scaling.jsonl: 32 edges a row; the second length in lists.
  if (shape.heads == 1 && part == Part::kStep && shape.dtype == "bf16" && narrow)
    return {"on an H200 with one head", {{16384, 32.0 / 16384, 0.93}, {65536, 32.0 / 65536, 4.33}}};
  const std::string where = "on an H200 with 262,144 tokens x heads";
  if (shape.dtype == "bf16")
    return {where + ", edges in bit tiles", bf16_points(part, narrow), kManyTokens, true};
  if (shape.dtype == "fp32")
    return {where + ", " + std::string(to_string(shape.matmul)) + " products, edges in bit tiles",
            fp32_points(part, narrow, shape.matmul), kManyTokens, true};
  return {};
}

double tokens_of(const VerdictShape& shape) {
  return static_cast<double>(shape.n) * static_cast<double>(shape.heads);
}
double pairs_of(const VerdictShape& shape) {
  return tokens_of(shape) * static_cast<double>(shape.n);
}

bool is_too_small_for_gpu(const VerdictShape& shape) {
  return shape.device == "cuda" && tokens_of(shape) < kManyTokens / 2.0;
}

// What a forward pass cannot do without: query, key, value and output, and edges in the smaller of their
// forms.
double least_bytes(const VerdictShape& shape) {
  const double element = shape.dtype == "fp64" ? 8 : shape.dtype == "fp32" ? 4 : 2;
  const double lists = 4 * shape.density * pairs_of(shape) + 8 * tokens_of(shape);
  return 4 * element * tokens_of(shape) * static_cast<double>(shape.dim) +
         std::min(pairs_of(shape) / 8, lists);
}

// `bench` also runs dense attention over all pairs, hundreds of times, and what belongs to a step: beyond
// these it would take hours or run out of memory.
bool bench_can_run(const VerdictShape& shape, bool by_reference) {
  if (shape.device == "cpu") return pairs_of(shape) <= 0x1.0p36;
  const double bytes = least_bytes(shape) + (by_reference ? 8 * pairs_of(shape) : 0);
  return pairs_of(shape) <= 0x1.0p39 && 4 * bytes <= static_cast<double>(kH200Bytes);
}

// Only this machine can tell the rest.
std::string how_to_measure(Part part, const VerdictShape& shape, bool by_reference = false) {
  if (shape.dtype == "fp64" && (part == Part::kStep || shape.device == "cuda")) return "";
  if (!bench_can_run(shape, by_reference)) return "";
  const char* const on_cpu = part == Part::kStep ? "step" : "attention";
  std::ostringstream text;
  text << "; measure it: edgewise bench " << (shape.device == "cuda" ? "cuda" : on_cpu) << " --n " << shape.n
       << " --dim " << shape.dim << " --density " << shape.density << " --dtype " << shape.dtype
       << " --heads " << shape.heads;
  if (is_too_small_for_gpu(shape)) text << " --tokens " << shape.n * shape.heads;
  if (shape.device == "cuda") text << " --graph";
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
  // Nearer than two runs of one benchmark are.
  constexpr double kEven = 0.02;
  if (bounds.at_least && *bounds.at_least >= 1 - kEven && bounds.at_most && *bounds.at_most <= 1 + kEven)
    return "even";
  return "unknown";
}

std::pair<int64_t, int64_t> lengths_of(const std::vector<MeasuredPoint>& points) {
  const auto [first, last] = std::minmax_element(
      points.begin(), points.end(), [](const auto& one, const auto& other) { return one.n < other.n; });
  return {first->n, last->n};
}
std::string lengths_in_words(const std::vector<MeasuredPoint>& points) {
  const auto [shortest, longest] = lengths_of(points);
  return "n = " + std::to_string(shortest) + (shortest < longest ? " to " + std::to_string(longest) : "");
}

// As drawn, edges are never quite as many as were asked for.
bool is_about(double value, double measured) {
  return std::abs(value - measured) <= 0.05 * measured;
}

const MeasuredPoint* measured_at(const std::vector<MeasuredPoint>& points, const VerdictShape& shape) {
  const auto found = std::find_if(points.begin(), points.end(), [&](const MeasuredPoint& point) {
    return point.n == shape.n && is_about(shape.density, point.density);
  });
  return found == points.end() ? nullptr : &*found;
}

// So many times the longest length that was measured nothing is said of any more.
constexpr int64_t kLengthsBeyond = 4;

// More edges cost more, and on a GPU a longer sequence gains more, so that the nearest points bound a shape
// that was not measured, unless it is far longer. One length speaks for itself alone: on a CPU, where caches
// are against long sequences, and in fp32.
Verdict bounds_of(const std::vector<MeasuredPoint>& points, const VerdictShape& shape) {
  if (points.empty()) return {};
  if (const MeasuredPoint* point = measured_at(points, shape))
    return {.pays = "", .why = "", .at_least = point->speedup, .at_most = point->speedup};
  const auto [shortest, longest] = lengths_of(points);
  const MeasuredPoint *slower = nullptr, *faster = nullptr;
  for (const MeasuredPoint& point : points) {
    if (shortest == longest && point.n != shape.n) continue;
    if (point.n <= shape.n && shape.n <= kLengthsBeyond * longest && point.density >= shape.density)
      if (!slower || std::pair(point.n, -point.density) > std::pair(slower->n, -slower->density))
        slower = &point;
    if (point.n >= shape.n && point.density <= shape.density)
      if (!faster || std::pair(point.n, -point.density) < std::pair(faster->n, -faster->density))
        faster = &point;
  }
  Verdict result;
  if (slower) result.at_least = slower->speedup;
  if (faster) result.at_most = faster->speedup;
  // Where density makes no difference, noise does.
  if (slower && faster && *result.at_least > *result.at_most) std::swap(result.at_least, result.at_most);
  return result;
}

// Whether the sampler on an H200 draws lists: the rule of cuda_samples_lists (docs/kernels/cuda-lists.md),
// with 64 probes a row.
bool has_lists(const VerdictShape& shape) {
  const double bytes = pairs_of(shape) / 8, probes = 64 / static_cast<double>(shape.n);
  const bool is_float = shape.dtype == "fp32";
  if (bytes > 0x1.0p34 || (is_float && bytes >= static_cast<double>(ops::kLargestFloatTiles))) return true;
  return bytes > 0x1.0p28 && 320 * (shape.density + probes) < (is_float ? 3.5 : 1.0);
}

// Why what was measured of edges in tiles is not what would run; empty when it is.
std::string other_kernels(const VerdictShape& shape) {
  const EdgeShape edges = {1, shape.heads, shape.n, shape.n};
  if (!ops::heads_fit(edges)) return "bit tiles take at most 65,535 items x heads: other kernels run";
  if (has_lists(shape))
    return "a GPU's sampler draws lists of edges here, for other kernels than were measured "
           "(docs/kernels/cuda-lists.md)";
  // From 6 % on there are no windows anyway.
  if (shape.dtype == "bf16" && shape.density < 0.06 && !ops::windows_fit(edges, kH200Bytes))
    return "windows, which were measured, do not fit into an H200 (docs/kernels/cuda-windows.md)";
  return "";
}

std::string not_measured(const Measurements& measured, const VerdictShape& shape) {
  const auto lengths = lengths_of(measured.points);
  if (lengths.first != lengths.second || lengths.first == shape.n) return "no such shape was measured";
  return "this length was not measured (" + lengths_in_words(measured.points) + " was: docs/performance.md)";
}

Verdict by_measurements(Part part, const VerdictShape& shape) {
  const Measurements measured = measurements(part, shape);
  if (measured.points.empty()) return {"unknown", "no such shape was measured" + how_to_measure(part, shape)};
  if (measured.tokens > 0 && is_too_small_for_gpu(shape))
    return {"unknown", "262,144 tokens x heads were measured on an H200; these are " +
                           std::to_string(shape.n * shape.heads) +
                           ", too few to keep a GPU as busy (--heads counts those of all items of a batch)" +
                           how_to_measure(part, shape)};
  if (measured.in_tiles)
    if (const std::string others = other_kernels(shape); !others.empty())
      return {"unknown", others + how_to_measure(part, shape)};
  Verdict result = bounds_of(measured.points, shape);
  result.pays = pays(result);
  const bool same_work =
      measured.tokens == 0 || is_about(tokens_of(shape), static_cast<double>(measured.tokens));
  const std::string found = in_words(result), lengths = lengths_in_words(measured.points);
  if (found.empty())
    result.why = not_measured(measured, shape);
  else
    result.why = found + (part == Part::kStep ? " with 32 clusters, " : ", ") +
                 (measured_at(measured.points, shape) && same_work
                      ? "measured " + measured.where
                      : "expected from " + lengths + " as measured " + measured.where);
  if (result.pays == "unknown") result.why += how_to_measure(part, shape);
  return result;
}

// What can be said on a GPU before anything measured is looked at.
std::optional<Verdict> without_measurements(Part part, const VerdictShape& shape,
                                            const AttentionChoice& choice) {
  if (shape.device != "cuda") return std::nullopt;
  if (const double bytes_needed = least_bytes(shape); bytes_needed > static_cast<double>(kH200Bytes))
    return Verdict{"unknown", "query, key, value, output and edges alone take " + bytes(bytes_needed) +
                                  ": an H200 has " + bytes(static_cast<double>(kH200Bytes)) +
                                  "; lower --n, --heads or --density"};
  if (choice.implementation == "reference")
    return Verdict{"unknown",
                   "the reference runs, which was not measured" + how_to_measure(part, shape, true)};
  return std::nullopt;
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

Measurements measurements(Part part, const VerdictShape& shape) {
  if (shape.dim != 32 && shape.dim != 64) return {};
  if (shape.device == "cuda") return gpu_measurements(part, shape);
  if (part != Part::kStep || shape.dtype != "fp32") return {};
  // results/cpu/attention.txt
  const std::string where = "on two cores with AVX-512";
  if (shape.dim == 32) return {where, {{2048, 0.25, 0.66}, {2048, 0.1, 1.33}, {2048, 0.01, 3.49}}};
  return {where, {{2048, 0.25, 0.92}, {2048, 0.1, 1.72}, {2048, 0.01, 4.98}}};
}

Verdict forward_verdict(const VerdictShape& shape, const AttentionChoice& choice) {
  if (shape.device == "cpu") return by_prediction(shape, choice);
  if (const auto verdict = without_measurements(Part::kForward, shape, choice)) return *verdict;
  return by_measurements(Part::kForward, shape);
}

Verdict step_verdict(const VerdictShape& shape, const AttentionChoice& choice) {
  if (const auto verdict = without_measurements(Part::kStep, shape, choice)) return *verdict;
  if (shape.device == "cpu" && !choice.is_calibrated)
    return {"unknown", "fp32 rows on AVX-512 alone were measured" + how_to_measure(Part::kStep, shape)};
  return by_measurements(Part::kStep, shape);
}

}  // namespace edgewise::app
