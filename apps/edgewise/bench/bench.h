// What the benchmarks share: repeats, medians, the dense opponent.
#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>

#include <functional>
#include <vector>

#include "bench/timing.h"
#include "command.h"

namespace edgewise::app {

using Body = std::function<void()>;

// The largest median over best repeat so far, of this process and of what its children told: far above 1
// where others disturb. `note_disturbance` takes a child's.
double disturbance();
void note_disturbance(double ratio);

// Runs each body once to warm up, then all of them in turn until `seconds` have passed per body and at least
// `least` times: what disturbs the machine disturbs every side of a comparison.
std::vector<Timing> measure_together(const std::vector<Body>& bodies, double seconds, int least = 5);
Timing measure(const Body& body, double seconds, int least = 5);

// Dense scaled_dot_product_attention, forward, or forward and backward.
Body dense_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool backward);

// --device for a benchmark of the CPU: who asks for a GPU is told where one is measured.
void add_cpu_device(CLI::App& command);

// Bytes that a call holds on the GPU at its peak, beyond what is there before it.
double cuda_peak_bytes(const Body& body);

void add_bench_attention(CLI::App& bench, Action& action);
void add_bench_cuda(CLI::App& bench, Action& action);
void add_bench_sac(CLI::App& bench, Action& action);
void add_bench_sample(CLI::App& bench, Action& action);
void add_bench_step(CLI::App& bench, Action& action);
void add_bench_train(CLI::App& bench, Action& action);
void add_bench_scaling(CLI::App& bench, Action& action);

}  // namespace edgewise::app
