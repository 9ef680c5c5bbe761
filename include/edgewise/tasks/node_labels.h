// NodeLabels: the label, or the labels, of a graph's nodes (edgewise/data/graphs/graph_nodes.h), by layers of
// graph attention. Judged by accuracy; of two classes also by the area under the ROC curve, of nodes with
// many labels by micro-averaged F1.
#pragma once

#include <edgewise/data/graphs/graph_nodes.h>
#include <edgewise/tasks/task.h>

namespace edgewise::tasks {

// Probability that an answer to a node with label 1 is higher than one to a node with label 0; ties count
// half. Labels that are neither are left out. 0.5 where a class is missing.
double roc_auc(const std::vector<double>& answers, const std::vector<int64_t>& labels);

class NodeLabels : public Task {
 public:
  explicit NodeLabels(std::shared_ptr<const data::Dataset> data);

  ModelPtr make_model(const ModelPlan& plan) const override;
  Operations head_operations(double n, double width) const override;
  const Objective& objective() const override;
  std::string recording_refusal() const override;
  const Metric& metric() const override;
  bool gives_answers() const override { return nodes_.metric() != "accuracy"; }
  std::vector<double> answers_of(const at::Tensor& logits) const override;
  std::vector<Figure> figures(const std::vector<int64_t>& indices, const std::vector<double>& answers,
                              data::Split split) const override;

 private:
  const data::GraphNodes& nodes_;
};

}  // namespace edgewise::tasks
