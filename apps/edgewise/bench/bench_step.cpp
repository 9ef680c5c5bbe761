// edgewise bench step: what one learned layer adds to a training step (sampling edges and probes, attention,
// the gradients of queries, keys, values and memberships) against dense attention forward and backward.
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <algorithm>

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
  int64_t heads = 2, clusters = 32, probes = 64;
  double seconds = 0.5;
  bool json = false;
};

BenchCase measure_case(const Arguments& a, const std::string& dtype, int64_t n, int64_t dim, double density) {
  const auto make = [&] { return at::randn({1, a.heads, n, dim}).to(bench_dtype(dtype)); };
  const at::Tensor q = make().requires_grad_(), k = make().requires_grad_(), v = make().requires_grad_(),
                   grad = make();
  // Memberships around 1/2, as a layer starts, scaled to the density.
  const at::Tensor membership = (at::rand({1, a.heads, n, a.clusters}) * 0.5 + 0.25).requires_grad_();
  at::Tensor side = at::rand({1, a.heads, n, a.clusters}) * 0.5 + 0.25;
  side = (side * (density / (0.25 * static_cast<double>(a.clusters)))).requires_grad_();
  EdgeLearner learner;
  learner.query_membership = membership;
  learner.key_side = side;
  learner.probe_rates = {std::min(0.02, static_cast<double>(a.probes) / static_cast<double>(n))};
  SampleOptions sampling;
  std::vector<Body> bodies;
  bodies.push_back([&] {
    for (const at::Tensor& x : {q, k, v, membership, side}) x.mutable_grad() = at::Tensor();
    ++sampling.random.step;
    const EdgeSet edges = sample_sbm_edges(membership.detach(), side.detach(), sampling);
    if (a.probes > 0) learner.probes = sample_probe_edges(edges, learner.probe_rates, sampling);
    functional::edge_attention(q, k, v, edges, learner).output.backward(grad);
  });
  bodies.push_back(dense_attention(q, k, v, true));
  if (bench_dtype(dtype) == at::kBFloat16)  // fp32 may be the faster dense attention here
    bodies.push_back(dense_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), true));
  const std::vector<Timing> times = measure_together(bodies, a.seconds);
  const auto fastest = std::min_element(times.begin() + 1, times.end(), [](const Timing& x, const Timing& y) {
    return x.median_ms < y.median_ms;
  });
  return {"step", n, dim, density, dtype, times[0], *fastest};
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
  command->add_option("--probes", arguments->probes, "probe edges per row, at most 2 % of them; 0 = none")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_option("--seconds", arguments->seconds, "time per measurement")
      ->capture_default_str()
      ->check(number_above(0));
  add_cpu_device(*command);
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
