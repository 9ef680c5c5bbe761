// EvaluationMode: a model in evaluation mode while this lives, and then in the mode it was in.
#pragma once

#include <edgewise/models/model.h>

namespace edgewise::train {

class EvaluationMode {
 public:
  explicit EvaluationMode(Model& model) : model_(model), was_training_(model.is_training()) { model_.eval(); }
  ~EvaluationMode() { model_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  Model& model_;
  bool was_training_;
};

}  // namespace edgewise::train
