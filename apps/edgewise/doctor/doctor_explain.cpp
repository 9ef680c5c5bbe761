#include "doctor/doctor_explain.h"

#include <edgewise/io/environment.h>
#include <edgewise/ops/explain.h>
#include <edgewise/ops/float32_matmul.h>
#include <edgewise/ops/sample.h>
#include <edgewise/train/metrics.h>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "bench/bench_case.h"
#include "doctor/verdict.h"
#include "graph/checks.h"
#include "ops/attention/cuda_choice_shape.h"
#include "table.h"

namespace edgewise::app {
namespace {

struct Drawn {
  int64_t edges = 0;
  double density = 0;  // edges over pairs
};

struct Explained {
  AttentionChoice choice;
  std::optional<Drawn> drawn;  // nothing without the device that would run
  Verdict forward, step;
};

// What a call of this shape would run, on edges drawn at this density.
void try_on_device(const ExplainArguments& a, Explained& result) {
  const at::Device device(a.device);
  const auto options = at::TensorOptions(bench_dtype(a.dtype)).device(device);
  const at::Tensor rows = at::zeros({1, a.heads, a.n, a.dim}, options);
  // One cluster and constant memberships: every pair has the same probability.
  const EdgeSet edges =
      sample_sbm_edges(at::ones({1, a.heads, a.n, 1}), at::full({1, a.heads, a.n, 1}, a.density)).to(device);
  result.choice = explain_attention(rows, rows, rows, edges);
  result.drawn = {edges.edge_count(),
                  static_cast<double>(edges.edge_count()) / static_cast<double>(edges.shape().pairs())};
}

// The same without the GPU that would run it: what shape and dtype decide, they decide anywhere.
AttentionChoice choice_on_h200(const ExplainArguments& a) {
  ops::CudaCall call;
  call.shape = {1, a.heads, a.n, a.n};
  graph::check_shape("doctor --explain", call.shape);
  call.dtype = bench_dtype(a.dtype);
  call.dim = call.value_dim = a.dim;
  const int64_t pairs = call.shape.pairs();
  call.listed_edges = a.density == 1 ? pairs : std::llround(a.density * static_cast<double>(pairs));
  call.known_edges = call.listed_edges;
  call.matmul = float32_matmul();
  const ops::CudaChoice found = ops::choose_without_device(call, kH200Bytes);
  if (found.kernel.empty())
    return {.implementation = "reference", .reason = "no GPU here, but on any: " + found.reason};
  return {.implementation = found.kernel, .reason = "no GPU here; on an H200: " + found.reason};
}

// Of two digits at least, however few the edges.
std::string percent_of_pairs(double density) {
  if (density == 0) return "0 %";
  return percent(density, std::max(2, 1 - static_cast<int>(std::floor(std::log10(density * 100)))));
}

bool has_no_edges(const ExplainArguments& a, const Explained& found) {
  return found.drawn ? found.drawn->edges == 0 : a.density == 0;
}

// Who plans for a GPU may ask where there is none.
Explained explained(const ExplainArguments& a) {
  Explained result;
  if (a.device == "cpu" || io::describe_environment().cuda_available)
    try_on_device(a, result);
  else
    result.choice = choice_on_h200(a);
  if (has_no_edges(a, result)) {
    result.forward = result.step = {"unknown", "there is nothing to compute: no pair is an edge"};
    return result;
  }
  const VerdictShape shape = {a.n, a.dim, a.heads, a.density, a.dtype, a.device, float32_matmul()};
  result.forward = forward_verdict(shape, result.choice);
  result.step = step_verdict(shape, result.choice);
  return result;
}

void add_verdict(train::MetricRecord& record, const std::string& part, const Verdict& verdict) {
  record.push_back({part + "_pays", verdict.pays});
  record.push_back({part + "_why", verdict.why});
  if (verdict.at_least) record.push_back({part + "_at_least", *verdict.at_least});
  if (verdict.at_most) record.push_back({part + "_at_most", *verdict.at_most});
}

std::string json_of(const ExplainArguments& a, const Explained& found) {
  const AttentionChoice& choice = found.choice;
  train::MetricRecord record = {{"n", a.n},         {"dim", a.dim},
                                {"heads", a.heads}, {"density", a.density},
                                {"dtype", a.dtype}, {"device", a.device}};
  if (found.drawn) record.push_back({"edges", found.drawn->edges});
  record.push_back({"implementation", choice.implementation});
  record.push_back({"reason", choice.reason});
  if (!choice.cpu_level.empty()) record.push_back({"cpu_level", choice.cpu_level});
  if (!choice.bf16_rows.empty()) record.push_back({"bf16_rows", choice.bf16_rows});
  if (choice.is_calibrated) {
    record.push_back({"gather_ms", choice.gather_ms});
    record.push_back({"dense_ms", choice.dense_ms});
    record.push_back({"break_even_density", choice.break_even_density});
  }
  if (choice.is_calibrated && choice.heads > 0) {
    record.push_back({"blocks_ms", choice.blocks_ms});
    record.push_back({"gather_backward_ms", choice.gather_backward_ms});
    record.push_back({"blocks_backward_ms", choice.blocks_backward_ms});
  }
  if (choice.heads > 0) {
    record.push_back({"heads_in_blocks", choice.blocks_forward});
    record.push_back({"heads_in_blocks_backward", choice.blocks_backward});
  }
  add_verdict(record, "forward", found.forward);
  add_verdict(record, "step", found.step);
  return train::to_json_line(record);
}

void print_table(const ExplainArguments& a, const Explained& found) {
  const AttentionChoice& choice = found.choice;
  Table table({"what", "value"});
  table.add({"shape", counted(a.heads, "head") + ", n = " + std::to_string(a.n) + ", head dim " +
                          std::to_string(a.dim) + ", " + a.dtype + ", " + a.device});
  if (found.drawn)
    table.add(
        {"edges", std::to_string(found.drawn->edges) + " (" + percent_of_pairs(found.drawn->density) + ")"});
  table.add({"implementation",
             choice.implementation + (choice.cpu_level.empty() ? "" : " on " + choice.cpu_level)});
  table.add({"reason", choice.reason});
  if (!choice.bf16_rows.empty()) table.add({"bf16 rows", choice.bf16_rows});
  if (a.device == "cpu" && !choice.is_calibrated)
    table.add({"predicted", "nothing: costs were measured for fp32 rows on AVX-512 alone"});
  if (choice.is_calibrated) {
    table.add({"predicted: gather", fixed(choice.gather_ms, 3) + " ms forward on one core"});
    table.add({"predicted: dense",
               fixed(choice.dense_ms, 3) + " ms (torch's attention over all pairs)" +
                   (has_no_edges(a, found)
                        ? ""
                        : "; gather is " + fixed(choice.dense_ms / choice.gather_ms, 2) + " times as fast")});
  }
  if (choice.is_calibrated && choice.heads > 0) {
    table.add({"predicted: blocks", fixed(choice.blocks_ms, 3) + " ms (all pairs, edges masked)"});
    table.add({"predicted: backward", fixed(choice.gather_backward_ms, 3) + " ms by gather, " +
                                          fixed(choice.blocks_backward_ms, 3) + " ms in blocks"});
  }
  if (choice.heads > 0)
    table.add({"heads in blocks",
               std::to_string(choice.blocks_forward) + " of " + std::to_string(choice.heads) + " forward, " +
                   std::to_string(choice.blocks_backward) + " backward (without a learner)"});
  table.add({"pays: forward", found.forward.pays + ": " + found.forward.why});
  table.add({"pays: learned step", found.step.pays + ": " + found.step.why});
  table.print(std::cout);
}

}  // namespace

int explain(const ExplainArguments& arguments, bool json) {
  const Explained found = explained(arguments);
  if (json)
    std::cout << json_of(arguments, found) << "\n";
  else
    print_table(arguments, found);
  return 0;
}

}  // namespace edgewise::app
