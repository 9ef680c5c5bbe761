// edgewise bench: measurements, always beside dense attention in the same process.
#include "bench.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace edgewise::app {

Timing measure(const std::function<void()>& body, double seconds, int least) {
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  body();
  std::vector<double> times;
  const auto start = Clock::now();
  while (static_cast<int>(times.size()) < least || elapsed(start) < seconds) {
    const auto begin = Clock::now();
    body();
    times.push_back(elapsed(begin) * 1e3);
  }
  std::sort(times.begin(), times.end());
  const auto quantile = [&](double q) {
    return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))];
  };
  return {quantile(0.5), (quantile(0.75) - quantile(0.25)) / quantile(0.5)};
}

Timing measure_dense(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool backward,
                     double seconds) {
  if (!backward) {
    const at::NoGradGuard guard;
    return measure([&] { at::scaled_dot_product_attention(query, key, value); }, seconds);
  }
  const at::Tensor q = query.detach().requires_grad_(), k = key.detach().requires_grad_(),
                   v = value.detach().requires_grad_();
  const at::Tensor grad = at::ones_like(query);
  return measure(
      [&] {
        for (const at::Tensor& x : {q, k, v}) x.mutable_grad() = at::Tensor();
        at::scaled_dot_product_attention(q, k, v).backward(grad);
      },
      seconds);
}

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measure against dense attention in the same process");
  bench->require_subcommand(1);
  add_bench_attention(*bench, action);
  add_bench_sample(*bench, action);
  add_bench_scaling(*bench, action);
}

}  // namespace edgewise::app
