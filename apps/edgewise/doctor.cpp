// edgewise doctor: what was found on this machine, and which implementation will run.
#include <edgewise/io/environment.h>
#include <edgewise/ops/cpu_level.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <iostream>

#include "command.h"
#include "table.h"

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
  return error < 1e-5 ? "ok (largest difference to the reference " + std::to_string(error) + ")"
                      : "FAILED: differs from the reference by " + std::to_string(error);
}

int run(bool json) {
  const io::Environment environment = io::describe_environment();
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
  table.add(
      {"CPU level", cpu_level() + " (detected " + environment.cpu_level + "; EDGEWISE_CPU_LEVEL chooses)"});
  table.add({"threads", std::to_string(environment.threads)});
  std::string devices;
  for (const std::string& device : environment.cuda_devices)
    devices += (devices.empty() ? "" : ", ") + device;
  table.add({"CUDA", environment.cuda_available ? devices : "not available"});
  table.add({"edge_attention on CPU", "kernel: fp32 and bf16 on the CPU level, fp64 portable"});
  const std::string kernels = EDGEWISE_HAS_CUDA ? "kernels for compute capability 9.0; the rest in plain ATen"
                                                : "in plain ATen: this build has no CUDA kernels";
  table.add({"edge_attention on CUDA", kernels});
  table.add({"sampler on CPU", "squeezed, thinning, fastrg or direct, by predicted cost per item and head"});
  table.add({"sampler on CUDA", "direct, " + kernels});
  table.add({"self-test", test});
  table.print(std::cout);
  return test.starts_with("ok") ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("doctor", "Show what was found on this machine and what will run");
  command->add_flag("--json", *json, "the environment as JSON");
  command->callback([&action, json] { action = [json] { return run(*json); }; });
}

}  // namespace edgewise::app
