// edgewise bench attention: edge_attention with given edges against dense scaled_dot_product_attention.
#include <c10/util/Exception.h>
#include <edgewise/ops/functional.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <iostream>

#include "bench.h"
#include "table.h"

namespace edgewise::app {
namespace {

struct Arguments {
  std::vector<int64_t> lengths = {1024, 2048}, dims = {32, 64};
  std::vector<double> densities = {0.25, 0.1, 0.01};
  std::vector<std::string> dtypes = {"fp32"};
  int64_t heads = 2;
  double seconds = 0.5;
  bool backward = false, json = false;
};

at::ScalarType dtype_of(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "fp64") return at::kDouble;
  if (name == "bf16") return at::kBFloat16;
  TORCH_CHECK_VALUE(false, "bench: expected dtype fp32, fp64 or bf16; got '", name, "'");
}

int run(const Arguments& arguments) {
  for (const std::string& dtype : arguments.dtypes) dtype_of(dtype);  // before anything is measured
  const std::string which = arguments.backward ? "forward+backward" : "forward";
  Table table({"case", "n", "dim", "density", "dtype", "edgewise ms", "dense ms", "speedup", "spread"});
  for (const std::string& dtype_name : arguments.dtypes)
    for (const int64_t dim : arguments.dims)
      for (const int64_t n : arguments.lengths) {
        const at::ScalarType dtype = dtype_of(dtype_name);
        const auto make = [&] { return at::randn({1, arguments.heads, n, dim}).to(dtype); };
        const at::Tensor q = make(), k = make(), v = make(), grad = make();
        const Timing dense = measure_dense(q, k, v, arguments.backward, arguments.seconds);
        for (const double density : arguments.densities) {
          const EdgeSet edges = EdgeSet::from_mask(at::rand({1, arguments.heads, n, n}) < density);
          edges.transposed();  // part of the edges as given, like their CSR
          Timing mine;
          if (arguments.backward) {
            q.requires_grad_(), k.requires_grad_(), v.requires_grad_();
            mine = measure(
                [&] {
                  for (const at::Tensor& x : {q, k, v}) x.mutable_grad() = at::Tensor();
                  functional::edge_attention(q, k, v, edges).backward(grad);
                },
                arguments.seconds);
          } else {
            const at::NoGradGuard guard;
            mine = measure([&] { functional::edge_attention(q, k, v, edges); }, arguments.seconds);
          }
          const double speedup = dense.median_ms / mine.median_ms;
          if (arguments.json)
            std::cout << "{\"case\": \"" << which << "\", \"n\": " << n << ", \"dim\": " << dim
                      << ", \"density\": " << density << ", \"dtype\": \"" << dtype_name
                      << "\", \"edgewise_ms\": " << mine.median_ms << ", \"dense_ms\": " << dense.median_ms
                      << ", \"speedup\": " << speedup << ", \"threads\": " << at::get_num_threads()
                      << ", \"spread\": " << mine.spread << "}" << std::endl;
          table.add({which, std::to_string(n), std::to_string(dim), percent(density, 1), dtype_name,
                     fixed(mine.median_ms, 3), fixed(dense.median_ms, 3), fixed(speedup, 2),
                     percent(mine.spread, 0)});
        }
      }
  if (!arguments.json) table.print(std::cout);
  return 0;
}

}  // namespace

void add_bench_attention(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      bench.add_subcommand("attention", "Attention over given random edges, against dense attention");
  command->add_option("--n", arguments->lengths, "sequence lengths")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--dim", arguments->dims, "head dims")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--density", arguments->densities, "edge densities")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--dtype", arguments->dtypes, "fp32, fp64, bf16")->capture_default_str();
  command->add_option("--heads", arguments->heads, "heads")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--seconds", arguments->seconds, "time per measurement")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--backward", arguments->backward, "forward and backward");
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
