#include "report/lra_differences.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "report/student.h"

namespace edgewise::app {
namespace {

// Of the rows that fit, the one whose density is nearest, within a factor of two.
const LraRow* nearest_density(const LraRow& row, const std::vector<LraRow>& rows,
                              const std::function<bool(const LraRow&)>& fits) {
  const LraRow* best = nullptr;
  double distance = std::log(2.0);
  if (!row.density() || *row.density() <= 0) return nullptr;
  for (const LraRow& other : rows) {
    if (&other == &row || !same_protocol(row, other) || other.is_variation || !fits(other)) continue;
    if (!other.density() || *other.density() <= 0) continue;
    const double away = std::abs(std::log(*other.density() / *row.density()));
    if (away > distance) continue;
    distance = away;
    best = &other;
  }
  return best;
}

}  // namespace

std::string LraDifference::verdict() const {
  constexpr size_t kFewest = 3;
  if (seeds < kFewest || !error) return "not known";
  if (std::abs(mean) <= 2 * *error) return "level";
  return mean > 0 ? "above" : "below";
}

LraDifference difference_of(const LraRow& row, const LraRow& against, const std::string& question) {
  LraDifference result{.row = &row, .against = &against, .question = question};
  std::vector<double> differences;
  for (size_t n = 0; n < row.seeds.size(); ++n) {
    const auto found = std::ranges::find(against.seeds, row.seeds[n]);
    if (found == against.seeds.end()) continue;
    differences.push_back(row.accuracy[n] -
                          against.accuracy[static_cast<size_t>(found - against.seeds.begin())]);
  }
  const Spread spread = spread_of(differences);
  result.seeds = spread.count;
  result.mean = spread.mean;
  if (spread.count < 2) return result;
  const double count = static_cast<double>(spread.count);
  result.error = spread.deviation / std::sqrt(count);
  if (*result.error > 0) result.p = student_p(result.mean / *result.error, count - 1);
  return result;
}

std::vector<LraDifference> lra_differences(const std::vector<LraRow>& rows, size_t task) {
  std::vector<LraDifference> result;
  const auto add = [&](const LraRow& row, const LraRow* against, const std::string& question) {
    if (!against) return;
    LraDifference found = difference_of(row, *against, question);
    if (found.seeds > 0) result.push_back(std::move(found));
  };
  for (const LraRow& row : rows) {
    if (row.task != task || !row.learns_edges()) continue;
    // Every dense row: one may have a better learning rate of its own.
    for (const LraRow& dense : rows)
      if (dense.family == LraFamily::kDense && same_protocol(row, dense)) add(row, &dense, "than dense");
    const auto is_random = [&](const LraRow& other) {
      return other.is_random() && other.has_squares() == row.has_squares();
    };
    add(row, nearest_density(row, rows, is_random), "than random of its density");
    if (row.family == LraFamily::kEdges || row.family == LraFamily::kSquares)
      for (const LraRow& published : rows)
        if (published.family == LraFamily::kPublished && same_protocol(row, published))
          add(row, &published, "than published");
    if (row.family == LraFamily::kSquares)
      add(row,
          nearest_density(row, rows, [](const LraRow& other) { return other.family == LraFamily::kEdges; }),
          "than single edges of its density");
  }
  return result;
}

}  // namespace edgewise::app
