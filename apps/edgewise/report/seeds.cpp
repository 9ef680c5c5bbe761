#include "report/seeds.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "table.h"

namespace edgewise::app {

Spread spread_of(const std::vector<double>& values) {
  Spread result{0, 0, values.size()};
  for (const double value : values) result.mean += value / static_cast<double>(values.size());
  for (const double value : values) result.deviation += (value - result.mean) * (value - result.mean);
  if (values.size() > 1)
    result.deviation = std::sqrt(result.deviation / static_cast<double>(values.size() - 1));
  return result;
}

std::string show(const Spread& spread, int digits) {
  std::string text = fixed(spread.mean, digits);
  if (spread.count > 1)
    text += " ± " + fixed(spread.deviation, digits) + " (" + std::to_string(spread.count) + ")";
  return text;
}

std::string recipe_but_seed(const Run& run) {
  train::Recipe same = run.recipe;
  same.train.seed = 0;
  same.data.path = same.train.device = "";
  same.train.threads = same.train.eval_every = same.train.patience = 0;
  same.train.checkpoint_every = same.train.log_every = 0;
  same.train.micro_batch = 0;
  same.train.cuda_graph = false;
  return train::to_toml(same);
}

std::vector<std::vector<Run>> by_seed(const std::vector<Run>& runs) {
  std::map<std::string, size_t> places;
  std::vector<std::vector<Run>> groups;
  for (const Run& run : runs) {
    const auto [place, is_new] = places.try_emplace(recipe_but_seed(run), groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(run);
  }
  return groups;
}

std::string group_name(const std::vector<Run>& group) {
  std::string name = group[0].name;
  for (const Run& run : group) {
    const auto [end, unused] = std::ranges::mismatch(name, run.name);
    name.resize(static_cast<size_t>(end - name.begin()));
  }
  if (group.size() == 1) return name;
  // "edge-credit-1" of "edge-credit-10" and "edge-credit-11" is cut inside of a number.
  while (!name.empty() && std::isdigit(static_cast<unsigned char>(name.back()))) name.pop_back();
  for (const std::string_view tail : {"seed", ""}) {
    while (!name.empty() && std::string_view("-_ ").find(name.back()) != std::string_view::npos)
      name.pop_back();
    if (name.ends_with(tail)) name.resize(name.size() - tail.size());
  }
  return name.empty() ? group[0].name : name;
}

train::Series mean_curve(const std::vector<Run>& group, train::Series Run::*curve) {
  std::map<double, std::vector<double>> values;  // by step
  for (const Run& run : group) {
    const train::Series& series = run.*curve;
    for (size_t n = 0; n < series.x.size(); ++n) values[series.x[n]].push_back(series.y[n]);
  }
  train::Series result{.name = group_name(group)};
  for (const auto& [step, at] : values) {
    if (at.size() < group.size()) continue;
    result.x.push_back(step);
    result.y.push_back(spread_of(at).mean);
  }
  return result;
}

}  // namespace edgewise::app
