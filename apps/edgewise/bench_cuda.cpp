// edgewise bench cuda: what a layer costs on a GPU, part by part, as a ratio to the fastest dense
// scaled_dot_product_attention of the same inputs in the same run. With --others also against what one would
// write without these kernels: SDPA with a boolean mask, the published dense SBM path, gather and scatter.
#include <c10/util/Exception.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/cuda.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>

#include "bench.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct Arguments {
  std::vector<int64_t> lengths = {2048, 4096, 8192}, dims = {32, 64}, clusters = {32, 128};
  std::vector<double> densities = {0.25, 0.1, 0.05, 0.02, 0.01};
  int64_t tokens = 262144, heads = 4;  // tokens: B * H * n
  double probe_rate = 0.02;
  int repeats = 20;
  bool others = false, json = false;
};

// Median over five rounds of a queue of calls: the device never waits for the host unless the call itself
// makes it.
double device_ms(int repeats, const Body& body) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> rounds;
  for (int round = 0; round < 6; ++round) {
    torch::cuda::synchronize();
    const auto start = Clock::now();
    for (int n = 0; n < repeats; ++n) body();
    torch::cuda::synchronize();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count() / repeats;
    if (round > 0) rounds.push_back(ms);  // the first one warms up
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

// Inputs of one attention, with gradients wanted.
struct Inputs {
  at::Tensor query, key, value, grad;  // [B, H, n, D]
  at::Tensor membership, key_side;     // [B, H, n, C]

  void drop_gradients() const {
    for (const at::Tensor& x : {query, key, value, membership, key_side})
      if (x.defined()) x.mutable_grad() = at::Tensor();
  }
};

Inputs make_inputs(const Arguments& a, int64_t n, int64_t dim) {
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const int64_t batch = std::max<int64_t>(a.tokens / n / a.heads, 1);
  const auto make = [&] { return at::randn({batch, a.heads, n, dim}, options); };
  Inputs in{make(), make(), make(), make(), {}, {}};
  for (const at::Tensor& x : {in.query, in.key, in.value}) x.requires_grad_();
  return in;
}

// Memberships around 1/2, as a layer starts, and a key side that brings the mean probability to `density`.
void set_memberships(Inputs& in, int64_t clusters, double density) {
  const auto options = at::TensorOptions().device(at::kCUDA);
  const std::vector<int64_t> shape = {in.query.size(0), in.query.size(1), in.query.size(2), clusters};
  in.membership = (at::rand(shape, options) * 0.2 + 0.4).to(at::kBFloat16).requires_grad_();
  in.key_side = ((at::rand(shape, options) * 0.2 + 0.9) * (density / 0.5 / static_cast<double>(clusters)))
                    .to(at::kBFloat16)
                    .requires_grad_();
}

struct Times {
  double forward = 0, both = 0;  // forward alone; forward and backward
  double backward = 0;           // the difference; of several back ends, the smallest of any one
};

// An attention as a function of the inputs' q, k, v.
Times time_attention(const Arguments& a, const Inputs& in, const std::function<at::Tensor()>& attention) {
  Times result;
  result.forward = device_ms(a.repeats, [&] {
    const at::NoGradGuard guard;
    attention();
  });
  result.both = device_ms(a.repeats, [&] {
    in.drop_gradients();
    attention().backward(in.grad);
  });
  result.backward = result.both - result.forward;
  return result;
}

Times time_dense(const Arguments& a, const Inputs& in) {
  at::Context& context = at::globalContext();
  constexpr double kNone = std::numeric_limits<double>::infinity();
  Times best{kNone, kNone, kNone};
  for (const bool cudnn : {true, false}) {
    context.setSDPUseCuDNN(cudnn);
    context.setSDPUseFlash(!cudnn);
    context.setSDPUseMemEfficient(false);
    context.setSDPUseMath(false);
    const Times times =
        time_attention(a, in, [&] { return at::scaled_dot_product_attention(in.query, in.key, in.value); });
    best.forward = std::min(best.forward, times.forward);
    best.both = std::min(best.both, times.both);
    best.backward = std::min(best.backward, times.backward);
  }
  context.setSDPUseCuDNN(true);
  context.setSDPUseFlash(true);
  context.setSDPUseMemEfficient(true);
  context.setSDPUseMath(true);
  return best;
}

// The published training path: every probability, a full mask, a dense masked softmax, straight-through.
at::Tensor published_attention(const Inputs& in) {
  const at::Tensor p = in.membership.matmul(in.key_side.transpose(2, 3)).clamp(0.01, 0.99);
  const at::Tensor graph = (at::rand_like(p) < p).to(p.scalar_type());
  const at::Tensor straight = graph + p - p.detach();
  const at::Tensor scores =
      in.query.matmul(in.key.transpose(2, 3)) / std::sqrt(static_cast<double>(in.query.size(3)));
  const at::Tensor weights = at::softmax(scores.masked_fill(graph == 0, -1e9), 3) * straight;
  return weights.matmul(in.value);
}

// One gathered row per edge, sums by scatter: the way of graph libraries.
at::Tensor scattered_attention(const Inputs& in, const at::Tensor& rows, const at::Tensor& columns) {
  const int64_t dim = in.query.size(3), count = in.query.numel() / dim;
  const auto flat = [&](const at::Tensor& x) { return x.reshape({count, dim}); };
  const at::Tensor scores =
      (flat(in.query).index_select(0, rows) * flat(in.key).index_select(0, columns)).sum(1).to(at::kFloat) /
      std::sqrt(static_cast<double>(dim));
  const at::Tensor top =
      at::full({count}, -1e30, scores.options()).scatter_reduce(0, rows, scores.detach(), "amax", true);
  const at::Tensor weights = (scores - top.index_select(0, rows)).exp();
  const at::Tensor totals = at::zeros({count}, scores.options()).index_add(0, rows, weights);
  const at::Tensor share = (weights / totals.index_select(0, rows)).to(in.value.scalar_type()).unsqueeze(1);
  return at::zeros({count, dim}, in.value.options())
      .index_add(0, rows, share * flat(in.value).index_select(0, columns))
      .view(in.query.sizes());
}

class Report {
 public:
  explicit Report(bool json)
      : json_(json),
        table_({"case", "n", "dim", "clusters", "density", "edgewise ms", "dense ms", "ratio"}) {}

  void add(const std::string& name, int64_t n, int64_t dim, int64_t clusters, double density, double ms,
           double dense_ms) {
    if (json_) {
      std::cout << "{\"case\": \"" << name << "\", \"n\": " << n << ", \"dim\": " << dim
                << ", \"clusters\": " << clusters << ", \"density\": " << density
                << ", \"dtype\": \"bf16\", \"edgewise_ms\": " << ms << ", \"dense_ms\": " << dense_ms
                << ", \"ratio\": " << ms / dense_ms << "}" << std::endl;
      return;
    }
    table_.add({name, std::to_string(n), std::to_string(dim), clusters ? std::to_string(clusters) : "-",
                percent(density, 1), fixed(ms, 3), fixed(dense_ms, 3), fixed(ms / dense_ms, 2)});
  }
  void print() const {
    if (!json_) table_.print(std::cout);
  }

 private:
  bool json_;
  Table table_;
};

void measure_density(const Arguments& a, Inputs& in, const Times& dense, double density, Report& report) {
  const int64_t n = in.query.size(2), dim = in.query.size(3);
  bool first = true;
  for (const int64_t clusters : a.clusters) {
    set_memberships(in, clusters, density);
    SampleOptions sampling;
    EdgeCredit credit;
    credit.query_membership = in.membership;
    credit.key_side = in.key_side;
    credit.probe_rates.assign(static_cast<size_t>(in.query.size(0)), a.probe_rate);
    const auto sample = [&] {
      const at::NoGradGuard guard;
      ++sampling.random.step;
      return sample_sbm_edges(in.membership, in.key_side, sampling);
    };
    const EdgeSet edges = sample();
    const auto add = [&](const char* name, int64_t c, double ms, double dense_ms) {
      report.add(name, n, dim, c, density, ms, dense_ms);
    };
    const auto plain = [&] { return functional::edge_attention(in.query, in.key, in.value, edges); };
    const Times given = time_attention(a, in, plain);
    if (first) {
      add("forward, edges given", 0, given.forward, dense.forward);
      add("backward, edges given", 0, given.backward, dense.backward);
    }
    add("sampling + forward", clusters,
        device_ms(a.repeats,
                  [&] {
                    const at::NoGradGuard guard;
                    functional::edge_attention(in.query, in.key, in.value, sample());
                  }),
        dense.forward);
    credit.probes = sample_probe_edges(edges, credit.probe_rates, sampling);
    const Times learned = time_attention(
        a, in, [&] { return functional::edge_attention(in.query, in.key, in.value, edges, credit).output; });
    add("backward with memberships and probes", clusters, learned.both - given.forward, dense.backward);
    add("training step", clusters,
        device_ms(
            a.repeats,
            [&] {
              in.drop_gradients();
              const EdgeSet fresh = sample();
              credit.probes = sample_probe_edges(fresh, credit.probe_rates, sampling);
              functional::edge_attention(in.query, in.key, in.value, fresh, credit).output.backward(in.grad);
            }),
        dense.both);
    if (a.others && first) {
      Arguments few = a;
      few.repeats = 3;
      const at::Tensor mask = edges.to_mask();
      const Times masked = time_attention(
          few, in, [&] { return at::scaled_dot_product_attention(in.query, in.key, in.value, mask); });
      add("SDPA with a boolean mask, forward", 0, masked.forward, dense.forward);
      add("SDPA with a boolean mask, backward", 0, masked.backward, dense.backward);
      if (density <= 0.05) {
        const at::Tensor flat = mask.flatten(0, 1).nonzero();  // head, row, column
        const at::Tensor head = flat.select(1, 0) * n, rows = head + flat.select(1, 1),
                         columns = head + flat.select(1, 2);
        const Times scattered =
            time_attention(few, in, [&] { return scattered_attention(in, rows, columns); });
        add("gather and scatter, forward and backward", 0, scattered.both, dense.both);
      }
    }
    if (a.others)
      add("published path, training step", clusters,
          device_ms(3,
                    [&] {
                      in.drop_gradients();
                      published_attention(in).backward(in.grad);
                    }),
          dense.both);
    first = false;
  }
}

int run(const Arguments& a) {
  TORCH_CHECK(torch::cuda::is_available(), "bench cuda: expected a CUDA device; found none");
  Report report(a.json);
  for (const int64_t dim : a.dims)
    for (const int64_t n : a.lengths) {
      Inputs in = make_inputs(a, n, dim);
      const Times dense = time_dense(a, in);
      for (const double density : a.densities) measure_density(a, in, dense, density, report);
    }
  report.print();
  return 0;
}

}  // namespace

void add_bench_cuda(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      bench.add_subcommand("cuda", "The parts of a learned layer on a GPU, against dense attention, bf16");
  command->add_option("--n", arguments->lengths, "sequence lengths")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--dim", arguments->dims, "head dims")->capture_default_str()->check(whole_number(1));
  command->add_option("--clusters", arguments->clusters, "clusters C")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--density", arguments->densities, "edge densities")
      ->capture_default_str()
      ->check(number_above(0));
  command->add_option("--tokens", arguments->tokens, "items x heads x length")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--heads", arguments->heads, "heads")->capture_default_str()->check(whole_number(1));
  command->add_option("--probe-rate", arguments->probe_rate, "share of the absent pairs that is probed")
      ->capture_default_str()
      ->check(number_above(0));
  command->add_option("--repeats", arguments->repeats, "calls per round, of six rounds")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_flag("--others", arguments->others,
                    "also boolean masks, the published path, gather and scatter");
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
