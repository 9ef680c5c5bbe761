// The figure that a task is judged by: on it the best checkpoint is chosen.
#pragma once

#include <string>

namespace edgewise::tasks {

struct Metric {
  std::string name;   // in metrics.jsonl
  std::string words;  // for people
  std::string brief;  // beside a progress bar
  bool is_share;      // told in percent, and more is better; else a plain number, and less is better
  // From the mean loss over the targets and the share of them that are answered right.
  double (*of)(double loss, double accuracy);

  // More is better.
  double score(double value) const { return is_share ? value : -value; }
  double of_score(double score) const { return is_share ? score : -score; }
};

const Metric& accuracy();
const Metric& bits_per_character();

}  // namespace edgewise::tasks
