#include "bench/device_timing.h"

#include <torch/cuda.h>

#include <algorithm>
#include <chrono>

#include "ops/step_graph.h"
#include "ops/step_inputs.h"

namespace edgewise::app {
namespace {

double queued_ms(int repeats, const Body& body) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> rounds;
  for (int round = 0; round < 6; ++round) {
    torch::cuda::synchronize();
    const auto start = Clock::now();
    for (int n = 0; n < repeats; ++n) body();
    torch::cuda::synchronize();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count() / repeats;
    if (round > 0) rounds.push_back(ms);  // the first one warms up
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

}  // namespace

double device_ms(const DeviceTiming& timing, const Body& body) {
  if (!timing.graph) return queued_ms(timing.repeats, body);
  for (int n = 0; n < 2; ++n) body();  // libraries choose their kernels, edges make the layouts they keep
  ops::StepInputs inputs(at::kCUDA);
  const ops::StepGraphs shared(at::kCUDA);
  ops::StepGraph graph(shared, [&] {
    const ops::StepInputs::Recording recording(inputs);
    body();
  });
  ops::StreamShift shift;
  return queued_ms(timing.repeats, [&] {
    ++shift.now.step;
    inputs.refresh(shift);
    graph.replay();
  });
}

}  // namespace edgewise::app
