// Tasks over labelled texts: one class, or one number, of a text or a pair of texts.
#include <edgewise/tasks/text_answers.h>

#include <algorithm>
#include <numeric>

#include <torch/types.h>

namespace edgewise::tasks {
namespace {

// Half the squared error, in the units in which numbers are learned. An item's reward is minus that.
class SquaredError : public Objective {
 public:
  int64_t count_targets(const Batch& batch) const override { return batch.size(); }
  Score score(const at::Tensor& logits, const Batch& batch) const override {
    return {errors(logits, batch).sum(), at::zeros({}, batch.labels.options().dtype(at::kLong))};
  }
  at::Tensor target_losses(const at::Tensor& logits, const Batch& batch) const override {
    return errors(logits.detach(), batch).to(at::kDouble);
  }
  at::Tensor item_rewards(const at::Tensor& logits, const Batch& batch) const override {
    return -target_losses(logits, batch);
  }

 private:
  static at::Tensor errors(const at::Tensor& logits, const Batch& batch) {
    return (logits.squeeze(-1).to(at::kFloat) - batch.labels).square() / 2;  // [B]
  }
};

const data::LabelledText& labelled(const data::Dataset& data) {
  const auto* const texts = dynamic_cast<const data::LabelledText*>(&data);
  TORCH_CHECK_VALUE(texts, "labelled_text: expected a LabelledText; got the data ", data.name());
  return *texts;
}

}  // namespace

TextAnswers::TextAnswers(std::shared_ptr<const data::Dataset> data)
    : SequenceLabels(std::move(data)),
      texts_(labelled(this->data())),
      metric_(metric_named(texts_.reader()->options().metric)) {
  TORCH_CHECK_VALUE(metric_.counts_right != texts_.answers_numbers(), "labelled_text: expected a metric of ",
                    texts_.answers_numbers() ? "numbers" : "classes", "; found ", metric_.name);
}

const Objective& TextAnswers::objective() const {
  static const SquaredError squared_error;
  return texts_.answers_numbers() ? squared_error : SequenceLabels::objective();
}

std::vector<double> TextAnswers::answers_of(const at::Tensor& logits) const {
  const data::TextReaderOptions& options = texts_.reader()->options();
  const at::Tensor read =
      (texts_.answers_numbers() ? logits.squeeze(-1).to(at::kDouble) * options.scale + options.mean
                                : logits.argmax(-1).to(at::kDouble))
          .cpu()
          .contiguous();
  return {read.const_data_ptr<double>(), read.const_data_ptr<double>() + read.numel()};
}

std::vector<Figure> TextAnswers::figures(const std::vector<int64_t>& indices,
                                         const std::vector<double>& answers, data::Split split) const {
  std::vector<double> labels;
  for (const int64_t index : indices) labels.push_back(texts_.answers(split)[static_cast<size_t>(index)]);
  if (texts_.answers_numbers()) return number_figures(answers, labels);
  return class_figures(std::vector<int64_t>(answers.begin(), answers.end()),
                       std::vector<int64_t>(labels.begin(), labels.end()), texts_.classes());
}

std::vector<data::Baseline> TextAnswers::baselines(data::Split split) const {
  const std::vector<double>& train = texts_.answers(data::Split::kTrain);
  const auto size = static_cast<size_t>(data().size(split));
  if (train.empty() || size == 0) return {};
  double constant = texts_.reader()->options().mean;
  if (!texts_.answers_numbers()) {
    std::vector<int64_t> count(static_cast<size_t>(texts_.classes()));
    for (const double answer : train) ++count[static_cast<size_t>(answer)];
    constant = static_cast<double>(std::ranges::max_element(count) - count.begin());
  }
  std::vector<int64_t> all(size);
  std::iota(all.begin(), all.end(), int64_t{0});
  for (const Figure& figure : figures(all, std::vector<double>(size, constant), split))
    if (figure.name == metric_.name)
      return {{texts_.answers_numbers() ? "mean of train" : "most frequent label of train", figure.value}};
  return {};
}

}  // namespace edgewise::tasks
