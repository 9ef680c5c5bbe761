// edgewise doctor: what was found on this machine, and which implementation will run.
#include <edgewise/io/environment.h>
#include <edgewise/ops/cpu_level.h>
#include <edgewise/ops/explain.h>
#include <edgewise/ops/float32_matmul.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cstdio>
#include <iostream>
#include <utility>

#include "bench_case.h"
#include "command.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

// Runs every op once on a small input and compares it with the reference.
std::string self_test() {
  const EdgeSet edges = sample_sbm_edges(at::rand({1, 2, 32, 4}), at::rand({1, 2, 32, 4}) / 4);
  const at::Tensor q = at::randn({1, 2, 32, 16}), k = at::randn({1, 2, 32, 16}),
                   v = at::randn({1, 2, 32, 16});
  functional::EdgeAttentionOptions reference;
  reference.backend = functional::Backend::kReference;
  const double error =
      (functional::edge_attention(q, k, v, edges) - functional::edge_attention(q, k, v, edges, reference))
          .abs()
          .max()
          .item<double>();
  char shown[32];
  std::snprintf(shown, sizeof shown, "%.1e", error);
  return error < 1e-5 ? "ok (largest difference to the reference " + std::string(shown) + ")"
                      : "FAILED: differs from the reference by " + std::string(shown);
}

int run(bool json) {
  io::Environment environment = io::describe_environment();
  const std::string best_level = std::exchange(environment.cpu_level, cpu_level());
  if (json) {
    std::cout << io::to_json(environment);
    return 0;
  }
  const std::string test = self_test();
  Table table({"what", "found"});
  table.add({"edgewise", environment.edgewise_version + " (" + environment.git_commit + ")"});
  table.add({"torch", environment.torch_version});
  table.add({"compiler", environment.compiler});
  table.add({"CPU", environment.cpu_model});
  table.add({"CPU level",
             environment.cpu_level + " (this CPU has " + best_level + "; EDGEWISE_CPU_LEVEL chooses)"});
  table.add({"threads", std::to_string(environment.threads)});
  std::string devices;
  for (const std::string& device : environment.cuda_devices)
    devices += (devices.empty() ? "" : ", ") + device;
  table.add({"CUDA", environment.cuda_available ? devices : "not available"});
  table.add({"edge_attention on CPU",
             "kernel: fp32 and bf16 on the CPU level, fp64 portable (--explain for a shape)"});
  const std::string kernels = EDGEWISE_HAS_CUDA ? "kernels for compute capability 9.0; the rest in plain ATen"
                                                : "in plain ATen: this build has no CUDA kernels";
  table.add({"edge_attention on CUDA", kernels});
  table.add({"float32 on CUDA", std::string(to_string(float32_matmul())) + " products (" +
                                    float32_matmul_reason() + "; EDGEWISE_FLOAT32_MATMUL chooses)"});
  table.add({"sampler on CPU", "squeezed, thinning, fastrg or direct, by predicted cost per item and head"});
  table.add(
      {"sampler on CUDA", "direct or thinning, as bit tiles or, for long sequences, as lists; " + kernels});
  table.add({"self-test", test});
  table.print(std::cout);
  return test.starts_with("ok") ? 0 : 1;
}

struct ExplainArguments {
  int64_t n = 2048, dim = 32, heads = 2;
  double density = 0.1;
  std::string dtype = "fp32", device = "cpu";
};

// What a call of this shape would run, on edges drawn at this density.
int explain(const ExplainArguments& a) {
  const at::Device device(a.device);
  TORCH_CHECK_VALUE(device.is_cpu() || io::describe_environment().cuda_available,
                    "doctor --explain: expected a GPU for --device ", a.device, "; torch sees none");
  const auto options = at::TensorOptions(bench_dtype(a.dtype)).device(device);
  const at::Tensor rows = at::zeros({1, a.heads, a.n, a.dim}, options);
  // One cluster and constant memberships: every pair has the same probability.
  const EdgeSet edges =
      sample_sbm_edges(at::ones({1, a.heads, a.n, 1}), at::full({1, a.heads, a.n, 1}, a.density)).to(device);
  const AttentionChoice choice = explain_attention(rows, rows, rows, edges);
  Table table({"what", "value"});
  table.add({"shape", std::to_string(a.heads) + (a.heads == 1 ? " head, n = " : " heads, n = ") +
                          std::to_string(a.n) + ", head dim " + std::to_string(a.dim) + ", " + a.dtype +
                          ", " + a.device});
  table.add(
      {"edges",
       std::to_string(edges.edge_count()) + " (" +
           percent(static_cast<double>(edges.edge_count()) / static_cast<double>(edges.shape().pairs()), 2) +
           ")"});
  table.add({"implementation",
             choice.implementation + (choice.cpu_level.empty() ? "" : " on " + choice.cpu_level)});
  table.add({"reason", choice.reason});
  if (!choice.bf16_rows.empty()) table.add({"bf16 rows", choice.bf16_rows});
  if (device.is_cpu() && !choice.is_calibrated)
    table.add({"predicted", "nothing: costs were measured for fp32 rows on AVX-512 alone"});
  if (choice.is_calibrated) {
    table.add({"predicted: gather", fixed(choice.gather_ms, 3) + " ms forward on one core"});
    table.add({"predicted: dense", fixed(choice.dense_ms, 3) +
                                       " ms (torch's attention over all pairs); gather is " +
                                       fixed(choice.dense_ms / choice.gather_ms, 2) + " times as fast"});
  }
  if (choice.is_calibrated && choice.heads > 0) {
    table.add({"predicted: blocks", fixed(choice.blocks_ms, 3) + " ms (all pairs, edges masked)"});
    table.add({"predicted: backward", fixed(choice.gather_backward_ms, 3) + " ms by gather, " +
                                          fixed(choice.blocks_backward_ms, 3) + " ms in blocks"});
    table.add({"heads in blocks",
               std::to_string(choice.blocks_forward) + " of " + std::to_string(choice.heads) + " forward, " +
                   std::to_string(choice.blocks_backward) + " backward (without a learner)"});
  }
  table.print(std::cout);
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("doctor", "Show what was found on this machine and what will run");
  command->add_flag("--json", *json, "the environment as JSON");
  auto explaining = std::make_shared<bool>(false);
  auto arguments = std::make_shared<ExplainArguments>();
  command->add_flag("--explain", *explaining,
                    "which implementation edge_attention takes for --n, --dim, --density, --dtype, --device");
  command->add_option("--n", arguments->n, "with --explain: sequence length")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--dim", arguments->dim, "with --explain: head dim")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--heads", arguments->heads, "with --explain: heads")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--density", arguments->density, "with --explain: edge density")
      ->capture_default_str()
      ->check(number_between(0, 1));
  command->add_option("--dtype", arguments->dtype, "with --explain: fp32, fp64 or bf16")
      ->capture_default_str()
      ->check(one_of({"fp32", "fp64", "bf16"}));
  command->add_option("--device", arguments->device, "with --explain: cpu or cuda")
      ->capture_default_str()
      ->check(one_of({"cpu", "cuda"}));
  command->callback([&action, json, explaining, arguments] {
    action = [json, explaining, arguments] { return *explaining ? explain(*arguments) : run(*json); };
  });
}

}  // namespace edgewise::app
