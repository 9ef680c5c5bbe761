// What a run says of itself while it trains, in a human's units. Its metrics.jsonl has the numbers.
#pragma once

#include <edgewise/train/checkpoint.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/progress.h>
#include <edgewise/train/step.h>

#include <string>

namespace edgewise::train {

// Beside the bar. `loss` is the task's; what is added to it (the weighted density, spans) stands last, where
// a narrow terminal leaves it out.
ProgressFields step_fields(const StepReport& report, const tasks::Metric& metric);

// "step 50: validation accuracy ..."
std::string validation_line(int64_t step, const Evaluation& found);

// "starts with 44 tensors of ...", and which of the model's are new.
std::string adopted_line(const std::string& file, const AdoptedWeights& weights);

}  // namespace edgewise::train
