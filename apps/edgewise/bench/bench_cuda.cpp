// edgewise bench cuda: what a layer costs on a GPU, part by part, as a ratio to the fastest dense
// scaled_dot_product_attention of the same inputs in the same run. With --others also against what one would
// write without these kernels: SDPA with a boolean mask, the published dense SBM path, gather and scatter.
#include <c10/util/Exception.h>
#include <edgewise/ops/float32_matmul.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <optional>

#include "bench/bench.h"
#include "bench/bench_case.h"
#include "bench/bench_cells.h"
#include "bench/bench_cuda_report.h"
#include "bench/bench_squares.h"
#include "bench/device_timing.h"
#include "bench/published_path.h"
#include "graph/edge_plan.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct Arguments {
  std::vector<int64_t> lengths = {2048, 4096, 8192}, dims = {32, 64}, clusters = {32, 128};
  std::vector<double> densities = {0.25, 0.1, 0.05, 0.02, 0.01};
  int64_t tokens = 262144, heads = 4;  // tokens: B * H * n
  double probe_rate = 0.02;
  int64_t probe_unit = 16;
  int64_t unit = 1;  // 16: squares that are given, no learner
  double dropout = 0;
  std::string dtype = "bf16";
  bool allow_tf32 = false;  // of fp32
  int repeats = 20;
  bool graph = false;
  bool others = false, json = false;
  int64_t blocks = 0;       // also masks of blocks of this size on the diagonal
  int64_t long_tokens = 0;  // instead: one long sequence, so many edges a row
  int64_t row_edges = 32;
  std::string plot;  // SVG file
  std::string from;  // rows of earlier runs, instead of measuring

  // What the rows of this run are called.
  std::string row(const std::string& part) const {
    std::string name = dropout > 0 ? part + ", dropout" : part;
    if (dtype == "fp32") name += ", fp32 " + std::string(to_string(float32_matmul()));
    return name;
  }
  DeviceTiming timing() const { return {repeats, graph}; }
};

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
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(bench_dtype(a.dtype));
  const int64_t batch = std::max<int64_t>(a.tokens / n / a.heads, 1);
  const auto make = [&] { return at::randn({batch, a.heads, n, dim}, options); };
  Inputs in{make(), make(), make(), make(), {}, {}};
  for (const at::Tensor& x : {in.query, in.key, in.value}) x.requires_grad_();
  return in;
}

// Memberships around 1/2, as a layer starts, and a key side that brings the mean probability to `density`.
void set_memberships(Inputs& in, int64_t clusters, double density) {
  const auto options = at::TensorOptions().device(at::kCUDA);
  const at::ScalarType dtype = in.query.scalar_type();
  const std::vector<int64_t> shape = {in.query.size(0), in.query.size(1), in.query.size(2), clusters};
  in.membership = (at::rand(shape, options) * 0.2 + 0.4).to(dtype).requires_grad_();
  in.key_side = ((at::rand(shape, options) * 0.2 + 0.9) * (density / 0.5 / static_cast<double>(clusters)))
                    .to(dtype)
                    .requires_grad_();
}

struct Times {
  double forward = 0, both = 0;  // forward alone; forward and backward
  double backward = 0;           // the difference; of several back ends, the smallest of any one
};

// An attention as a function of the inputs' q, k, v.
Times time_attention(const DeviceTiming& timing, const Inputs& in,
                     const std::function<at::Tensor()>& attention) {
  Times result;
  result.forward = device_ms(timing, [&] {
    const at::NoGradGuard guard;
    attention();
  });
  result.both = device_ms(timing, [&] {
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
  // In fp32 there are only the memory-efficient kernel and plain products, which follow torch's TF32 switch.
  const bool fp32 = in.query.scalar_type() == at::kFloat;
  for (const bool first : {true, false}) {
    context.setSDPUseCuDNN(!fp32 && first);
    context.setSDPUseFlash(!fp32 && !first);
    context.setSDPUseMemEfficient(fp32 && first);
    context.setSDPUseMath(fp32 && !first);
    const Times times = time_attention(a.timing(), in, [&] {
      return at::scaled_dot_product_attention(in.query, in.key, in.value, {}, a.dropout);
    });
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

// What a cell of the benchmark found.
struct Rows {
  std::vector<CudaRow> times;
  std::vector<MemoryRow> memory;
};

// Edges as blocks on the diagonal: most tiles are empty.
void measure_blocks(const Arguments& a, const Inputs& in, const Times& dense, Rows& found) {
  const int64_t n = in.query.size(2), size = std::min(a.blocks, n), items = in.query.size(0);
  const auto int_options = at::TensorOptions().dtype(at::kInt).device(at::kCUDA);
  const at::Tensor first = at::arange(n, int_options).div(size, "floor") * size;
  const at::Tensor degrees = (first + size).clamp_max(n) - first;
  const at::Tensor columns =
      at::arange(n, int_options)
          .view({1, n})
          .expand({n, n})
          .masked_select(
              at::arange(n, int_options)
                  .view({1, n})
                  .ge(first.view({n, 1}))
                  .logical_and(at::arange(n, int_options).view({1, n}).lt((first + degrees).view({n, 1}))));
  const int64_t heads = items * a.heads;
  at::Tensor offsets = at::zeros({heads * n + 1}, int_options.dtype(at::kLong));
  offsets.narrow(0, 1, heads * n).copy_(at::cumsum(degrees.repeat({heads}), 0, at::kLong));
  const EdgeSet edges = EdgeSet::from_trusted_csr({items, a.heads, n, n}, offsets, columns.repeat({heads}));
  const Times times = time_attention(
      a.timing(), in, [&] { return functional::edge_attention(in.query, in.key, in.value, edges); });
  const double density = static_cast<double>(size) / static_cast<double>(n);
  found.times.push_back({a.row("forward, blocks on the diagonal"), n, in.query.size(3), 0, density,
                         times.forward, dense.forward, a.dtype, a.graph});
  found.times.push_back({a.row("backward, blocks on the diagonal"), n, in.query.size(3), 0, density,
                         times.backward, dense.backward, a.dtype, a.graph});
}

// A call over squares, which are still to be set.
ops::SquareCall square_call(const Arguments& a, const Inputs& in) {
  ops::SquareCall call;
  call.query = in.query.detach(), call.key = in.key.detach(), call.value = in.value.detach();
  call.scale = 1 / std::sqrt(static_cast<double>(in.query.size(3)));
  call.dropout_p = a.dropout;
  if (a.dropout > 0)
    call.head_keys = at::arange(in.query.size(0) * in.query.size(1),
                                at::TensorOptions().dtype(at::kLong).device(at::kCUDA));
  return call;
}

// One long sequence with a few random edges a row, or squares a group of 16 rows, where no dense attention is
// measured beside it.
int run_long(const Arguments& a) {
  const int64_t n = a.long_tokens, heads = 1, dim = a.dims.front();
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(bench_dtype(a.dtype));
  const auto make = [&] { return at::randn({1, heads, n, dim}, options); };
  Inputs in{make(), make(), make(), make(), {}, {}};
  for (const at::Tensor& x : {in.query, in.key, in.value}) x.requires_grad_();
  if (a.unit == graph::kSquare) {
    ops::SquareCall call = square_call(a, in);
    call.squares = spread_squares(n, a.row_edges, at::kCUDA);
    for (const SquareTime& time : time_given_squares(a.timing(), call, in.grad))
      std::cout << "{\"case\": \"long sequence, " << time.name << "\", \"n\": " << n
                << ", \"heads\": " << heads << ", \"dim\": " << dim
                << ", \"squares_per_group\": " << a.row_edges << ", \"dtype\": \"" << a.dtype
                << "\", \"graph\": " << (a.graph ? 1 : 0) << ", \"ms\": " << time.ms << "}" << std::endl;
    return 0;
  }
  // Column r of row i is somewhere in the r-th of `row_edges` equal parts: sorted and unique by construction.
  const auto int_options = at::TensorOptions().dtype(at::kLong).device(at::kCUDA);
  const int64_t part = n / a.row_edges;
  const at::Tensor columns = at::randint(part, {n, a.row_edges}, int_options) +
                             at::arange(a.row_edges, int_options).view({1, -1}) * part;
  const EdgeSet edges = EdgeSet::from_trusted_csr(
      {1, heads, n, n}, at::arange(n + 1, int_options) * a.row_edges, columns.to(at::kInt).reshape(-1));
  graph::EdgePlan::of(edges).transposed();  // kept with the edges
  const Times times = time_attention(
      a.timing(), in, [&] { return functional::edge_attention(in.query, in.key, in.value, edges); });
  const double count = static_cast<double>(n * a.row_edges);
  std::cout << "{\"case\": \"long sequence\", \"n\": " << n << ", \"heads\": " << heads
            << ", \"dim\": " << dim << ", \"edges_per_row\": " << a.row_edges << ", \"dtype\": \"" << a.dtype
            << "\", \"graph\": " << (a.graph ? 1 : 0) << ", \"forward_ms\": " << times.forward
            << ", \"forward_and_backward_ms\": " << times.both
            << ", \"edges_per_second\": " << count / times.both * 1e3 << "}" << std::endl;
  return 0;
}

void measure_density(const Arguments& a, Inputs& in, const Times& dense, double density, Rows& found) {
  const int64_t n = in.query.size(2), dim = in.query.size(3);
  const DeviceTiming timing = a.timing();
  bool first = true;
  for (const int64_t clusters : a.clusters) {
    set_memberships(in, clusters, density);
    SampleOptions sampling;
    sampling.probe_unit = a.probe_unit;
    EdgeLearner learner;
    learner.query_membership = in.membership;
    learner.key_side = in.key_side;
    learner.probe_rates.assign(static_cast<size_t>(in.query.size(0)), a.probe_rate);
    const auto sample = [&] {
      const at::NoGradGuard guard;
      ++sampling.random.step;
      return sample_sbm_edges(in.membership, in.key_side, sampling);
    };
    functional::EdgeAttentionOptions options;
    options.dropout_p = a.dropout;
    const EdgeSet edges = sample();
    const auto add = [&](const std::string& name, int64_t c, double ms, double dense_ms) {
      found.times.push_back({a.row(name), n, dim, c, density, ms, dense_ms, a.dtype, a.graph});
    };
    const auto add_other = [&](const std::string& name, int64_t c, double ms, double dense_ms) {
      add(name, c, ms, dense_ms);
      found.times.back().graph = false;
    };
    const auto plain = [&] { return functional::edge_attention(in.query, in.key, in.value, edges, options); };
    const Times given = time_attention(timing, in, plain);
    if (first) {
      add("forward, edges given", 0, given.forward, dense.forward);
      add("backward, edges given", 0, given.backward, dense.backward);
    }
    add("sampling + forward", clusters,
        device_ms(timing,
                  [&] {
                    const at::NoGradGuard guard;
                    functional::edge_attention(in.query, in.key, in.value, sample(), options);
                  }),
        dense.forward);
    learner.probes = sample_probe_edges(edges, learner.probe_rates, sampling);
    const Times learned = time_attention(timing, in, [&] {
      return functional::edge_attention(in.query, in.key, in.value, edges, learner, options).output;
    });
    add("backward with memberships and probes", clusters, learned.both - given.forward, dense.backward);
    const auto step = [&] {
      in.drop_gradients();
      const EdgeSet fresh = sample();
      learner.probes = sample_probe_edges(fresh, learner.probe_rates, sampling);
      ++options.random.step;
      functional::edge_attention(in.query, in.key, in.value, fresh, learner, options)
          .output.backward(in.grad);
    };
    add("training step", clusters, device_ms(timing, step), dense.both);
    const DeviceTiming few{3, /*graph=*/false};  // they take long
    if (a.others && first) {
      const at::Tensor mask = edges.to_mask();
      const Times masked = time_attention(
          few, in, [&] { return at::scaled_dot_product_attention(in.query, in.key, in.value, mask); });
      add_other("SDPA with a boolean mask, forward", 0, masked.forward, dense.forward);
      add_other("SDPA with a boolean mask, backward", 0, masked.backward, dense.backward);
      if (density <= 0.05) {
        const at::Tensor flat = mask.flatten(0, 1).nonzero();  // head, row, column
        const at::Tensor head = flat.select(1, 0) * n, rows = head + flat.select(1, 1),
                         columns = head + flat.select(1, 2);
        const Times scattered =
            time_attention(few, in, [&] { return scattered_attention(in, rows, columns); });
        add_other("gather and scatter, forward and backward", 0, scattered.both, dense.both);
      }
    }
    if (a.others) {
      const auto published_step = [&] {
        in.drop_gradients();
        published_attention({in.query, in.key, in.value, in.membership, in.key_side}).backward(in.grad);
      };
      add_other("published path, training step", clusters, device_ms(few, published_step), dense.both);
      in.drop_gradients();
      learner.probes.reset();  // of the last step
      const double mine = cuda_peak_bytes(step);
      in.drop_gradients();
      found.memory.push_back({n, dim, clusters, density, mine, cuda_peak_bytes(published_step)});
    }
    first = false;
  }
}

void measure_squares(const Arguments& a, const Inputs& in, const Times& dense, double density, Rows& found) {
  const int64_t n = in.query.size(2), dim = in.query.size(3);
  for (const SquareTime& time : time_squares(a.timing(), square_call(a, in), in.grad, density))
    found.times.push_back({a.row(time.name), n, dim, 0, density, time.ms,
                           time.backward ? dense.both : dense.forward, a.dtype, a.graph});
  for (const int64_t clusters : a.clusters) {
    const SquareTime time = time_learned_squares(a.timing(), square_call(a, in), in.grad, clusters, density);
    found.times.push_back(
        {a.row(time.name), n, dim, clusters, density, time.ms, dense.both, a.dtype, a.graph});
  }
}

int run(const Arguments& a) {
  if (!a.from.empty()) {
    CudaReport report(a.json);
    report.read(a.from);
    report.print();
    if (!a.plot.empty()) report.plot(a.plot);
    return 0;
  }
  TORCH_CHECK(torch::cuda::is_available(), "bench cuda: expected a CUDA device; found none");
  at::globalContext().setFloat32MatmulPrecision(a.allow_tf32 ? "high" : "highest");
  if (a.long_tokens > 0) return run_long(a);
  CudaReport report(a.json);
  std::optional<Inputs> in;  // of the head dim and length that the next cells share, and dense over them
  Times dense;
  std::vector<Cell> cells;
  for (const int64_t dim : a.dims)
    for (const int64_t n : a.lengths) {
      const auto add_cell = [&](const std::string& what, const std::string& value, bool first,
                                const auto& measure) {
        cells.push_back({{{"dim", std::to_string(dim)}, {"n", std::to_string(n)}, {what, value}},
                         [=, &a, &in, &dense, &report] {
                           if (first) {
                             in.reset();  // before others take its place
                             in = make_inputs(a, n, dim);
                             dense = time_dense(a, *in);
                           }
                           Rows found;
                           measure(found);
                           return [found = std::move(found), &report] {
                             for (const CudaRow& row : found.times) report.add(row);
                             for (const MemoryRow& row : found.memory) report.add_memory(row);
                           };
                         }});
      };
      for (const double density : a.densities)
        add_cell("density", percent(density, 2), density == a.densities.front(),
                 [=, &a, &in, &dense](Rows& found) {
                   a.unit == graph::kSquare ? measure_squares(a, *in, dense, density, found)
                                            : measure_density(a, *in, dense, density, found);
                 });
      if (a.blocks > 0)
        add_cell("blocks", std::to_string(a.blocks), a.densities.empty(),
                 [&a, &in, &dense](Rows& found) { measure_blocks(a, *in, dense, found); });
    }
  measure_cells("bench cuda", cells, [&] { report.print(); });
  if (!a.plot.empty()) report.plot(a.plot);
  return 0;
}

}  // namespace

void add_bench_cuda(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      bench.add_subcommand("cuda", "The parts of a learned layer on a GPU, against dense attention");
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
  command
      ->add_option("--probe-unit", arguments->probe_unit,
                   "probes one by one (1) or in squares of 16 queries and keys (16)")
      ->capture_default_str()
      ->check(one_of({"1", "16"}));
  command->add_option("--unit", arguments->unit, "single edges (1), or squares of 16 x 16 (16)")
      ->capture_default_str()
      ->check(one_of({"1", "16"}));
  command->add_option("--dtype", arguments->dtype, "bf16 or fp32")
      ->capture_default_str()
      ->check(one_of({"bf16", "fp32"}));
  command->add_flag("--allow-tf32", arguments->allow_tf32,
                    "with fp32: torch's TF32 switch on, for dense attention and for ours");
  command->add_option("--dropout", arguments->dropout, "dropout on the attention weights, dense ones too")
      ->capture_default_str()
      ->check(number_between(0, 0.9));
  command->add_option("--repeats", arguments->repeats, "calls per round, of six rounds")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_flag(
      "--graph", arguments->graph,
      "calls recorded once and replayed as CUDA graphs, dense ones too (not those of --others)");
  command->add_flag("--others", arguments->others,
                    "also boolean masks, the published path, gather and scatter");
  command->add_option("--blocks", arguments->blocks, "also edges in blocks of this size on the diagonal")
      ->check(whole_number(1));
  command
      ->add_option("--long", arguments->long_tokens,
                   "instead: one sequence of this length, random edges, forward and backward")
      ->check(whole_number(64));
  command
      ->add_option("--row-edges", arguments->row_edges,
                   "with --long: edges a row, or squares a group of 16 rows")
      ->capture_default_str()
      ->check(whole_number(1));
  CLI::Option* const from =
      command->add_option("--from", arguments->from, "instead: the lines that --json wrote, from a file")
          ->check(CLI::ExistingFile);
  for (const char* measured : {"--n", "--dim", "--clusters", "--density", "--others", "--long", "--graph"})
    from->excludes(measured);
  command->add_option("--plot", arguments->plot, "an SVG file: time over density and over length");
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
