#include "train/run/kept_weights.h"

#include <cmath>

namespace edgewise::train {

bool take_score(const std::string& keep, const Evaluation& found, CheckpointInfo& info) {
  // A score that is not a number is beaten by any that is.
  const bool first = !info.best_metric || (std::isnan(*info.best_metric) && !std::isnan(found.score()));
  if (keep == "metric") {
    const bool better = first || found.score() > *info.best_metric;
    info.validations_since_best = better ? 0 : info.validations_since_best + 1;
    if (!better) return false;
    info.best_metric = found.score();
    info.best_step = info.step;
    return true;
  }
  const bool metric = first || found.score() >= *info.best_metric,
             loss = !info.best_loss || std::isnan(*info.best_loss) || found.loss <= *info.best_loss;
  info.validations_since_best = metric || loss ? 0 : info.validations_since_best + 1;
  if (metric) info.best_metric = found.score();
  if (loss) info.best_loss = found.loss;
  if (metric && loss) info.best_step = info.step;
  return metric && loss;
}

}  // namespace edgewise::train
