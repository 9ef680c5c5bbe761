#include "train/run/evaluation_record.h"

#include <ATen/core/Tensor.h>

#include <string>

namespace edgewise::train {

std::vector<double> to_list(const at::Tensor& densities) {
  const at::Tensor flat = densities.to(at::kCPU, at::kDouble).flatten().contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

void add_metric(MetricRecord& record, const tasks::Metric& metric, double loss, double accuracy) {
  if (metric.name != "accuracy") record.emplace_back(metric.name, metric.of(loss, accuracy));
}

void add_optional_figures(MetricRecord& record, const Evaluation& found) {
  add_metric(record, *found.metric, found.loss, found.accuracy);
  if (found.edge_precision) record.emplace_back("edge_precision", *found.edge_precision);
  if (found.edge_recall) record.emplace_back("edge_recall", *found.edge_recall);
  if (found.valid_pairs < 1) record.emplace_back("valid_pairs", found.valid_pairs);
  if (found.valid_density.defined())
    record.emplace_back("density_of_valid_pairs", to_list(found.valid_density));
}

MetricRecord evaluation_record(const char* kind, int64_t step, data::Split split, const Evaluation& found) {
  MetricRecord record = {{"kind", kind},
                         {"step", step},
                         {"split", std::string(data::to_string(split))},
                         {"loss", found.loss},
                         {"accuracy", found.accuracy},
                         {"density", to_list(found.density)}};
  add_optional_figures(record, found);
  return record;
}

}  // namespace edgewise::train
