// What a run's metrics.jsonl has of its steps and evaluations.
#pragma once

#include <edgewise/train/evaluate.h>
#include <edgewise/train/metrics.h>

#include <filesystem>
#include <vector>

namespace edgewise::train {

// Layer by layer, head by head.
std::vector<double> values_of(const at::Tensor& density);

// The metric of a step, where the loss and the share of right answers tell it.
void add_metric(MetricRecord& record, const tasks::Metric& metric, double loss, double accuracy);

// "eval" or "test" at a step, with every figure that the evaluation has.
MetricRecord evaluation_record(const char* kind, int64_t step, data::Split split, const Evaluation& found);

// FOLDER/NAME.txt for every text, a line each; the folder is made when missing.
void save_texts(const std::filesystem::path& folder, const std::vector<tasks::WrittenText>& texts);

// What it has beside loss, accuracy and density.
void add_figures(MetricRecord& record, const Evaluation& found);

}  // namespace edgewise::train
