#include "train/run/run_lines.h"

#include <cstdio>

namespace edgewise::train {
namespace {

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

// Shares are told in percent everywhere but in JSON: short beside a bar, as in tables in a line of its own.
std::string short_percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g%%", share * 100);
  return text;
}
std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f %%", share * 100);
  return text;
}

}  // namespace

ProgressFields step_fields(const StepReport& report, const tasks::Metric& metric) {
  ProgressFields fields = {{"loss", short_number(report.task_loss)}};
  if (metric.of) {
    const double value = metric.of(report.task_loss, report.accuracy);
    fields.emplace_back(metric.brief, metric.is_share ? short_percent(value) : short_number(value));
  } else if (metric.counts_right) {
    fields.emplace_back("accuracy", short_percent(report.accuracy));
  }
  fields.emplace_back("density", short_percent(report.density.mean().item<double>()));
  if (report.loss != report.task_loss)
    fields.emplace_back("penalty", short_number(report.loss - report.task_loss));
  return fields;
}

std::string validation_line(int64_t step, const Evaluation& found) {
  const auto value = [&](double of) { return found.metric->is_share ? percent(of) : short_number(of); };
  std::string line = "step " + std::to_string(step) + ": validation " + found.metric->words + " " +
                     value(found.value()) + ", loss " + short_number(found.loss) + ", density " +
                     percent(found.density.mean().item<double>());
  if (found.policy)
    line += ", with sampled edges " + value(found.policy->sampled) + ", with greedy ones " +
            value(found.policy->greedy) + ", entropy " + short_number(found.policy->entropy);
  return line;
}

std::string adopted_line(const std::string& file, const AdoptedWeights& weights) {
  std::string line = "starts with " + std::to_string(weights.adopted) + " tensors of " + file + " (step " +
                     std::to_string(weights.step) + ")";
  const auto add = [&](const std::vector<std::string>& names, const char* what) {
    if (!names.empty())
      line += std::string("; ") + what + ": " + std::to_string(names.size()) + ", " + names.front() +
              (names.size() > 1 ? " ..." : "");
  };
  add(weights.kept_new, "new in this model");
  add(weights.left, "of that file not used");
  return line;
}

}  // namespace edgewise::train
