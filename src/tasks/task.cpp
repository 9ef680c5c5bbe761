#include <edgewise/tasks/task.h>

#include <numbers>

namespace edgewise::tasks {

namespace {

// Shuffled, and the longest first.
class TrainingOrder : public data::Order {
 public:
  TrainingOrder(const data::Dataset& data, int64_t batch, uint64_t seed)
      : data_(data), shuffled_(data.size(data::Split::kTrain), batch, seed) {}
  std::vector<int64_t> indices(int64_t step) override {
    std::vector<int64_t> result = shuffled_.indices(step);
    data::sort_by_length(data_, data::Split::kTrain, result);
    return result;
  }

 private:
  const data::Dataset& data_;
  data::BatchOrder shuffled_;
};

class EvaluationOrder : public data::Order {
 public:
  EvaluationOrder(int64_t size, int64_t batch) : size_(size), batch_(batch) {}
  std::vector<int64_t> indices(int64_t batch) override {
    return data::evaluation_indices(size_, batch_, batch);
  }

 private:
  int64_t size_, batch_;
};

}  // namespace

const Metric& accuracy() {
  static const Metric metric = {.name = "accuracy",
                                .words = "accuracy",
                                .brief = "accuracy",
                                .is_share = true,
                                .of = [](double, double share) { return share; }};
  return metric;
}

const Metric& bits_per_character() {
  static const Metric metric = {.name = "bits_per_character",
                                .words = "bits per character",
                                .brief = "bits/char",
                                .is_share = false,
                                .of = [](double loss, double) { return loss / std::numbers::ln2; }};
  return metric;
}

const Metric& token_loss() {
  static const Metric metric = {.name = "token_loss",
                                .words = "loss per token",
                                .brief = "token loss",
                                .is_share = false,
                                .of = [](double loss, double) { return loss; }};
  return metric;
}

std::unique_ptr<data::Order> Task::training_order(int64_t batch, uint64_t seed) const {
  return std::make_unique<TrainingOrder>(data(), batch, seed);
}

std::unique_ptr<data::Order> Task::evaluation_order(int64_t size, int64_t batch) const {
  return std::make_unique<EvaluationOrder>(size, batch);
}

std::unique_ptr<data::Order> Task::training_order_by_tokens(int64_t tokens, uint64_t /*seed*/) const {
  TORCH_CHECK_VALUE(false, "train: expected train.batch_tokens = 0 with ", data().name(),
                    ", whose batches are counted in sequences (train.batch); got ", tokens);
}

std::shared_ptr<const Objective> Task::smoothed_objective(double smoothing) const {
  if (smoothing == 0) return {std::shared_ptr<const Objective>(), &objective()};
  TORCH_CHECK_VALUE(&objective() == &cross_entropy(),
                    "train: expected train.label_smoothing = 0 where answers are no classes; got ", smoothing,
                    " with ", data().name());
  return smoothed_cross_entropy(smoothing);
}

Operations Task::head_operations(double /*n*/, double width) const {
  return classifier_operations(width, static_cast<double>(ClassifierOptions().hidden),
                               static_cast<double>(data().classes()));
}

}  // namespace edgewise::tasks
