// edgewise bench sample: the samplers side by side, on four kinds of memberships, beside what each was
// predicted to take. "fastrg" is row-wise fastRG, with an alias table or by rejection, whichever is cheaper
// for a cluster; "direct" computes every probability: the two that others are compared with. With --dim the
// edges are also attended over, and sampling + attention is set against dense attention.
#include <c10/util/Exception.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>
#include <edgewise/ops/sampler_costs.h>
#include <edgewise/train/metrics.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>

#include "bench/bench.h"
#include "bench/bench_cells.h"
#include "table.h"
#include "usage.h"
#include "validators.h"

namespace edgewise::app {
namespace {

const std::vector<std::string> kModels = {"near-uniform", "degrees", "noisy", "sharp"};
const std::vector<std::string> kSamplers = {"auto", "squeezed", "thinning", "fastrg", "direct"};

struct Arguments {
  std::vector<int64_t> lengths = {2048};
  std::vector<double> densities = {0.25, 0.1, 0.04, 0.01};
  std::vector<std::string> models = kModels;
  std::vector<std::string> samplers = kSamplers;
  std::string law = "bernoulli";
  int64_t clusters = 128, heads = 2, dim = 0, direct_up_to = 2048;
  double seconds = 1, valid = 1, exploration = 0;
  bool json = false;
};

// Memberships of one side [1, H, n, C] before scaling: sigmoids of logits, as a layer makes them.
at::Tensor membership(const std::string& model, const Arguments& a, int64_t n) {
  const at::Tensor noise = at::randn({1, a.heads, n, a.clusters});
  if (model == "near-uniform") return (noise * 0.1).sigmoid();  // where training starts
  if (model == "degrees") return (noise * 0.1 + at::randn({1, a.heads, n, 1})).sigmoid();
  if (model == "noisy") return (noise * 0.5 + at::randn({1, a.heads, n, 1}) * 0.5).sigmoid();
  if (model == "sharp") {  // sixteen groups, each with its own clusters
    const at::Tensor group = at::randint(16, {1, a.heads, n, 1}, at::kLong);
    const at::Tensor of_cluster = at::arange(a.clusters, at::kLong).mul(16).div(a.clusters, "floor");
    return ((group == of_cluster).to(at::kFloat) * 7 - 4 + noise * 0.3).sigmoid();
  }
  TORCH_CHECK_VALUE(false, "bench sample: expected model ", joined(kModels, "or"), "; got '", model, "'");
}

struct Contender {
  std::string name;
  std::function<void()> body;
  std::vector<double> times_ms;

  double quantile(double q) const {
    return times_ms[static_cast<size_t>(q * static_cast<double>(times_ms.size() - 1))];
  }
  double median() const { return quantile(0.5); }
  double spread() const { return (quantile(0.75) - quantile(0.25)) / median(); }
};

// One run of each in turn, until `seconds` per contender have passed: what disturbs one disturbs all. Every
// round begins with another one.
void interleave(std::vector<Contender>& contenders, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto ms = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count() * 1e3;
  };
  for (Contender& each : contenders) each.body();
  const auto start = Clock::now();
  const double budget = seconds * 1e3 * static_cast<double>(contenders.size());
  for (size_t round = 0; round < 5 || ms(start) < budget; ++round)
    for (size_t n = 0; n < contenders.size(); ++n) {
      Contender& each = contenders[(n + round) % contenders.size()];
      const auto begin = Clock::now();
      each.body();
      each.times_ms.push_back(ms(begin));
    }
  for (Contender& each : contenders) std::sort(each.times_ms.begin(), each.times_ms.end());
}

struct Row {
  std::string model;
  int64_t n = 0;
  double density = 0;  // as asked for
  // As drawn, edges over pairs: probabilities end at 1, and exploration adds to them.
  double edge_density = 0;
  double edges_per_row = 0;
  std::string sampler;
  double median_ms = 0, spread = 0, predicted_ms = 0;
  std::optional<double> fastrg_ms, direct_ms;  // where they were measured
  std::optional<double> forward_ms, dense_ms;  // with --dim
};

std::optional<double> over(const std::optional<double>& other, double mine) {
  return other ? std::optional(*other / mine) : std::nullopt;
}

std::optional<double> step_speedup(const Row& row) {
  return row.forward_ms ? over(row.dense_ms, row.median_ms + *row.forward_ms) : std::nullopt;
}

// Memberships of both sides, the keys' scaled so that the mean probability is `density` before it is clamped.
struct Memberships {
  at::Tensor query, key;
};
Memberships scaled_memberships(const std::string& model, const Arguments& a, int64_t n, double density) {
  const at::Tensor query = membership(model, a, n), key = membership(model, a, n);
  const at::Tensor sum = (query.sum(2) * key.sum(2)).sum(2).view({1, a.heads, 1, 1});
  return {query, key * (density * static_cast<double>(n) * static_cast<double>(n) / sum)};
}

int64_t valid_tokens(const Arguments& a, int64_t n) {
  return a.valid < 1 ? static_cast<int64_t>(a.valid * static_cast<double>(n)) : n;
}

SampleOptions sampling_of(const Arguments& a, int64_t n) {
  SampleOptions options;
  options.law = parse_edge_law(a.law);
  options.exploration = a.exploration;
  if (a.valid < 1) options.key_mask = options.query_mask = (at::arange(n) < valid_tokens(a, n)).unsqueeze(0);
  return options;
}

std::vector<std::string> samplers_at(const Arguments& a, int64_t n) {
  std::vector<std::string> names;
  for (const std::string& name : a.samplers)
    if (name != "direct" || n <= a.direct_up_to) names.push_back(name);
  return names;
}

std::vector<Row> measure_cell(const Arguments& a, const std::string& model, int64_t n, double density) {
  const at::NoGradGuard guard;
  const std::vector<std::string> samplers = samplers_at(a, n);
  if (samplers.empty()) return {};
  const auto [query, key] = scaled_memberships(model, a, n, density);
  const SampleOptions options = sampling_of(a, n);
  std::vector<Contender> contenders;
  std::vector<EdgeSet> edges(samplers.size());
  for (size_t s = 0; s < samplers.size(); ++s) {
    SampleOptions mine = options;
    mine.sampler = parse_sampler(samplers[s]);
    contenders.push_back({samplers[s],
                          [&query = query, &key = key, &drawn = edges[s], mine]() mutable {
                            drawn = sample_sbm_edges(query, key, mine);
                            ++mine.random.step;
                          },
                          {}});
  }
  if (a.dim > 0) {
    const auto make = [&] { return at::randn({1, a.heads, n, a.dim}); };
    const at::Tensor q = make(), k = make(), v = make();
    contenders.push_back({"forward", [=, &edges] { functional::edge_attention(q, k, v, edges[0]); }, {}});
    contenders.push_back({"dense", [=] { at::scaled_dot_product_attention(q, k, v); }, {}});
  }
  interleave(contenders, a.seconds);
  const auto median_of = [&](const std::string& name) -> std::optional<double> {
    for (const Contender& each : contenders)
      if (each.name == name) return each.median();
    return std::nullopt;
  };
  // Heads are shared out: predictions are of one core.
  const SamplerCosts costs = predict_sampler_costs(query, key, options);
  const double cores = static_cast<double>(at::get_num_threads());
  const double valid = static_cast<double>(valid_tokens(a, n)), rows = static_cast<double>(a.heads) * valid;
  std::vector<Row> found;
  for (size_t s = 0; s < samplers.size(); ++s) {
    const Contender& each = contenders[s];
    const double count = static_cast<double>(edges[s].edge_count());
    found.push_back({model, n, density, rows > 0 ? count / (rows * valid) : 0, rows > 0 ? count / rows : 0,
                     each.name, each.median(), each.spread(), costs.of(parse_sampler(each.name)) / cores,
                     median_of("fastrg"), median_of("direct"), median_of("forward"), median_of("dense")});
  }
  return found;
}

// Prints JSON at once, collects table rows until print().
class Report {
 public:
  explicit Report(const Arguments& a) : arguments_(a), table_(header(a)) {}

  void add(const Row& row) {
    if (arguments_.json)
      std::cout << json_of(row) << std::endl;
    else
      table_.add(cells_of(row));
  }
  void print() const {
    if (!arguments_.json) table_.print(std::cout);
  }

 private:
  static std::vector<std::string> header(const Arguments& a) {
    std::vector<std::string> names = {"model",     "n",           "density asked", "drawn",
                                      "sampler",   "ms",          "spread",        "predicted",
                                      "edges/row", "over fastrg", "over direct"};
    if (a.dim > 0) names.insert(names.end(), {"forward ms", "dense ms", "dense over sample+forward"});
    return names;
  }

  std::vector<std::string> cells_of(const Row& row) const {
    const auto shown = [](const std::optional<double>& value, int digits) {
      return value ? fixed(*value, digits) : std::string("-");
    };
    std::vector<std::string> cells = {row.model,
                                      std::to_string(row.n),
                                      percent(row.density, 1),
                                      percent(row.edge_density, 1),
                                      row.sampler,
                                      fixed(row.median_ms, 3),
                                      percent(row.spread, 0),
                                      fixed(row.predicted_ms, 3),
                                      fixed(row.edges_per_row, 1),
                                      shown(over(row.fastrg_ms, row.median_ms), 2),
                                      shown(over(row.direct_ms, row.median_ms), 2)};
    if (arguments_.dim > 0)
      cells.insert(cells.end(),
                   {shown(row.forward_ms, 3), shown(row.dense_ms, 3), shown(step_speedup(row), 2)});
    return cells;
  }

  std::string json_of(const Row& row) const {
    train::MetricRecord record = {{"case", std::string("sample")},
                                  {"model", row.model},
                                  {"n", row.n},
                                  {"clusters", arguments_.clusters},
                                  {"heads", arguments_.heads},
                                  {"density", row.density},
                                  {"edge_density", row.edge_density},
                                  {"law", arguments_.law},
                                  {"exploration", arguments_.exploration},
                                  {"valid", arguments_.valid},
                                  {"sampler", row.sampler},
                                  {"edgewise_ms", row.median_ms},
                                  {"spread", row.spread},
                                  {"predicted_ms", row.predicted_ms},
                                  {"edges_per_row", row.edges_per_row}};
    const auto add_measured = [&](const char* name, const std::optional<double>& value) {
      if (value) record.push_back({name, *value});
    };
    add_measured("fastrg_ms", row.fastrg_ms);
    add_measured("direct_ms", row.direct_ms);
    add_measured("speedup", over(row.fastrg_ms, row.median_ms));
    if (arguments_.dim > 0) record.push_back({"dim", arguments_.dim});
    add_measured("forward_ms", row.forward_ms);
    add_measured("dense_ms", row.dense_ms);
    add_measured("step_speedup", step_speedup(row));
    record.push_back({"threads", int64_t{at::get_num_threads()}});
    return train::to_json_line(record);
  }

  const Arguments& arguments_;
  Table table_;
};

int run(const Arguments& a) {
  Report report(a);
  std::vector<Cell> cells;
  for (const std::string& model : a.models)
    for (const int64_t n : a.lengths)
      for (const double density : a.densities)
        cells.push_back({{{"model", model}, {"n", std::to_string(n)}, {"density", percent(density, 1)}},
                         [=, &a, &report] {
                           const std::vector<Row> found = measure_cell(a, model, n, density);
                           return [=, &report] {
                             for (const Row& row : found) report.add(row);
                           };
                         }});
  measure_cells("bench sample", cells, [&] { report.print(); });
  return 0;
}

}  // namespace

void add_bench_sample(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      bench.add_subcommand("sample", "The samplers of SBM edges, against plain fastRG and the direct one");
  command->add_option("--n", arguments->lengths, "sequence lengths")
      ->capture_default_str()
      ->check(whole_number(1));
  command
      ->add_option("--density", arguments->densities, "mean edge probabilities, before they are clamped at 1")
      ->capture_default_str()
      ->check(number_between(0, 1));
  command->add_option("--model", arguments->models, "memberships: near-uniform, degrees, noisy, sharp")
      ->capture_default_str()
      ->check(one_of(kModels));
  command->add_option("--sampler", arguments->samplers, "samplers to measure")
      ->capture_default_str()
      ->check(one_of(kSamplers));
  command->add_option("--law", arguments->law, "bernoulli or poisson")
      ->capture_default_str()
      ->check(one_of({"bernoulli", "poisson"}));
  command->add_option("--clusters", arguments->clusters, "clusters C")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--heads", arguments->heads, "heads")->capture_default_str()->check(whole_number(1));
  command->add_option("--exploration", arguments->exploration, "delta, added to every probability")
      ->capture_default_str()
      ->check(number_between(0, 1));
  command->add_option("--valid", arguments->valid, "share of the tokens that are not padding")
      ->capture_default_str()
      ->check(number_between(0.01, 1));
  command->add_option("--dim", arguments->dim, "head dim: attend over the edges too, against dense attention")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_option("--direct-up-to", arguments->direct_up_to, "measure the direct sampler up to this n")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_option("--seconds", arguments->seconds, "time per contender")
      ->capture_default_str()
      ->check(number_above(0));
  add_cpu_device(*command);
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
