// CUDA graphs of the forward and backward passes of training: a pass whose shape has been seen a few times is
// recorded, and from then on the host starts it as a whole, with the batch, the random streams and the
// weights of the loss that belong to the step (docs/performance.md, "CUDA graphs").
#pragma once

#include <edgewise/train/recipe.h>

#include <cstdint>
#include <memory>
#include <string>

namespace edgewise::tasks {
class Task;
}

namespace edgewise::train {

struct PassGraphsOptions {
  int64_t ordinary_passes = 2;  // of a shape before it is recorded: they load kernels and make their handles
  int64_t most_graphs = 64;     // further shapes go on as ordinary passes
};

struct PassCounts {
  int64_t recorded = 0;  // graphs
  int64_t replayed = 0;  // passes
  int64_t ordinary = 0;  // passes
};

// Given to begin_gradients in StepOptions; of one model.
class PassGraphs {
 public:
  explicit PassGraphs(const PassGraphsOptions& options = {});
  ~PassGraphs();
  PassCounts counts() const;

  struct State;  // src/train/step/pass_graph_state.h
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// Why the passes of this recipe cannot be recorded, and what to do; empty when they can.
std::string pass_graphs_refusal(const Recipe& recipe, const tasks::Task& task);

}  // namespace edgewise::train
