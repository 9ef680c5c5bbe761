// edgewise bench sac: edges chosen by SacEdges or IndexerEdges, one by one and in squares, and attention over
// them, against dense attention of the same inputs in turn in one loop. With the backward pass the choice
// learns as well. And the walk of pairs by the fused kernel against the same walk as a loop of torch's
// operators. Peak memory is that of one pass in a process of its own; on a GPU it is that of its allocator.
#include <c10/util/Exception.h>
#include <edgewise/edges/indexer_edges.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/square_edges.h>
#include <edgewise/io/environment.h>
#include <edgewise/ops/functional.h>
#include <edgewise/train/metrics.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
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
  std::vector<int64_t> lengths = {4096};
  std::vector<std::string> sources = {"sac"}, units = {"1", "16"};
  std::string estimator = "counterfactual";
  int64_t alpha = 8, dim = 64, batch = 1, heads = 1, node_dim = 32;
  int64_t pairs_length = 256;  // 0 = no walk of pairs; CPU only
  std::string device = "cpu",
              dtype = "fp32";  // dtype: of the attention's inputs; the predictor's parameters are fp32
  double seconds = 1;
  bool causal = false, backward = false, json = false;
  std::string peak_of;  // hidden: one pass of this side ("sac", "indexer", "dense"), print the peak

  bool on_cuda() const { return device == "cuda"; }
  const char* pass() const { return backward ? "forward+backward" : "forward"; }
};

struct Inputs {
  at::Tensor query, key, value, grad;  // [B, H, n, D]
  EdgeRequest request;
};

Inputs make_inputs(const Arguments& a, int64_t n) {
  const auto options = at::TensorOptions().device(a.on_cuda() ? at::kCUDA : at::kCPU);
  const auto values = [&] {
    return at::randn({a.batch, a.heads, n, a.dim}, options).to(bench_dtype(a.dtype));
  };
  const auto make = [&] { return values().requires_grad_(a.backward); };
  Inputs in{make(), make(), make(), values(), {}};
  in.request.query = in.query;
  in.request.key = in.key;
  in.request.tokens = at::randn({a.batch, n, a.heads * a.dim}, options);
  in.request.is_causal = a.causal;
  return in;
}

// Who chooses, and in which unit.
struct Chooser {
  std::string source;  // "sac", "indexer"
  std::string unit;    // "1", "16"

  std::string name() const { return (source == "sac" ? "rooted" : source) + ", unit " + unit; }
};

SacEdges sac_edges(const Arguments& a, SacWalk walk) {
  SacEdgesOptions options(a.heads, a.heads * a.dim);
  options.walk = walk;
  options.alpha = a.alpha;
  options.node_dim = a.node_dim;
  // The edges of a walk of pairs have no probability of their own, which effects could teach.
  options.estimator = walk == SacWalk::kPairs ? SacEstimator::kPaired : parse_sac_estimator(a.estimator);
  SacEdges source(options);
  source->to(a.on_cuda() ? at::kCUDA : at::kCPU);
  return source;
}
EdgeSourcePtr make_source(const Arguments& a, const Chooser& chooser) {
  EdgeSourcePtr source;
  if (chooser.source == "sac") {
    source = sac_edges(a, SacWalk::kRooted).ptr();
  } else {
    IndexerEdgesOptions options(a.heads, a.heads * a.dim);
    options.alpha = a.alpha;
    options.estimator = parse_indexer_estimator(a.estimator);
    source = IndexerEdges(options).ptr();
  }
  if (chooser.unit != "1") source = std::make_shared<SquareEdges>(source);
  source->to(a.on_cuda() ? at::kCUDA : at::kCPU);
  return source;
}

// A device works on after its call returns: so many calls are queued before it is waited for.
constexpr int kQueue = 20;
Body finished(const Arguments& a, Body body, int calls = kQueue) {
  if (!a.on_cuda()) return body;
  return [body = std::move(body), calls] {
    for (int n = 0; n < calls; ++n) body();
    torch::cuda::synchronize();
  };
}
std::vector<Timing> measure_calls(const Arguments& a, const std::vector<Body>& bodies) {
  std::vector<Timing> result = measure_together(bodies, a.seconds);
  if (a.on_cuda())
    for (Timing& timing : result) timing.median_ms /= kQueue, timing.best_ms /= kQueue;
  return result;
}

Body selection(const Arguments& a, const EdgeSourcePtr& source, Inputs& in, int calls = kQueue) {
  return finished(
      a,
      [source, &in] {
        const at::NoGradGuard guard;
        ++in.request.random.step;
        source->choose(in.request);
      },
      calls);
}

// Choice and attention; backward through both: the learner's values, and where the estimator is `paired` the
// policy.
Body whole_pass(const Arguments& a, const EdgeSourcePtr& source, Inputs& in) {
  return finished(a, [source, &in, backward = a.backward, paired = a.estimator == "paired"] {
    ++in.request.random.step;
    if (!backward) {
      const at::NoGradGuard guard;
      functional::edge_attention(in.query, in.key, in.value, source->choose(in.request).edges);
      return;
    }
    for (const at::Tensor& x : {in.query, in.key, in.value}) x.mutable_grad() = at::Tensor();
    for (const at::Tensor& x : source->parameters()) x.mutable_grad() = at::Tensor();
    const EdgeChoice choice = source->choose(in.request);
    std::vector<at::Tensor> outputs = {
        choice.learner
            ? functional::edge_attention(in.query, in.key, in.value, choice.edges, *choice.learner).output
            : functional::edge_attention(in.query, in.key, in.value, choice.edges)};
    std::vector<at::Tensor> grads = {in.grad};
    if (paired && choice.policy->log_prob.requires_grad()) {  // alpha of all keys leaves nothing to choose
      outputs.push_back(choice.policy->log_prob);
      grads.push_back(at::ones_like(choice.policy->log_prob));
    }
    torch::autograd::backward(outputs, grads);
  });
}

Body dense(const Arguments& a, const Inputs& in) {
  if (a.on_cuda() && a.dtype == "bf16") {  // cuDNN's, the fastest
    at::Context& context = at::globalContext();
    context.setSDPUseCuDNN(true);
    context.setSDPUseFlash(false);
    context.setSDPUseMemEfficient(false);
    context.setSDPUseMath(false);
  }
  return finished(a, dense_attention(in.query, in.key, in.value, a.backward));
}

// Runs in the child process.
int print_peak(const Arguments& a) {
  Inputs in = make_inputs(a, a.lengths.at(0));
  const Body body =
      a.peak_of == "dense" ? dense(a, in) : whole_pass(a, make_source(a, {a.peak_of, a.units.at(0)}), in);
  const int64_t before = io::current_memory_bytes();
  body();
  std::cout << io::peak_memory_bytes() - before << "\n";
  return 0;
}

double peak_on_cuda(const Arguments& a, int64_t n, const Chooser* of) {
  Inputs in = make_inputs(a, n);
  const Body body = of ? whole_pass(a, make_source(a, *of), in) : dense(a, in);
  body();  // what is made once
  return cuda_peak_bytes(body);
}

// of: null = dense attention.
double peak_bytes(const Arguments& a, int64_t n, const Chooser* of) {
  if (a.on_cuda()) return peak_on_cuda(a, n, of);
  std::ostringstream arguments;
  arguments << "bench sac --peak-of " << (of ? of->source : "dense") << " --unit " << (of ? of->unit : "1")
            << " --n " << n << " --batch " << a.batch << " --dtype " << a.dtype << " --alpha " << a.alpha
            << " --dim " << a.dim << " --heads " << a.heads << " --node-dim " << a.node_dim << " --estimator "
            << a.estimator << (a.causal ? " --causal" : "") << (a.backward ? " --backward" : "");
  const std::string what =
      "bench sac: the memory of n = " + std::to_string(n) + ", " + (of ? of->name() : "dense");
  const std::string line = last_line_of_child(arguments.str(), what);
  double result = 0;
  TORCH_CHECK(std::sscanf(line.c_str(), "%lf", &result) == 1, what, " printed '", line,
              "'; expected a number");
  return result;
}

class Report {
 public:
  explicit Report(bool json)
      : json_(json),
        table_({"case", "n", "alpha", "density", "dim", "selection ms", "edgewise ms", "spread",
                "compared with ms", "ratio", "of the best", "peak memory", "dense's"}) {}

  struct Row {
    std::string name;
    const char* pass;
    int64_t n;
    double density;
    Timing selection, mine, other;
    double peak, other_peak;
  };
  void add(const Arguments& a, const Row& row) {
    const auto memory = [](double count) { return count > 0 ? bytes(count) : std::string("-"); };
    if (json_) {
      train::MetricRecord record = {{"case", row.name},
                                    {"pass", std::string(row.pass)},
                                    {"n", row.n},
                                    {"alpha", a.alpha},
                                    {"dim", a.dim},
                                    {"batch", a.batch},
                                    {"heads", a.heads},
                                    {"density", row.density},
                                    {"dtype", a.dtype},
                                    {"device", a.device},
                                    {"selection_ms", row.selection.median_ms},
                                    {"edgewise_ms", row.mine.median_ms},
                                    {"dense_ms", row.other.median_ms},
                                    {"speedup", row.other.median_ms / row.mine.median_ms},
                                    {"edgewise_best_ms", row.mine.best_ms},
                                    {"dense_best_ms", row.other.best_ms}};
      if (row.peak > 0) record.push_back({"peak_bytes", static_cast<int64_t>(row.peak)});
      if (row.other_peak > 0) record.push_back({"dense_peak_bytes", static_cast<int64_t>(row.other_peak)});
      record.push_back({"threads", int64_t{at::get_num_threads()}});
      std::cout << train::to_json_line(record) << std::endl;
      return;
    }
    table_.add({row.name, std::to_string(row.n), std::to_string(a.alpha), percent(row.density, 2),
                std::to_string(a.dim), fixed(row.selection.median_ms, 3), fixed(row.mine.median_ms, 3),
                percent(row.mine.spread, 0), fixed(row.other.median_ms, 3),
                fixed(row.mine.median_ms / row.other.median_ms, 2),
                fixed(row.mine.best_ms / row.other.best_ms, 2), memory(row.peak), memory(row.other_peak)});
  }
  void print() const {
    if (!json_) table_.print(std::cout);
  }

 private:
  bool json_;
  Table table_;
};

// Edges over the pairs that may be chosen.
double density_of(const Arguments& a, const EdgeSourcePtr& source, const Inputs& in) {
  const at::NoGradGuard guard;
  const EdgeSet edges = source->choose(in.request).edges;
  const EdgeShape& shape = edges.shape();
  const double n = static_cast<double>(shape.queries), pairs = a.causal ? n * (n + 1) / 2 : n * n;
  return static_cast<double>(edges.edge_count()) / (static_cast<double>(shape.batch * shape.heads) * pairs);
}

// dense_peaks: of each length, measured once.
Report::Row measure_source(const Arguments& a, int64_t n, const Chooser& chooser,
                           std::map<int64_t, double>& dense_peaks) {
  if (!dense_peaks.count(n)) dense_peaks[n] = peak_bytes(a, n, nullptr);
  Inputs in = make_inputs(a, n);
  const EdgeSourcePtr source = make_source(a, chooser);
  const double density = density_of(a, source, in);
  const std::vector<Timing> times =
      measure_calls(a, {selection(a, source, in), whole_pass(a, source, in), dense(a, in)});
  return {chooser.name(),   a.pass(), n, density, times[0], times[1], times[2], peak_bytes(a, n, &chooser),
          dense_peaks.at(n)};
}

Report::Row measure_pairs(const Arguments& a) {
  Arguments plain = a;
  plain.backward = false;
  Inputs in = make_inputs(plain, a.pairs_length);
  const SacEdges fused = sac_edges(a, SacWalk::kPairs);
  SacEdges loop = sac_edges(a, SacWalk::kPairs);
  loop->options.fused = false;
  const std::vector<Timing> times =
      measure_together({selection(a, fused.ptr(), in, 1), selection(a, loop.ptr(), in, 1)}, a.seconds, 2);
  return {"pairs fused against a loop of torch ops",
          "selection",
          a.pairs_length,
          density_of(a, fused.ptr(), in),
          times[0],
          times[0],
          times[1],
          0,
          0};
}

int run(const Arguments& a) {
  TORCH_CHECK(!a.on_cuda() || torch::cuda::is_available(), "bench sac: expected a CUDA device; found none");
  if (!a.peak_of.empty()) return print_peak(a);
  Report report(a.json);
  std::vector<Cell> cells;
  std::map<int64_t, double> dense_peaks;
  const auto add = [&](const train::ProgressFields& name, std::function<Report::Row()> measure) {
    cells.push_back({name, [&a, &report, measure = std::move(measure)] {
                       const Report::Row row = measure();
                       return [&a, &report, row] { report.add(a, row); };
                     }});
  };
  for (const int64_t n : a.lengths)
    for (const std::string& source : a.sources)
      for (const std::string& unit : a.units)
        add({{"n", std::to_string(n)}, {"source", source}, {"unit", unit}}, [=, &a, &dense_peaks] {
          return measure_source(a, n, {source, unit}, dense_peaks);
        });
  if (a.pairs_length > 0 && !a.on_cuda())
    add({{"n", std::to_string(a.pairs_length)}, {"walk", "pairs"}}, [&a] { return measure_pairs(a); });
  measure_cells("bench sac", cells, [&] { report.print(); });
  return 0;
}

}  // namespace

void add_bench_sac(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand(
      "sac", "Edges from an LSTM or an indexer and attention over them, against dense attention");
  const auto whole = [&](const char* name, int64_t& value, const char* text, int64_t least) {
    command->add_option(name, value, text)->capture_default_str()->check(whole_number(least));
  };
  command->add_option("--n", arguments->lengths, "sequence lengths")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--source", arguments->sources, "who chooses: sac, indexer")
      ->capture_default_str()
      ->check(one_of({"sac", "indexer"}));
  command->add_option("--unit", arguments->units, "edges one by one (1), in squares of 16 x 16 (16)")
      ->capture_default_str()
      ->check(one_of({"1", "16"}));
  whole("--alpha", arguments->alpha, "edges per query; unit 16: squares per group of queries", 1);
  command->add_option("--estimator", arguments->estimator, "counterfactual, paired")
      ->capture_default_str()
      ->check(one_of({"counterfactual", "paired"}));
  whole("--dim", arguments->dim, "head dim", 1);
  whole("--batch", arguments->batch, "items", 1);
  whole("--heads", arguments->heads, "heads, which share their edges", 1);
  whole("--node-dim", arguments->node_dim, "width of the predictor of sac", 1);
  whole("--pairs-n", arguments->pairs_length, "length of the walk of pairs, on the CPU; 0 = none", 0);
  command->add_option("--device", arguments->device, "cpu, cuda")
      ->capture_default_str()
      ->check(one_of({"cpu", "cuda"}));
  command->add_option("--dtype", arguments->dtype, "of the attention's inputs: fp32, bf16")
      ->capture_default_str()
      ->check(one_of({"fp32", "bf16"}));
  command->add_option("--seconds", arguments->seconds, "time per measurement")
      ->capture_default_str()
      ->check(number_above(0));
  command->add_flag("--causal", arguments->causal, "choose among earlier tokens only");
  command->add_flag("--backward", arguments->backward, "forward and backward");
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->add_option("--peak-of", arguments->peak_of)->group("");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
