// edgewise doctor: what was found on this machine, and which implementation will run.
#include <edgewise/io/environment.h>
#include <edgewise/ops/cpu_level.h>
#include <edgewise/ops/float32_matmul.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <cstdio>
#include <iostream>
#include <utility>

#include "command.h"
#include "doctor/doctor_distributed.h"
#include "doctor/doctor_explain.h"
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

// Left out of account, a shape would get the answer for no shape at all.
void expect_explain(const CLI::App& command, bool distributed) {
  for (const std::string name : {"--n", "--dim", "--heads", "--density", "--dtype", "--device"})
    if (command.count(name) > 0 && !(distributed && name == "--device"))
      throw CLI::ValidationError(name +
                                 ": expected it with --explain, which asks about a shape; got it without");
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("doctor", "Show what was found on this machine and what will run");
  command->add_flag("--json", *json, "the environment as JSON; with --explain, its answer");
  auto explaining = std::make_shared<bool>(false);
  auto arguments = std::make_shared<ExplainArguments>();
  command->add_flag("--explain", *explaining,
                    "which implementation edge_attention takes for --n, --dim, --density, --dtype, --device, "
                    "and why the other kernels do not");
  command->add_option("--n", arguments->n, "with --explain: sequence length")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--dim", arguments->dim, "with --explain: head dim")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--heads", arguments->heads, "with --explain: heads, of all items of a batch")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--density", arguments->density, "with --explain: edge density")
      ->capture_default_str()
      ->check(number_between(0, 1));
  command->add_option("--dtype", arguments->dtype, "with --explain: fp32, fp64 or bf16")
      ->capture_default_str()
      ->check(one_of({"fp32", "fp64", "bf16"}));
  command->add_option("--device", arguments->device, "with --explain and --distributed: cpu or cuda")
      ->capture_default_str()
      ->check(one_of({"cpu", "cuda"}));
  auto distributed = std::make_shared<bool>(false);
  command->add_flag("--distributed", *distributed,
                    "under torchrun: whether all ranks meet, are alike, add up right, and how fast");
  command->callback([&action, command, json, explaining, distributed, arguments] {
    if (!*explaining) expect_explain(*command, *distributed);
    action = [json, explaining, distributed, arguments] {
      if (*distributed) return check_distributed(arguments->device);
      return *explaining ? explain(*arguments, *json) : run(*json);
    };
  });
}

}  // namespace edgewise::app
