// TextAnswers: one class, or one number, of a text or a pair of texts
// (edgewise/data/examples/labelled_text.h), judged by the figure that the data names.
#pragma once

#include <edgewise/data/examples/labelled_text.h>
#include <edgewise/tasks/task.h>

namespace edgewise::tasks {

class TextAnswers : public SequenceLabels {
 public:
  explicit TextAnswers(std::shared_ptr<const data::Dataset> data);

  const Objective& objective() const override;
  const Metric& metric() const override { return metric_; }
  bool gives_answers() const override { return true; }
  std::vector<double> answers_of(const at::Tensor& logits) const override;
  std::vector<Figure> figures(const std::vector<int64_t>& indices, const std::vector<double>& answers,
                              data::Split split) const override;
  std::vector<data::Baseline> baselines(data::Split split) const override;

 private:
  const data::LabelledText& texts_;
  const Metric& metric_;
};

}  // namespace edgewise::tasks
