// MaskedTokens: hidden tokens of a text, guessed from those around them
// (edgewise/data/examples/masked_text.h). Every pass over the training pieces hides others.
#pragma once

#include <edgewise/tasks/task.h>

namespace edgewise::tasks {

class MaskedTokens : public Task {
 public:
  explicit MaskedTokens(std::shared_ptr<const data::Dataset> data);

  std::unique_ptr<data::Order> training_order(int64_t batch, uint64_t seed) const override;
  ModelPtr make_model(const ModelPlan& plan) const override;
  Operations head_operations(double n, double width) const override;
  const Metric& metric() const override;  // the loss, in nats per hidden token
};

}  // namespace edgewise::tasks
