// edgewise bench sample: the samplers side by side, on four kinds of memberships, beside what each was
// predicted to take. "fastrg" is row-wise fastRG, with an alias table or by rejection, whichever is cheaper
// for a cluster; "direct" computes every probability: the two that others are compared with. With --dim the
// edges are also attended over, and sampling + attention is set against dense attention.
#include <c10/util/Exception.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>
#include <edgewise/ops/sampler_costs.h>

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

#include "bench.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct Arguments {
  std::vector<int64_t> lengths = {2048};
  std::vector<double> densities = {0.25, 0.1, 0.04, 0.01};
  std::vector<std::string> models = {"near-uniform", "degrees", "noisy", "sharp"};
  std::vector<std::string> samplers = {"auto", "squeezed", "thinning", "fastrg", "direct"};
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
  TORCH_CHECK_VALUE(false, "bench sample: expected model near-uniform, degrees, noisy or sharp; got '", model,
                    "'");
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

int run(const Arguments& a) {
  const EdgeLaw law = parse_edge_law(a.law);
  for (const std::string& name : a.samplers) parse_sampler(name);  // before anything is measured
  std::vector<std::string> header = {"model",  "n",         "density",   "sampler",     "ms",
                                     "spread", "predicted", "edges/row", "over fastrg", "over direct"};
  if (a.dim > 0) header.insert(header.end(), {"forward ms", "dense ms", "sample+forward over dense"});
  Table table(header);
  const at::NoGradGuard guard;
  for (const std::string& model : a.models)
    for (const int64_t n : a.lengths)
      for (const double density : a.densities) {
        const at::Tensor query = membership(model, a, n);
        at::Tensor key = membership(model, a, n);
        const at::Tensor sum = (query.sum(2) * key.sum(2)).sum(2).view({1, a.heads, 1, 1});
        key = key * (density * static_cast<double>(n * n) / sum);
        SampleOptions options;
        options.law = law;
        options.exploration = a.exploration;
        if (a.valid < 1)
          options.key_mask = options.query_mask =
              (at::arange(n) < static_cast<int64_t>(a.valid * static_cast<double>(n))).unsqueeze(0);
        std::vector<Contender> contenders;
        std::vector<EdgeSet> edges(a.samplers.size());
        for (size_t s = 0; s < a.samplers.size(); ++s) {
          if (a.samplers[s] == "direct" && n > a.direct_up_to) continue;
          contenders.push_back({a.samplers[s],
                                [&, s, step = uint64_t{0}]() mutable {
                                  SampleOptions mine = options;
                                  mine.sampler = parse_sampler(a.samplers[s]);
                                  mine.random.step = step++;
                                  edges[s] = sample_sbm_edges(query, key, mine);
                                },
                                {}});
        }
        const size_t samplers = contenders.size();
        // Heads are shared out: predictions are of one core.
        const SamplerCosts costs = predict_sampler_costs(query, key, options);
        const double cores = static_cast<double>(at::get_num_threads());
        at::Tensor q, k, v;
        if (a.dim > 0) {
          q = at::randn({1, a.heads, n, a.dim}), k = at::randn({1, a.heads, n, a.dim}),
          v = at::randn({1, a.heads, n, a.dim});
          contenders.push_back({"forward", [&] { functional::edge_attention(q, k, v, edges[0]); }, {}});
          contenders.push_back({"dense", [&] { at::scaled_dot_product_attention(q, k, v); }, {}});
        }
        interleave(contenders, a.seconds);
        const auto median_of = [&](const std::string& name) {
          for (const Contender& each : contenders)
            if (each.name == name) return each.median();
          return 0.0;
        };
        const double fastrg = median_of("fastrg"), direct = median_of("direct"),
                     forward = median_of("forward"), dense = median_of("dense");
        for (size_t s = 0; s < samplers; ++s) {
          const Contender& each = contenders[s];
          const double predicted = costs.of(parse_sampler(each.name)) / cores;
          const double mean_degree =
              static_cast<double>(edges[s].edge_count()) / static_cast<double>(a.heads * n) / a.valid;
          if (a.json) {
            std::cout << "{\"case\": \"sample\", \"model\": \"" << model << "\", \"n\": " << n
                      << ", \"clusters\": " << a.clusters << ", \"heads\": " << a.heads
                      << ", \"density\": " << density << ", \"law\": \"" << a.law
                      << "\", \"valid\": " << a.valid << ", \"sampler\": \"" << each.name
                      << "\", \"edgewise_ms\": " << each.median() << ", \"spread\": " << each.spread()
                      << ", \"predicted_ms\": " << predicted << ", \"edges_per_row\": " << mean_degree
                      << ", \"fastrg_ms\": " << fastrg << ", \"direct_ms\": " << direct
                      << ", \"speedup\": " << (fastrg > 0 ? fastrg / each.median() : 0);
            if (a.dim > 0)
              std::cout << ", \"dim\": " << a.dim << ", \"forward_ms\": " << forward
                        << ", \"dense_ms\": " << dense
                        << ", \"step_speedup\": " << dense / (each.median() + forward);
            std::cout << ", \"threads\": " << at::get_num_threads() << "}" << std::endl;
            continue;
          }
          const auto ratio = [&](double other) {
            return other > 0 ? fixed(other / each.median(), 2) : std::string("-");
          };
          std::vector<std::string> row = {model,
                                          std::to_string(n),
                                          percent(density, 1),
                                          each.name,
                                          fixed(each.median(), 3),
                                          percent(each.spread(), 0),
                                          fixed(predicted, 3),
                                          fixed(mean_degree, 1),
                                          ratio(fastrg),
                                          ratio(direct)};
          if (a.dim > 0) {
            row.push_back(fixed(forward, 3));
            row.push_back(fixed(dense, 3));
            row.push_back(fixed(dense / (each.median() + forward), 2));
          }
          table.add(row);
        }
      }
  if (!a.json) table.print(std::cout);
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
  command->add_option("--density", arguments->densities, "mean edge probabilities")
      ->capture_default_str()
      ->check(number_between(0, 1));
  command->add_option("--model", arguments->models, "memberships: near-uniform, degrees, noisy, sharp")
      ->capture_default_str();
  command->add_option("--sampler", arguments->samplers, "samplers to measure")->capture_default_str();
  command->add_option("--law", arguments->law, "bernoulli or poisson")->capture_default_str();
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
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
