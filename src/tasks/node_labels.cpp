#include <edgewise/tasks/node_labels.h>

#include <torch/nn/functional.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace edgewise::tasks {
namespace {

// Of nodes with any number of labels, each a yes or no: targets are pairs of an asked node and a class.
class BinaryCrossEntropy : public Objective {
 public:
  int64_t count_targets(const Batch& batch) const override {
    return batch.more.at("asked").sum().item<int64_t>() * batch.labels.size(2);
  }
  Score score(const at::Tensor& logits, const Batch& batch) const override {
    const at::Tensor& asked = batch.more.at("asked");
    const at::Tensor scores = logits.index({asked}), labels = batch.labels.index({asked});
    namespace F = torch::nn::functional;
    return {F::binary_cross_entropy_with_logits(
                scores, labels.to(scores.scalar_type()),
                F::BinaryCrossEntropyWithLogitsFuncOptions().reduction(torch::kSum)),
            scores.detach().gt(0).eq(labels).sum()};
  }
  // Of a node, over its labels; 0 where it is not asked.
  at::Tensor target_losses(const at::Tensor& logits, const Batch& batch) const override {
    const at::Tensor scores = logits.detach().to(at::kDouble);
    const at::Tensor lost =
        -at::where(batch.labels.to(at::kBool), at::log_sigmoid(scores), at::log_sigmoid(-scores));
    return lost.sum(2).masked_fill(batch.more.at("asked").logical_not(), 0);
  }
  at::Tensor item_rewards(const at::Tensor& logits, const Batch& batch) const override {
    const at::Tensor& asked = batch.more.at("asked");
    const at::Tensor scores = logits.detach().to(at::kDouble).index({asked}),
                     labels = batch.labels.index({asked});
    return at::where(labels, at::log_sigmoid(scores), at::log_sigmoid(-scores)).mean().unsqueeze(0);
  }
};

const data::GraphNodes& nodes_in(const data::Dataset& data) {
  const auto* const nodes = dynamic_cast<const data::GraphNodes*>(&data);
  TORCH_CHECK_VALUE(nodes, "graph: expected the nodes of a graph; got the data ", data.name());
  return *nodes;
}

}  // namespace

double roc_auc(const std::vector<double>& answers, const std::vector<int64_t>& labels) {
  TORCH_CHECK_VALUE(answers.size() == labels.size(), "roc_auc: expected as many answers as labels; got ",
                    answers.size(), " and ", labels.size());
  std::vector<size_t> order;
  for (size_t n = 0; n < labels.size(); ++n)
    if (labels[n] == 0 || labels[n] == 1) {
      if (std::isnan(answers[n]))
        return std::numeric_limits<double>::quiet_NaN();  // has no place in an order
      order.push_back(n);
    }
  std::ranges::sort(order, {}, [&](size_t n) { return answers[n]; });
  double rank_sum = 0, ones = 0;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    double here = 0;
    for (; end < order.size() && answers[order[end]] == answers[order[begin]]; ++end)
      here += static_cast<double>(labels[order[end]]);
    rank_sum +=
        here * static_cast<double>(begin + end + 1) / 2;  // equal answers share the mean of their ranks
    ones += here;
    begin = end;
  }
  const double zeros = static_cast<double>(order.size()) - ones;
  return ones == 0 || zeros == 0 ? 0.5 : (rank_sum - ones * (ones + 1) / 2) / (ones * zeros);
}

NodeLabels::NodeLabels(std::shared_ptr<const data::Dataset> data)
    : Task(std::move(data)), nodes_(nodes_in(this->data())) {}

ModelPtr NodeLabels::make_model(const ModelPlan& plan) const {
  GraphNetworkOptions options = plan.graph;
  options.features = data().features();
  options.classes = data().classes();
  options.layers = plan.encoder.layers;
  options.dim = plan.encoder.dim;
  options.heads = plan.encoder.heads;
  options.dropout = plan.encoder.dropout;
  options.attention_dropout = plan.encoder.attention_dropout;
  options.edges = plan.encoder.edges;
  return GraphNetwork(options).ptr();
}

Operations NodeLabels::head_operations(double, double) const {
  return {};  // the last layer is attention too
}

const Objective& NodeLabels::objective() const {
  static const BinaryCrossEntropy binary;
  return nodes_.graph().has_many_labels() ? binary : cross_entropy();
}

std::string NodeLabels::recording_refusal() const {
  return "the loss is over the nodes that are asked, whose number the host must wait for";
}

const Metric& NodeLabels::metric() const {
  static const Metric auc = {.name = "roc_auc",
                             .words = "area under the ROC curve",
                             .brief = "AUC",
                             .is_share = true,
                             .of = nullptr};
  static const Metric f1 = {
      .name = "micro_f1", .words = "micro F1", .brief = "F1", .is_share = true, .of = nullptr};
  return nodes_.metric() == "roc_auc" ? auc : nodes_.metric() == "micro_f1" ? f1 : accuracy();
}

std::vector<double> NodeLabels::answers_of(const at::Tensor& logits) const {
  const bool many = nodes_.graph().has_many_labels();
  const at::Tensor read =
      (many ? logits : logits.select(-1, 1) - logits.select(-1, 0)).to(at::kCPU, at::kDouble).contiguous();
  return {read.const_data_ptr<double>(), read.const_data_ptr<double>() + read.numel()};
}

std::vector<Figure> NodeLabels::figures(const std::vector<int64_t>&, const std::vector<double>& answers,
                                        data::Split split) const {
  std::vector<int64_t> labels = nodes_.labels(split);
  TORCH_CHECK_VALUE(answers.size() <= labels.size(), "graph: expected at most ", labels.size(),
                    " answers; got ", answers.size());
  labels.resize(answers.size());  // an evaluation of the first graphs alone
  if (nodes_.metric() == "roc_auc") return {{"roc_auc", roc_auc(answers, labels)}};
  double right = 0, wrong = 0;
  for (size_t n = 0; n < labels.size(); ++n) {
    if (labels[n] < 0) continue;
    right += answers[n] > 0 && labels[n] == 1;
    wrong += (answers[n] > 0) != (labels[n] == 1);
  }
  return {{"micro_f1", right > 0 ? 2 * right / (2 * right + wrong) : 0}};
}

}  // namespace edgewise::tasks
