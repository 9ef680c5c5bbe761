// Figures of all answers of a split together: what is more than a mean over examples.
//
// Of classes: accuracy; f1, that of class 1 against class 0, where answers and labels that are neither are
// left out; macro_f1, the mean of every class's F1 against all others; matthews, the correlation of answers
// and labels (Gorodkin's R_K for more than two classes). Of numbers: pearson, the correlation of values;
// spearman, that of their ranks, ties having their mean; rmse, the root of the mean squared error.
//
// What is undefined, 0 over 0, is 0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace edgewise::tasks {

struct Figure {
  std::string name;
  double value;
  bool operator==(const Figure&) const = default;
};

std::vector<Figure> class_figures(std::span<const int64_t> answers, std::span<const int64_t> labels,
                                  int64_t classes);
std::vector<Figure> number_figures(std::span<const double> answers, std::span<const double> labels);

// Names of the figures of classes, or of numbers, that a data set may be judged by.
const std::vector<std::string>& figure_names(bool of_numbers);

}  // namespace edgewise::tasks
