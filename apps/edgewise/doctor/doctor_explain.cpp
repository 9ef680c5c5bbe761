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
#include "graph/checks.h"
#include "ops/attention/kernel_table.h"
#include "table.h"

namespace edgewise::app {
namespace {

// Where there is no GPU, what is said of one is said of an H200.
constexpr int64_t kH200Bytes = int64_t{139} << 30;

struct Drawn {
  int64_t edges = 0;
  double density = 0;  // edges over pairs
};

struct Explained {
  AttentionChoice choice;
  std::optional<Drawn> drawn;  // nothing without the device that would run
};

// What a call of this shape would run, on edges drawn at this density.
Explained on_device(const ExplainArguments& a) {
  const at::Device device(a.device);
  const auto options = at::TensorOptions(bench_dtype(a.dtype)).device(device);
  const at::Tensor rows = at::zeros({1, a.heads, a.n, a.dim}, options);
  // One cluster and constant memberships: every pair has the same probability.
  const EdgeSet edges =
      sample_sbm_edges(at::ones({1, a.heads, a.n, 1}), at::full({1, a.heads, a.n, 1}, a.density)).to(device);
  return {explain_attention(rows, rows, rows, edges),
          Drawn{edges.edge_count(),
                static_cast<double>(edges.edge_count()) / static_cast<double>(edges.shape().pairs())}};
}

// The same without the GPU that would run it: what a call's numbers decide, they decide anywhere.
AttentionChoice on_h200(const ExplainArguments& a) {
  ops::AttentionCall call;
  call.device = at::kCUDA;
  call.device_bytes = kH200Bytes;
  call.shape = {1, a.heads, a.n, a.n};
  graph::check_shape("doctor --explain", call.shape);
  call.dtype = bench_dtype(a.dtype);
  call.head_dim = call.value_dim = a.dim;
  const int64_t pairs = call.shape.pairs();
  call.is_listed = true;
  call.edge_count = a.density == 1 ? pairs : std::llround(a.density * static_cast<double>(pairs));
  call.matmul = float32_matmul();
  return ops::explain_call(call);
}

// Of two digits at least, however few the edges.
std::string percent_of_pairs(double density) {
  if (density == 0) return "0 %";
  return percent(density, std::max(2, 1 - static_cast<int>(std::floor(std::log10(density * 100)))));
}

// Whoever plans for a GPU may ask where there is none.
bool is_elsewhere(const ExplainArguments& a) {
  return a.device == "cuda" && !io::describe_environment().cuda_available;
}

// "runs", why not, or that an earlier kernel takes the call.
std::string answer_in_words(const AttentionChoice& choice, const KernelAnswer& answer) {
  if (!answer.refusal.empty()) return answer.refusal;
  return answer.kernel == choice.implementation ? "runs" : "would run; another comes first";
}

std::string json_of(const ExplainArguments& a, const Explained& found) {
  const AttentionChoice& choice = found.choice;
  train::MetricRecord record = {{"n", a.n},         {"dim", a.dim},
                                {"heads", a.heads}, {"density", a.density},
                                {"dtype", a.dtype}, {"device", a.device}};
  if (found.drawn) record.push_back({"edges", found.drawn->edges});
  record.push_back({"implementation", choice.implementation});
  for (const KernelAnswer& answer : choice.kernels)
    record.push_back({answer.kernel, answer_in_words(choice, answer)});
  if (!choice.cpu_level.empty()) record.push_back({"cpu_level", choice.cpu_level});
  if (!choice.bf16_rows.empty()) record.push_back({"bf16_rows", choice.bf16_rows});
  if (choice.is_calibrated) {
    record.push_back({"gather_ms", choice.gather_ms});
    record.push_back({"dense_ms", choice.dense_ms});
    record.push_back({"break_even_density", choice.break_even_density});
  }
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
  else
    table.add({"device", "no GPU here; as on an H200"});
  table.add({"implementation",
             choice.implementation + (choice.cpu_level.empty() ? "" : " on " + choice.cpu_level)});
  for (const KernelAnswer& answer : choice.kernels)
    table.add({answer.kernel, answer_in_words(choice, answer)});
  if (!choice.bf16_rows.empty()) table.add({"bf16 rows", choice.bf16_rows});
  if (a.device == "cpu" && !choice.is_calibrated)
    table.add({"predicted", "nothing: costs were measured for fp32 rows on AVX-512 alone"});
  if (choice.is_calibrated) {
    table.add({"predicted: gather", fixed(choice.gather_ms, 3) + " ms forward on one core"});
    table.add({"predicted: dense", fixed(choice.dense_ms, 3) +
                                       " ms (torch's attention over all pairs); as fast as gather at " +
                                       percent(choice.break_even_density, 0) + " of the pairs"});
  }
  table.print(std::cout);
}

}  // namespace

int explain(const ExplainArguments& arguments, bool json) {
  const Explained found =
      is_elsewhere(arguments) ? Explained{on_h200(arguments), std::nullopt} : on_device(arguments);
  if (json)
    std::cout << json_of(arguments, found) << "\n";
  else
    print_table(arguments, found);
  return 0;
}

}  // namespace edgewise::app
