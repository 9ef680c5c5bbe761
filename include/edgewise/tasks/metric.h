// The figure that a task is judged by: on it the best checkpoint is chosen.
#pragma once

#include <string>

namespace edgewise::tasks {

struct Metric {
  std::string name;   // in metrics.jsonl
  std::string words;  // for people
  std::string brief;  // beside a progress bar
  bool is_share;      // told in percent, and more is better; else a plain number, and less is better
  // From the mean loss over the targets and the share of them that are answered right; null: a figure of all
  // answers together, known behind an evaluation only (edgewise/tasks/figures.h).
  double (*of)(double loss, double accuracy);
  bool counts_right = true;  // whether an answer is right or wrong at all

  // More is better.
  double score(double value) const { return is_share ? value : -value; }
  double of_score(double score) const { return is_share ? score : -score; }
};

const Metric& accuracy();
const Metric& bits_per_character();
const Metric& token_loss();  // in nats

// One of figure_names() of figures.h; throws, naming them, for another name.
const Metric& metric_named(const std::string& name);

}  // namespace edgewise::tasks
