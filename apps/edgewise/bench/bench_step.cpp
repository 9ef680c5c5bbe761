// edgewise bench step: what one learned layer adds to a training step against dense attention forward and
// backward. Of single edges: sampling edges and probes, attention, the gradients of queries, keys, values and
// memberships. Of squares everything between projections: means of groups, memberships, block matrix,
// penalty, sampling, attention, and all of their gradients.
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>

#include "bench/bench.h"
#include "bench/bench_case.h"
#include "bench/bench_cells.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct Arguments {
  std::vector<int64_t> lengths = {2048}, dims = {32, 64};
  std::vector<double> densities = {0.25, 0.1, 0.01};
  std::vector<std::string> dtypes = {"fp32"};
  int64_t heads = 2, clusters = 32, unit = 1;
  std::optional<int64_t> probes;
  double seconds = 0.5;
  bool json = false;
};

struct StepInputs {
  at::Tensor query, key, value, grad;  // [1, H, n, D], all but grad leaves
};

Body single_edges_step(const Arguments& a, const StepInputs& in, double density) {
  const int64_t n = in.query.size(2), probes = a.probes.value_or(64);
  // Memberships around 1/2, as a layer starts, scaled to the density.
  const at::Tensor membership = (at::rand({1, a.heads, n, a.clusters}) * 0.5 + 0.25).requires_grad_();
  at::Tensor side = at::rand({1, a.heads, n, a.clusters}) * 0.5 + 0.25;
  side = (side * (density / (0.25 * static_cast<double>(a.clusters)))).requires_grad_();
  EdgeLearner learner;
  learner.query_membership = membership;
  learner.key_side = side;
  learner.probe_rates = {std::min(0.02, static_cast<double>(probes) / static_cast<double>(n))};
  return [=, sampling = SampleOptions()]() mutable {
    for (const at::Tensor& x : {in.query, in.key, in.value, membership, side})
      x.mutable_grad() = at::Tensor();
    ++sampling.random.step;
    const EdgeSet edges = sample_sbm_edges(membership.detach(), side.detach(), sampling);
    if (probes > 0) learner.probes = sample_probe_edges(edges, learner.probe_rates, sampling);
    functional::edge_attention(in.query, in.key, in.value, edges, learner).output.backward(in.grad);
  };
}

// As a layer starts: memberships all about alike, so that squares are spread evenly.
Body squares_step(const Arguments& a, const StepInputs& in, double density) {
  SbmEdgesOptions options(a.heads, in.query.size(3), SbmPreset::kEdgewise, a.unit);
  options.clusters = a.clusters;
  options.initial_density = density;
  if (a.probes) options.probes_per_row = *a.probes;
  if (a.probes == 0) options.probe_rate = 0;
  return [in, source = SbmEdges(options), step = uint64_t{0}]() mutable {
    for (const at::Tensor& x : {in.query, in.key, in.value}) x.mutable_grad() = at::Tensor();
    source->zero_grad();
    EdgeRequest request;
    request.query = in.query, request.key = in.key;
    request.random.step = ++step;
    const EdgeChoice choice = source->choose(request);
    const at::Tensor output =
        functional::edge_attention(in.query, in.key, in.value, choice.edges, *choice.learner).output;
    torch::autograd::backward({output, choice.density_penalty},
                              {in.grad, at::ones_like(choice.density_penalty)});
  };
}

BenchCase measure_case(const Arguments& a, const std::string& dtype, int64_t n, int64_t dim, double density) {
  const auto make = [&] { return at::randn({1, a.heads, n, dim}).to(bench_dtype(dtype)); };
  const StepInputs in{make().requires_grad_(), make().requires_grad_(), make().requires_grad_(), make()};
  const at::Tensor &q = in.query, &k = in.key, &v = in.value;
  std::vector<Body> bodies = {(a.unit == 1 ? single_edges_step : squares_step)(a, in, density)};
  bodies.push_back(dense_attention(q, k, v, true));
  if (bench_dtype(dtype) == at::kBFloat16)  // fp32 may be the faster dense attention here
    bodies.push_back(dense_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), true));
  const std::vector<Timing> times = measure_together(bodies, a.seconds);
  const auto fastest = std::min_element(times.begin() + 1, times.end(), [](const Timing& x, const Timing& y) {
    return x.median_ms < y.median_ms;
  });
  return {a.unit == 1 ? "step" : "step, unit " + std::to_string(a.unit),
          n,
          dim,
          density,
          dtype,
          times[0],
          *fastest};
}

int run(const Arguments& a) {
  CaseReport report(a.json);
  std::vector<Cell> cells;
  for (const std::string& dtype : a.dtypes)
    for (const int64_t dim : a.dims)
      for (const int64_t n : a.lengths)
        for (const double density : a.densities)
          cells.push_back(case_cell(report, {dtype, dim, n, density},
                                    [=, &a] { return measure_case(a, dtype, n, dim, density); }));
  measure_cells("bench step", cells, [&] { report.print(); });
  return 0;
}

}  // namespace

void add_bench_step(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand(
      "step", "One learned layer: sampling, forward and backward, against dense forward and backward");
  command->add_option("--n", arguments->lengths, "sequence lengths")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--dim", arguments->dims, "head dims")->capture_default_str()->check(whole_number(1));
  command->add_option("--density", arguments->densities, "mean edge probabilities")
      ->capture_default_str()
      ->check(number_between(0, 1));
  command->add_option("--dtype", arguments->dtypes, "fp32, bf16")
      ->capture_default_str()
      ->check(one_of({"fp32", "bf16"}));
  command->add_option("--heads", arguments->heads, "heads")->capture_default_str()->check(whole_number(1));
  command->add_option("--clusters", arguments->clusters, "clusters C")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--unit", arguments->unit, "edges come one by one (1) or in squares of 16 x 16 (16)")
      ->capture_default_str()
      ->check(one_of({"1", "16"}));
  command
      ->add_option(
          "--probes", arguments->probes,
          "probe edges per row, at most 2 % of them [64]; in squares, squares per row of groups, at most "
          "5 % [4]; 0 = none")
      ->check(whole_number(0));
  command->add_option("--seconds", arguments->seconds, "time per measurement")
      ->capture_default_str()
      ->check(number_above(0));
  add_cpu_device(*command);
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
