#include "predict/answers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace edgewise::app {
namespace {

bool are_numbers(const AnswerForm& form) {
  return form.reader && form.reader->options().answer == data::AnswerKind::kNumber;
}

double rounded(double value) {
  return std::round(value * 1e6) / 1e6;
}

}  // namespace

nlohmann::ordered_json class_json(int64_t number, const AnswerForm& form) {
  if (!form.reader) return number;
  return form.reader->options().classes[static_cast<size_t>(number)];
}

void add_answer(nlohmann::ordered_json& line, const at::Tensor& logits, const AnswerForm& form) {
  const double* const value = logits.const_data_ptr<double>();
  if (are_numbers(form)) {
    line["number"] = rounded(value[0]);
    return;
  }
  const auto classes = static_cast<size_t>(logits.numel());
  const double highest = *std::max_element(value, value + classes);
  std::vector<double> share(classes);
  for (size_t n = 0; n < classes; ++n) share[n] = std::exp(value[n] - highest);
  const double sum = std::accumulate(share.begin(), share.end(), 0.0);
  std::vector<size_t> order(classes);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t n) { return share[n]; });
  line["label"] = class_json(static_cast<int64_t>(order[0]), form);
  nlohmann::ordered_json& told = line["probabilities"] = nlohmann::ordered_json::object();
  for (size_t n = 0; n < std::min(classes, static_cast<size_t>(form.most_classes)); ++n) {
    const nlohmann::ordered_json name = class_json(static_cast<int64_t>(order[n]), form);
    told[name.is_string() ? name.get<std::string>() : name.dump()] = rounded(share[order[n]] / sum);
  }
}

std::string line_of(const nlohmann::ordered_json& line) {
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace edgewise::app
