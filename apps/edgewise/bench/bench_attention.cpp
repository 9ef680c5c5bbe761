// edgewise bench attention: attention over given edges, single ones or squares of 16 x 16, against the
// fastest dense scaled_dot_product_attention of the same inputs, in turn in one loop.
#include <edgewise/ops/functional.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cmath>

#include "bench/bench.h"
#include "bench/bench_case.h"
#include "bench/bench_cells.h"
#include "ops/squares/square_attention.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct Arguments {
  std::vector<int64_t> lengths = {1024, 2048}, dims = {32, 64};
  std::vector<double> densities = {0.25, 0.1, 0.01};
  std::vector<std::string> dtypes = {"fp32"};
  int64_t heads = 2, unit = 1;
  double seconds = 0.5;
  bool backward = false, json = false;
};

struct Pair {
  Timing mine, dense;
};

struct Inputs {
  at::Tensor query, key, value, grad;
};

Body over_edges(const Inputs& in, double density, bool backward) {
  const int64_t heads = in.query.size(1), n = in.query.size(2);
  const EdgeSet edges = EdgeSet::from_mask(at::rand({1, heads, n, n}) < density);
  if (!backward)
    return [=] {
      const at::NoGradGuard guard;
      functional::edge_attention(in.query, in.key, in.value, edges);
    };
  return [=] {
    for (const at::Tensor& x : {in.query, in.key, in.value}) x.mutable_grad() = at::Tensor();
    functional::edge_attention(in.query, in.key, in.value, edges).backward(in.grad);
  };
}

Body over_squares(const Inputs& in, double density, bool backward) {
  const int64_t heads = in.query.size(1), n = in.query.size(2), groups = graph::groups_of(n);
  ops::SquareCall call;
  call.query = in.query, call.key = in.key, call.value = in.value;
  call.squares = graph::squares_from_mask({1, heads, n, n}, at::rand({1, heads, groups, groups}) < density);
  call.scale = 1 / std::sqrt(static_cast<double>(in.query.size(3)));
  return [=, grad = in.grad] {
    const at::NoGradGuard guard;
    const ops::SquareForward forward = ops::square_forward(call);
    if (backward) ops::square_backward(call, forward, grad, {});
  };
}

Pair measure_case(const Arguments& arguments, at::ScalarType dtype, int64_t n, int64_t dim, double density) {
  const auto make = [&] { return at::randn({1, arguments.heads, n, dim}).to(dtype); };
  const Inputs in{make(), make(), make(), make()};
  const at::Tensor &q = in.query, &k = in.key, &v = in.value;
  if (arguments.backward)
    for (const at::Tensor& x : {q, k, v}) x.requires_grad_();
  std::vector<Body> bodies = {
      (arguments.unit == graph::kSquare ? over_squares : over_edges)(in, density, arguments.backward)};
  bodies.push_back(dense_attention(q, k, v, arguments.backward));
  // Without bf16 instructions fp32 is the faster dense attention, also for who holds bf16.
  if (dtype == at::kBFloat16)
    bodies.push_back(
        dense_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), arguments.backward));
  const std::vector<Timing> times = measure_together(bodies, arguments.seconds);
  const auto fastest = std::min_element(times.begin() + 1, times.end(), [](const Timing& a, const Timing& b) {
    return a.median_ms < b.median_ms;
  });
  return {times[0], *fastest};
}

int run(const Arguments& arguments) {
  CaseReport report(arguments.json);
  std::vector<Cell> cells;
  for (const std::string& dtype : arguments.dtypes)
    for (const int64_t dim : arguments.dims)
      for (const int64_t n : arguments.lengths)
        for (const double density : arguments.densities)
          cells.push_back(case_cell(report, {dtype, dim, n, density}, [=, &arguments] {
            const Pair result = measure_case(arguments, bench_dtype(dtype), n, dim, density);
            const std::string unit = arguments.unit == 1 ? "" : ", unit " + std::to_string(arguments.unit);
            return BenchCase{(arguments.backward ? "forward+backward" : "forward") + unit,
                             n,
                             dim,
                             density,
                             dtype,
                             result.mine,
                             result.dense};
          }));
  measure_cells("bench attention", cells, [&] { report.print(); });
  return 0;
}

}  // namespace

void add_bench_attention(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      bench.add_subcommand("attention", "Attention over given random edges, against dense attention");
  command->add_option("--n", arguments->lengths, "sequence lengths")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--dim", arguments->dims, "head dims")->capture_default_str()->check(whole_number(1));
  command->add_option("--unit", arguments->unit, "edges come one by one (1) or in squares of 16 x 16 (16)")
      ->capture_default_str()
      ->check(one_of({"1", "16"}));
  command->add_option("--density", arguments->densities, "edge densities")
      ->capture_default_str()
      ->check(number_between(0, 1));
  command->add_option("--dtype", arguments->dtypes, "fp32, fp64, bf16")
      ->capture_default_str()
      ->check(one_of({"fp32", "fp64", "bf16"}));
  command->add_option("--heads", arguments->heads, "heads")->capture_default_str()->check(whole_number(1));
  command->add_option("--seconds", arguments->seconds, "time per measurement")
      ->capture_default_str()
      ->check(number_above(0));
  command->add_flag("--backward", arguments->backward, "forward and backward");
  add_cpu_device(*command);
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
