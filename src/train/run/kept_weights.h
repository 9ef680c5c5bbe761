// Which validation's weights are kept, and when patience counts: train.keep.
#pragma once

#include <edgewise/train/checkpoint.h>
#include <edgewise/train/evaluate.h>

#include <string>

namespace edgewise::train {

// Notes in `info` what a validation was worth; true when its weights are the ones to keep.
//
// "metric": those with the best metric. "metric_and_loss", the rule of GAT's authors: the last ones whose
// metric and loss were both no worse than ever, and patience counts validations where both are worse.
bool take_score(const std::string& keep, const Evaluation& found, CheckpointInfo& info);

}  // namespace edgewise::train
