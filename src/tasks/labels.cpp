// Tasks that label sequences, pairs of them, and tokens.
#include <edgewise/tasks/task.h>

namespace edgewise::tasks {
namespace {

ClassifierOptions options_for(const data::Dataset& data, const ModelPlan& plan) {
  ClassifierOptions options{.encoder = plan.encoder, .classes = data.classes(), .pooling = plan.pooling};
  EncoderOptions& encoder = options.encoder;
  TORCH_CHECK_VALUE(encoder.max_length == 0 || encoder.max_length >= data.max_length(),
                    "build_model: expected model.max_length of at least ", data.max_length(),
                    ", the longest of ", data.name(), "; got ", encoder.max_length,
                    ". Leave it out to take the dataset's.");
  encoder.vocabulary = data.vocabulary();
  encoder.features = data.features();
  if (encoder.max_length == 0) encoder.max_length = data.max_length();
  return options;
}

}  // namespace

ModelPtr SequenceLabels::make_model(const ModelPlan& plan) const {
  return SequenceClassifier(options_for(data(), plan)).ptr();
}

ModelPtr PairLabels::make_model(const ModelPlan& plan) const {
  return TwoTowerClassifier(options_for(data(), plan)).ptr();
}

Operations PairLabels::head_operations(double n, double width) const {
  return Task::head_operations(n, 4 * width);  // both, their product and their difference
}

ModelPtr TokenLabels::make_model(const ModelPlan& plan) const {
  return TokenClassifier(options_for(data(), plan)).ptr();
}

Operations TokenLabels::head_operations(double n, double width) const {
  return {{"classifier", "n e k", n * width * static_cast<double>(data().classes())}};
}

std::string TokenLabels::recording_refusal() const {
  return "the loss of " + data().name() +
         " is over the tokens that have a label, whose number the host must wait for";
}

}  // namespace edgewise::tasks
