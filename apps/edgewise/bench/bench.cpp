// edgewise bench: measurements, always beside dense attention in the same process.
#include "bench/bench.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace edgewise::app {
namespace {

double& largest_disturbance() {
  static double ratio = 1;
  return ratio;
}

}  // namespace

double disturbance() {
  return largest_disturbance();
}
void note_disturbance(double ratio) {
  largest_disturbance() = std::max(largest_disturbance(), ratio);
}

std::vector<Timing> measure_together(const std::vector<Body>& bodies, double seconds, int least) {
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  for (const Body& body : bodies) body();
  std::vector<std::vector<double>> times(bodies.size());
  const auto start = Clock::now();
  while (static_cast<int>(times[0].size()) < least ||
         elapsed(start) < seconds * static_cast<double>(bodies.size())) {
    for (size_t n = 0; n < bodies.size(); ++n) {
      const auto begin = Clock::now();
      bodies[n]();
      times[n].push_back(elapsed(begin) * 1e3);
    }
  }
  std::vector<Timing> result;
  for (std::vector<double>& each : times) {
    result.push_back(timing_of(std::move(each)));
    note_disturbance(result.back().disturbance());
  }
  return result;
}

double cuda_peak_bytes(const Body& body) {
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(at::kCUDA);
  const auto held = [&] { return allocator->getDeviceStats(0).allocated_bytes[kAll]; };
  allocator->resetPeakStats(0);
  const auto before = held().current;
  body();
  return static_cast<double>(held().peak - before);
}

Timing measure(const Body& body, double seconds, int least) {
  return measure_together({body}, seconds, least)[0];
}

Body dense_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool backward) {
  const at::Tensor q = query.detach(), k = key.detach(), v = value.detach();
  if (!backward)
    return [=] {
      const at::NoGradGuard guard;
      at::scaled_dot_product_attention(q, k, v);
    };
  for (const at::Tensor& x : {q, k, v}) x.requires_grad_();
  return [=, grad = at::ones_like(query)] {
    for (const at::Tensor& x : {q, k, v}) x.mutable_grad() = at::Tensor();
    at::scaled_dot_product_attention(q, k, v).backward(grad);
  };
}

void add_cpu_device(CLI::App& command) {
  const auto check = [name = command.get_name()](const std::string& device) -> std::string {
    if (device == "cpu") return {};
    return "expected cpu, where bench " + name + " measures; got '" + device +
           "'. On a GPU: edgewise bench cuda";
  };
  command.add_option("--device", "cpu; on a GPU: edgewise bench cuda")
      ->default_str("cpu")
      ->check(CLI::Validator(check, ""));
}

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measure against dense attention in the same process");
  bench->require_subcommand(1);
  add_bench_attention(*bench, action);
  add_bench_cuda(*bench, action);
  add_bench_sac(*bench, action);
  add_bench_sample(*bench, action);
  add_bench_step(*bench, action);
  add_bench_train(*bench, action);
  add_bench_scaling(*bench, action);
}

}  // namespace edgewise::app
