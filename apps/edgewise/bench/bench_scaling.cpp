// edgewise bench scaling: sampling, attention and the learner's gradients at a fixed number of edges per row,
// or of squares per group, from n to 2n to 4n ... Each length is measured in a process of its own, so that
// its peak memory is its own, and again in every round; the fastest round of each part counts, since what
// else runs on the machine, and in its shared cache, only ever adds.
#include <c10/util/Exception.h>
#include <edgewise/graph/square_lists.h>
#include <edgewise/io/environment.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>
#include <edgewise/train/metrics.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>

#include "bench/bench.h"
#include "bench/bench_case.h"
#include "bench/bench_cells.h"
#include "bench/bench_child.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct Arguments {
  std::vector<int64_t> lengths = {4096, 8192, 16384, 32768, 65536};
  double edges_per_row = 32;
  int64_t clusters = 32, dim = 32, heads = 2, unit = 1;
  std::string device = "cpu", dtype = "fp32";
  double seconds = 1;
  int64_t rounds = 3;
  int64_t dense_up_to = 8192;
  bool json = false;
  int64_t one = 0;  // hidden: measure one length and print the numbers

  bool on_cuda() const { return device == "cuda"; }
  int64_t nodes(int64_t n) const { return unit == 1 ? n : graph::groups_of(n); }  // what is sampled among
};

struct Measured {
  double edges_per_row = 0, sample_ms = 0, forward_ms = 0, both_ms = 0, dense_ms = 0,
         peak_bytes = 0;                                                      // dense_ms 0: not measured
  double backward_ms() const { return std::max(both_ms - forward_ms, 0.0); }  // both: forward and backward
  double total_ms() const { return sample_ms + both_ms; }

  void keep_fastest(const Measured& other) {
    sample_ms = std::min(sample_ms, other.sample_ms);
    forward_ms = std::min(forward_ms, other.forward_ms);
    both_ms = std::min(both_ms, other.both_ms);
    dense_ms = std::min(dense_ms, other.dense_ms);
    peak_bytes = std::max(peak_bytes, other.peak_bytes);
  }
};

// The layer of one length: edges and probes drawn anew for every step.
class Layer {
 public:
  explicit Layer(const Arguments& a, int64_t n)
      : on_cuda_(a.on_cuda()), tokens_{1, a.heads, n, n}, in_squares_(a.unit != 1) {
    const auto options = at::TensorOptions(bench_dtype(a.dtype)).device(a.on_cuda() ? at::kCUDA : at::kCPU);
    const int64_t nodes = a.nodes(n);
    const double largest_p = a.edges_per_row / static_cast<double>(nodes);
    // Memberships around 1/2, as a layer starts, scaled so that a row has edges_per_row edges on average.
    const auto half = [&] { return at::rand({1, a.heads, nodes, a.clusters}) * 0.5 + 0.25; };
    learner_.query_membership = half().to(options).requires_grad_();
    learner_.key_side =
        (half() * (largest_p / (0.25 * static_cast<double>(a.clusters)))).to(options).requires_grad_();
    const auto make = [&] { return at::randn({1, a.heads, n, a.dim}).to(options); };
    query_ = make().requires_grad_(), key_ = make().requires_grad_(), value_ = make().requires_grad_();
    grad_ = make();
    // As the preset edgewise has them.
    learner_.probe_rates = {std::min(0.02, (in_squares_ ? 4.0 : 64.0) / static_cast<double>(nodes))};
    if (on_cuda_ && !in_squares_) sampling_.probe_unit = 16;
  }

  void sample() {
    ++sampling_.random.step;
    edges_ = sample_sbm_edges(learner_.query_membership, learner_.key_side, sampling_);
    learner_.probes = sample_probe_edges(*edges_, learner_.probe_rates, sampling_);
    if (!in_squares_) return;
    edges_ = EdgeSet::from_square_groups(tokens_, *edges_, {});
    learner_.probes = EdgeSet::from_square_groups(tokens_, *learner_.probes, {});
  }
  // The average of a query, or in squares of a group.
  double edges_per_row() const {
    const EdgeSet& edges = in_squares_ ? edges_->square_groups() : *edges_;
    return static_cast<double>(edges.edge_count()) / static_cast<double>(edges.shape().rows());
  }
  void forward() { functional::edge_attention(query_, key_, value_, *edges_, learner_); }
  void both() {
    for (const at::Tensor& x : {query_, key_, value_, learner_.query_membership, learner_.key_side})
      x.mutable_grad() = at::Tensor();
    functional::edge_attention(query_, key_, value_, *edges_, learner_).output.backward(grad_);
  }
  // The transposed edges belong to the step, so every repeat makes them anew.
  void forget_transposed() {
    const auto fresh = [this](const EdgeSet& edges) {
      if (in_squares_) return EdgeSet::from_square_groups(tokens_, edges.square_groups(), {});
      return EdgeSet::from_trusted_csr(edges.shape(), edges.row_offsets(), edges.col_indices());
    };
    edges_ = fresh(*edges_);
    learner_.probes = fresh(*learner_.probes);
  }
  Body dense() const { return dense_attention(query_, key_, value_, true); }

  // What a body takes at best, since parts are differences; a GPU is waited for.
  double time(const Body& body, double seconds) const {
    return measure(
               [&] {
                 body();
                 if (on_cuda_) torch::cuda::synchronize();
               },
               seconds)
        .best_ms;
  }
  // Of one whole step, the first.
  double peak_bytes() {
    const auto step = [&] { sample(), both(); };
    if (on_cuda_) return cuda_peak_bytes(step);
    const int64_t before = io::current_memory_bytes();
    step();
    return static_cast<double>(io::peak_memory_bytes() - before);
  }

 private:
  bool on_cuda_;
  EdgeShape tokens_;
  bool in_squares_;
  at::Tensor query_, key_, value_, grad_;  // [1, H, n, D]
  EdgeLearner learner_;
  SampleOptions sampling_;
  std::optional<EdgeSet> edges_;
};

// Runs in the child process.
int measure_one(const Arguments& a) {
  Layer layer(a, a.one);
  Measured result;
  result.peak_bytes = layer.peak_bytes();  // the repeats below only take time
  result.edges_per_row = layer.edges_per_row();
  result.sample_ms = layer.time([&] { layer.sample(); }, a.seconds);
  if (a.on_cuda()) {
    // Tiles keep what they were turned into, so every repeat draws anew; what that takes is known.
    result.forward_ms = layer.time([&] { layer.sample(), layer.forward(); }, a.seconds) - result.sample_ms;
    result.both_ms = layer.time([&] { layer.sample(), layer.both(); }, a.seconds) - result.sample_ms;
  } else {
    result.forward_ms = layer.time([&] { layer.forward(); }, a.seconds);
    result.both_ms = layer.time([&] { layer.forget_transposed(), layer.both(); }, a.seconds);
  }
  if (a.one <= a.dense_up_to) result.dense_ms = layer.time(layer.dense(), a.seconds);
  std::cout << std::setprecision(17) << result.edges_per_row << " " << result.sample_ms << " "
            << result.forward_ms << " " << result.both_ms << " " << result.dense_ms << " "
            << result.peak_bytes << " " << disturbance() << "\n";
  return 0;
}

Measured measure_in_child(const Arguments& a, int64_t n) {
  std::ostringstream arguments;
  arguments << "bench scaling --one " << n << " --edges-per-row " << a.edges_per_row << " --clusters "
            << a.clusters << " --dim " << a.dim << " --heads " << a.heads << " --seconds " << a.seconds
            << " --dense-up-to " << a.dense_up_to << " --device " << a.device << " --dtype " << a.dtype;
  const std::string what = "bench scaling: the measurement of n = " + std::to_string(n);
  const std::string line = last_line_of_child(arguments.str(), what);
  Measured result;
  double disturbed = 1;
  const int fields =
      std::sscanf(line.c_str(), "%lf %lf %lf %lf %lf %lf %lf", &result.edges_per_row, &result.sample_ms,
                  &result.forward_ms, &result.both_ms, &result.dense_ms, &result.peak_bytes, &disturbed);
  TORCH_CHECK(fields == 7, what, " printed '", line, "'; expected seven numbers");
  note_disturbance(disturbed);
  return result;
}

// Slope of log y over log n by least squares, of the first lengths, those that have a value.
double exponent(const std::vector<int64_t>& lengths, const std::vector<double>& values) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  const double count = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = std::log(static_cast<double>(lengths[i])), y = std::log(std::max(values[i], 1e-9));
    sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  return (count * sxy - sx * sy) / (count * sxx - sx * sx);
}

std::string json_of(const Arguments& a, int64_t n, const Measured& m) {
  train::MetricRecord record = {{"case", std::string("scaling")},
                                {"n", n},
                                {"device", a.device},
                                {"dtype", a.dtype},
                                {"unit", a.unit},
                                {"edges_per_row", m.edges_per_row},
                                {"sample_ms", m.sample_ms},
                                {"forward_ms", m.forward_ms},
                                {"backward_ms", m.backward_ms()},
                                {"peak_bytes", static_cast<int64_t>(m.peak_bytes)}};
  if (m.dense_ms > 0) record.push_back({"dense_ms", m.dense_ms});
  record.push_back({"threads", int64_t{at::get_num_threads()}});
  return train::to_json_line(record);
}

// The lengths that were measured, with what was measured of each.
void print_rows(const Arguments& a, const std::vector<int64_t>& lengths, const std::vector<Measured>& all) {
  Table table({"n", a.unit == 1 ? "edges/row" : "squares/group", "sample ms", "forward ms", "backward ms",
               "total ms", "growth", "peak memory", "growth", "dense fwd+bwd ms"});
  std::vector<double> times, peaks;
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t n = lengths[i];
    const Measured& m = all[i];
    times.push_back(m.total_ms());
    peaks.push_back(m.peak_bytes);
    if (a.json) {
      std::cout << json_of(a, n, m) << std::endl;
      continue;
    }
    const auto growth = [&](const std::vector<double>& values) {
      return i ? fixed(values[i] / values[i - 1], 2) : std::string("-");
    };
    table.add({std::to_string(n), fixed(m.edges_per_row, 1), fixed(m.sample_ms, 1), fixed(m.forward_ms, 1),
               fixed(m.backward_ms(), 1), fixed(m.total_ms(), 1), growth(times), bytes(m.peak_bytes),
               growth(peaks), m.dense_ms > 0 ? fixed(m.dense_ms, 1) : "-"});
  }
  if (a.json) return;
  table.print(std::cout);
  if (all.size() > 1)
    std::cout << "time grows as n^" << fixed(exponent(lengths, times), 2) << ", memory as n^"
              << fixed(exponent(lengths, peaks), 2) << "\n";
}

int run(const Arguments& a) {
  TORCH_CHECK(!a.on_cuda() || torch::cuda::is_available(),
              "bench scaling: expected a CUDA device; found none");
  if (a.one > 0) return measure_one(a);
  // Round after round over all lengths: a slow minute is not the fate of one length alone.
  std::vector<Measured> all;  // of the lengths that had their first round
  std::vector<Cell> cells;
  for (int64_t round = 0; round < a.rounds; ++round)
    for (size_t i = 0; i < a.lengths.size(); ++i)
      cells.push_back(
          {{{"n", std::to_string(a.lengths[i])}, {"round", std::to_string(round + 1)}}, [=, &a, &all] {
             const Measured found = measure_in_child(a, a.lengths[i]);
             return [=, &all] {
               if (round == 0)
                 all.push_back(found);
               else
                 all[i].keep_fastest(found);
             };
           }});
  measure_cells("bench scaling", cells, [&] { print_rows(a, a.lengths, all); });
  return 0;
}

}  // namespace

void add_bench_scaling(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand(
      "scaling", "Cost of a learned layer as n doubles, at a fixed number of edges per row");
  command->add_option("--n", arguments->lengths, "sequence lengths")
      ->capture_default_str()
      ->check(whole_number(1));
  command
      ->add_option("--edges-per-row", arguments->edges_per_row,
                   "average edges per query; in squares, squares per group of 16")
      ->capture_default_str()
      ->check(number_above(0));
  command->add_option("--clusters", arguments->clusters, "clusters C")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--dim", arguments->dim, "head dim")->capture_default_str()->check(whole_number(1));
  command->add_option("--heads", arguments->heads, "heads")->capture_default_str()->check(whole_number(1));
  command->add_option("--unit", arguments->unit, "1: single edges, 16: squares of 16 x 16")
      ->capture_default_str()
      ->check(one_of({"1", "16"}));
  command->add_option("--device", arguments->device, "cpu, cuda")
      ->capture_default_str()
      ->check(one_of({"cpu", "cuda"}));
  command->add_option("--dtype", arguments->dtype, "fp32, bf16")
      ->capture_default_str()
      ->check(one_of({"fp32", "bf16"}));
  command->add_option("--seconds", arguments->seconds, "time per measurement")
      ->capture_default_str()
      ->check(number_above(0));
  command->add_option("--rounds", arguments->rounds, "measurements of every length; the fastest counts")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--dense-up-to", arguments->dense_up_to, "measure dense attention up to this n")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->add_option("--one", arguments->one)->group("");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
