#include <edgewise/tasks/figures.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <c10/util/Exception.h>

#include <edgewise/tasks/metric.h>

namespace edgewise::tasks {
namespace {

double over(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

// 2 tp / (2 tp + fp + fn), the harmonic mean of precision and recall.
double f_score(double right, double other_answers, double other_labels) {
  return over(2 * right, 2 * right + other_answers + other_labels);
}

double correlation(std::span<const double> x, std::span<const double> y) {
  const auto count = static_cast<double>(x.size());
  const double mean_x = over(std::accumulate(x.begin(), x.end(), 0.0), count),
               mean_y = over(std::accumulate(y.begin(), y.end(), 0.0), count);
  double both = 0, square_x = 0, square_y = 0;
  for (size_t n = 0; n < x.size(); ++n) {
    both += (x[n] - mean_x) * (y[n] - mean_y);
    square_x += (x[n] - mean_x) * (x[n] - mean_x);
    square_y += (y[n] - mean_y) * (y[n] - mean_y);
  }
  return over(both, std::sqrt(square_x) * std::sqrt(square_y));
}

// Places in ascending order, from 1; equal values share the mean of theirs.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t n) { return values[n]; });
  std::vector<double> result(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t n = begin; n < end; ++n) result[order[n]] = static_cast<double>(begin + end + 1) / 2;
    begin = end;
  }
  return result;
}

}  // namespace

std::vector<Figure> class_figures(std::span<const int64_t> answers, std::span<const int64_t> labels,
                                  int64_t classes) {
  TORCH_CHECK_VALUE(answers.size() == labels.size(),
                    "class_figures: expected as many answers as labels; got ", answers.size(), " and ",
                    labels.size());
  const auto size = static_cast<size_t>(classes);
  std::vector<double> answered(size), labelled(size), right(size);
  double first_as_second = 0, second_as_first = 0;
  for (size_t n = 0; n < answers.size(); ++n) {
    const int64_t answer = answers[n], label = labels[n];
    TORCH_CHECK_INDEX(answer >= 0 && answer < classes && label >= 0 && label < classes,
                      "class_figures: expected classes in 0..", classes - 1, "; got ", answer, " and ",
                      label);
    answered[static_cast<size_t>(answer)] += 1;
    labelled[static_cast<size_t>(label)] += 1;
    if (answer == label) right[static_cast<size_t>(answer)] += 1;
    if (answer == 1 && label == 0) first_as_second += 1;
    if (answer == 0 && label == 1) second_as_first += 1;
  }
  const auto count = static_cast<double>(answers.size());
  const double all_right = std::accumulate(right.begin(), right.end(), 0.0);
  double macro = 0, both = 0, square_answers = 0, square_labels = 0;
  for (size_t c = 0; c < size; ++c) {
    macro += f_score(right[c], answered[c] - right[c], labelled[c] - right[c]);
    both += answered[c] * labelled[c];
    square_answers += answered[c] * answered[c];
    square_labels += labelled[c] * labelled[c];
  }
  const double spread = std::sqrt(count * count - square_answers) * std::sqrt(count * count - square_labels);
  std::vector<Figure> figures = {{"accuracy", over(all_right, count)}};
  if (classes >= 2) figures.push_back({"f1", f_score(right[1], first_as_second, second_as_first)});
  figures.push_back({"macro_f1", over(macro, static_cast<double>(classes))});
  figures.push_back({"matthews", over(all_right * count - both, spread)});
  return figures;
}

std::vector<Figure> number_figures(std::span<const double> answers, std::span<const double> labels) {
  TORCH_CHECK_VALUE(answers.size() == labels.size(),
                    "number_figures: expected as many answers as labels; got ", answers.size(), " and ",
                    labels.size());
  double squares = 0;
  for (size_t n = 0; n < answers.size(); ++n) squares += (answers[n] - labels[n]) * (answers[n] - labels[n]);
  return {{"pearson", correlation(answers, labels)},
          {"spearman", correlation(ranks(answers), ranks(labels))},
          {"rmse", std::sqrt(over(squares, static_cast<double>(answers.size())))}};
}

const std::vector<std::string>& figure_names(bool of_numbers) {
  static const std::vector<std::string> classes = {"accuracy", "f1", "macro_f1", "matthews"},
                                        numbers = {"pearson", "spearman", "rmse"};
  return of_numbers ? numbers : classes;
}

const Metric& metric_named(const std::string& name) {
  static const std::vector<Metric> metrics = {
      {.name = "f1", .words = "F1", .brief = "F1", .is_share = true, .of = nullptr},
      {.name = "macro_f1", .words = "macro F1", .brief = "F1", .is_share = true, .of = nullptr},
      {.name = "matthews",
       .words = "Matthews correlation",
       .brief = "Matthews",
       .is_share = true,
       .of = nullptr},
      {.name = "pearson",
       .words = "Pearson correlation",
       .brief = "Pearson",
       .is_share = true,
       .of = nullptr,
       .counts_right = false},
      {.name = "spearman",
       .words = "Spearman correlation",
       .brief = "Spearman",
       .is_share = true,
       .of = nullptr,
       .counts_right = false},
      {.name = "rmse",
       .words = "root mean squared error",
       .brief = "RMSE",
       .is_share = false,
       .of = nullptr,
       .counts_right = false}};
  if (name == "accuracy") return accuracy();
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  TORCH_CHECK_VALUE(found != metrics.end(),
                    "metric: expected accuracy, f1, macro_f1 or matthews of classes, or pearson, spearman or "
                    "rmse of numbers; got '",
                    name, "'");
  return *found;
}

}  // namespace edgewise::tasks
