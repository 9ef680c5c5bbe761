// What the benchmarks share: repeats, medians, the dense opponent.
#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>

#include <functional>

#include "command.h"

namespace edgewise::app {

struct Timing {
  double median_ms = 0;
  double spread = 0;  // (third quartile - first quartile) / median
};

// Runs once to warm up, then until `seconds` have passed and at least `least` times.
Timing measure(const std::function<void()>& body, double seconds, int least = 5);

// Dense scaled_dot_product_attention, forward, or forward and backward.
Timing measure_dense(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool backward,
                     double seconds);

void add_bench_attention(CLI::App& bench, Action& action);
void add_bench_sample(CLI::App& bench, Action& action);
void add_bench_scaling(CLI::App& bench, Action& action);

}  // namespace edgewise::app
