// Figures of answers: values worked out from their definitions, and what is undefined.
#include <edgewise/tasks/figures.h>
#include <edgewise/tasks/metric.h>

#include <algorithm>
#include <cmath>

#include "data/examples/examples_kit.h"

namespace edgewise::tasks {
namespace {

double figure(const std::vector<Figure>& figures, const std::string& name) {
  const auto found = std::ranges::find(figures, name, &Figure::name);
  EXPECT_NE(found, figures.end()) << name;
  return found->value;
}

// Answers and labels with `confusion[label][answer]` of each.
std::vector<Figure> of_confusion(const std::vector<std::vector<int>>& confusion) {
  std::vector<int64_t> answers, labels;
  for (size_t label = 0; label < confusion.size(); ++label)
    for (size_t answer = 0; answer < confusion.size(); ++answer) {
      answers.insert(answers.end(), static_cast<size_t>(confusion[label][answer]),
                     static_cast<int64_t>(answer));
      labels.insert(labels.end(), static_cast<size_t>(confusion[label][answer]), static_cast<int64_t>(label));
    }
  return class_figures(answers, labels, std::ssize(confusion));
}

TEST(Figures, TwoClasses) {
  const auto figures = of_confusion({{150, 172}, {121, 600}});  // label, answer
  EXPECT_NEAR(figure(figures, "accuracy"), 750.0 / 1043, 1e-12);
  EXPECT_NEAR(figure(figures, "matthews"), .313937, 1e-6);
  EXPECT_NEAR(figure(figures, "f1"), 1200.0 / (1200 + 172 + 121), 1e-12);
}

// F1 of class 1 against 0 says little where there is a third class: 87 % beside an accuracy of 71 %.
TEST(Figures, ThreeClasses) {
  const auto figures = of_confusion({{70, 10, 20}, {12, 75, 13}, {15, 18, 67}});
  EXPECT_NEAR(figure(figures, "accuracy"), 212.0 / 300, 1e-12);
  EXPECT_NEAR(figure(figures, "macro_f1"), .7066, 1e-4);
  EXPECT_NEAR(figure(figures, "f1"), .8721, 1e-4);
  EXPECT_NEAR(figure(figures, "matthews"), .5601, 1e-4);
}

TEST(Figures, OneAnswerForAllCorrelatesWithNothing) {
  const auto figures = of_confusion({{3, 0}, {5, 0}});
  EXPECT_EQ(figure(figures, "matthews"), 0);
  EXPECT_EQ(figure(figures, "f1"), 0);
  EXPECT_EQ(figure(number_figures(std::vector<double>{1, 1}, std::vector<double>{1, 2}), "pearson"), 0);
  EXPECT_EQ(figure(class_figures({}, {}, 2), "accuracy"), 0);
}

TEST(Figures, Numbers) {
  const std::vector<double> answers = {1, 2, 2, 4, 9}, labels = {2, 1, 3, 4, 5};
  const auto figures = number_figures(answers, labels);
  EXPECT_NEAR(figure(figures, "pearson"), .837530, 1e-6);
  EXPECT_NEAR(figure(figures, "spearman"), .820783, 1e-6);
  EXPECT_NEAR(figure(figures, "rmse"), std::sqrt(19.0 / 5), 1e-12);
}

TEST(Figures, EveryFigureHasAMetricOfItsName) {
  for (const bool of_numbers : {false, true})
    for (const std::string& name : figure_names(of_numbers)) {
      EXPECT_EQ(metric_named(name).name, name);
      EXPECT_EQ(metric_named(name).counts_right, !of_numbers);
    }
  EXPECT_THAT(data::complaint([] { metric_named("f2"); }), testing::HasSubstr("got 'f2'"));
}

}  // namespace
}  // namespace edgewise::tasks
