#include "train/run/run_records.h"

#include <edgewise/io/atomic_file.h>
#include <torch/types.h>

namespace edgewise::train {

std::vector<double> values_of(const at::Tensor& density) {
  const at::Tensor flat = density.to(at::kCPU, at::kDouble).flatten().contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

void add_metric(MetricRecord& record, const tasks::Metric& metric, double loss, double accuracy) {
  if (metric.of && metric.name != "accuracy") record.emplace_back(metric.name, metric.of(loss, accuracy));
}

void add_figures(MetricRecord& record, const Evaluation& found) {
  add_metric(record, *found.metric, found.loss, found.accuracy);
  // What the best checkpoint is chosen by is named where others stand beside it.
  if (!found.figures.empty()) record.emplace_back("metric", found.metric->name);
  for (const tasks::Figure& figure : found.figures)
    if (figure.name != "accuracy") record.emplace_back(figure.name, figure.value);
  if (found.edge_precision) record.emplace_back("edge_precision", *found.edge_precision);
  if (found.edge_recall) record.emplace_back("edge_recall", *found.edge_recall);
  if (found.valid_pairs < 1) record.emplace_back("valid_pairs", found.valid_pairs);
  if (found.valid_density.defined())
    record.emplace_back("density_of_valid_pairs", values_of(found.valid_density));
  if (!found.policy) return;
  record.emplace_back(found.metric->name + "_sampled", found.policy->sampled);
  record.emplace_back(found.metric->name + "_greedy", found.policy->greedy);
  record.emplace_back("policy_entropy", found.policy->entropy);
  if (found.policy->sampled_recall) record.emplace_back("edge_recall_sampled", *found.policy->sampled_recall);
  if (found.policy->greedy_recall) record.emplace_back("edge_recall_greedy", *found.policy->greedy_recall);
}

void save_texts(const std::filesystem::path& folder, const std::vector<tasks::WrittenText>& texts) {
  if (texts.empty()) return;
  std::filesystem::create_directories(folder);
  for (const tasks::WrittenText& text : texts) {
    std::string lines;
    for (const std::string& line : text.lines) lines += line + "\n";
    io::write_file_atomically(folder / (text.name + ".txt"), lines);
  }
}

MetricRecord evaluation_record(const char* kind, int64_t step, data::Split split, const Evaluation& found) {
  MetricRecord record = {
      {"kind", kind}, {"step", step}, {"split", std::string(data::to_string(split))}, {"loss", found.loss}};
  if (found.metric->counts_right) record.emplace_back("accuracy", found.accuracy);
  record.emplace_back("density", values_of(found.density));
  add_figures(record, found);
  return record;
}

}  // namespace edgewise::train
