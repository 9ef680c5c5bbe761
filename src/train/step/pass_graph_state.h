// PassGraphs from the inside: what begin_gradients asks of it.
#pragma once

#include <edgewise/train/pass_graphs.h>

#include <map>
#include <optional>

#include "ops/step_graph.h"
#include "train/step/pass.h"

namespace edgewise::train {

struct RecordedPass;

struct PassGraphs::State {
  explicit State(const PassGraphsOptions& given);
  ~State();

  // Runs the pass from a graph and adds its gradients to those of the parameters. None when it is to run as
  // an ordinary pass, which is counted as one.
  std::optional<PassOutput> replay(Model& model, const Pass& pass, const StepOptions& options);

  PassGraphsOptions options;
  PassCounts counts;

 private:
  // All graphs.
  void forget();

  struct Shape {
    int64_t passes = 0;
    std::unique_ptr<RecordedPass> recorded;
  };
  // Sizes and types of everything that a recorded pass has fixed.
  std::map<std::vector<int64_t>, Shape> shapes_;
  int64_t recorded_now_ = 0;  // of shapes_
  bool density_weighs_ = false;
  std::optional<ops::StepGraphs> shared_;
};

}  // namespace edgewise::train
