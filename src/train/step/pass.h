// One forward and backward pass of a step: what the host knows of it, what it leaves behind.
#pragma once

#include <edgewise/models/model.h>
#include <edgewise/train/step.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "train/step/policy_step.h"

namespace edgewise::train {

// Draws of the edges of one item are separate uses of the same layers: their numbers begin this far apart.
inline constexpr uint32_t kLayersPerDraw = 1u << 16;

// What the parts of a pass count for in the loss of its step, and in its report.
struct PassWeights {
  double targets = 1;             // the task's sum is divided by this
  std::vector<double> penalties;  // per tower
  double density_weight = 0;
  double extra = 1;
  double density = 1;
};

struct Pass {
  Batch host;
  RandomStream random;
  std::vector<at::Tensor> memories;  // ModelInput::memories, of the items of this pass
  PassWeights weights;
};

struct PassOutput {
  static constexpr int64_t kScalars = 5;
  // [kScalars + layers * H] double on the device: task loss, penalty, extra loss, right answers, edges; then
  // the densities.
  at::Tensor numbers;
  int64_t heads = 0;
  std::vector<at::Tensor> memories;
};

// The model's input of a pass whose batch lies on the device as `part`. A mask without padding is left out:
// whoever needs none is spared it, and torch's fastest attention takes none.
ModelInput make_input(const Pass& pass, const Batch& part);
bool is_padded(const at::Tensor& host_mask);

// Forward, loss and backward; dropout's generator has been seeded. `weights` may change afterwards, for a
// pass that is replayed. `policy` null: refuses sources that learn by reward.
PassOutput run_pass(Model& model, const ModelInput& input, const Batch& part,
                    const std::shared_ptr<const PassWeights>& weights, const StepOptions& options,
                    PolicyStep* policy);

}  // namespace edgewise::train
