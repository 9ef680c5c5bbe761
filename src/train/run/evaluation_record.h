// An evaluation as a record of metrics.jsonl: what training writes, and `eval --record` after it.
#pragma once

#include <edgewise/train/evaluate.h>
#include <edgewise/train/metrics.h>

#include <cstdint>

namespace edgewise::train {

std::vector<double> to_list(const at::Tensor& densities);  // layer by layer, head by head

// `kind` is "eval" or "test"; `step` is the run's.
MetricRecord evaluation_record(const char* kind, int64_t step, data::Split split, const Evaluation& found);

// What only some evaluations have: the task's own metric, edges that are known to be right, padding.
void add_optional_figures(MetricRecord& record, const Evaluation& found);

// A metric that is not accuracy; loss and accuracy are told of every task.
void add_metric(MetricRecord& record, const tasks::Metric& metric, double loss, double accuracy);

}  // namespace edgewise::train
