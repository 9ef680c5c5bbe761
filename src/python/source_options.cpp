#include "python/source_options.h"

#include <charconv>
#include <map>
#include <string>

namespace edgewise::python {
namespace {

using Texts = std::map<std::string, std::string, std::less<>>;

Texts split(std::string_view text) {
  Texts result;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    TORCH_CHECK_VALUE(equals != std::string_view::npos, "edge source: expected options as name=value; got '",
                      word, "'");
    result.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return result;
}

template <typename Number>
Number number_of(const std::string& name, const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TORCH_CHECK_VALUE(error == std::errc() && end == text.data() + text.size(), "edge source: expected ", name,
                    " to be a number; got '", text, "'");
  return value;
}

bool truth_of(const std::string& name, const std::string& text) {
  TORCH_CHECK_VALUE(text == "true" || text == "false", "edge source: expected ", name,
                    " to be true or false; got '", text, "'");
  return text == "true";
}

}  // namespace

SourceOptions parse_source_options(std::string_view text, int64_t heads, int64_t head_dim) {
  Texts given = split(text);
  const auto taken = [&](std::string_view name, const auto& use) {
    const auto found = given.find(name);
    if (found == given.end()) return;
    use(found->second);
    given.erase(found);
  };
  SbmPreset preset = SbmPreset::kEdgewise;
  int64_t unit = 1;
  taken("preset", [&](const std::string& value) { preset = parse_sbm_preset(value); });
  taken("unit", [&](const std::string& value) { unit = number_of<int64_t>("unit", value); });
  SourceOptions result{SbmEdgesOptions(heads, head_dim, preset, unit)};
  SbmEdgesOptions& sbm = result.sbm;
  const auto set = [&]<typename T>(const char* name, T& place) {
    taken(name, [&](const std::string& value) {
      if constexpr (std::is_same_v<T, bool>)
        place = truth_of(name, value);
      else
        place = number_of<T>(name, value);
    });
  };
  const auto choose = [&](const char* name, auto& place, const auto& parse) {
    taken(name, [&](const std::string& value) { place = parse(value); });
  };
  set("clusters", sbm.clusters);
  set("shared_mlp", sbm.shared_mlp);
  set("initial_density", sbm.initial_density);
  choose("law", sbm.law, parse_edge_law);
  set("exploration", sbm.exploration);
  set("exploration_in_eval", sbm.exploration_in_eval);
  choose("estimator", sbm.estimator, parse_estimator);
  choose("present_form", sbm.present_form, parse_present_form);
  set("gradient_clip", sbm.gradient_clip);
  set("probe_rate", sbm.probe_rate);
  set("probes_per_row", sbm.probes_per_row);
  set("probe_unit", sbm.probe_unit);
  choose("density_penalty", sbm.density_penalty, parse_density_penalty);
  set("self_loops", sbm.self_loops);
  set("count_padding", sbm.count_padding);
  choose("sampler", sbm.sampler, parse_sampler);
  set("window", result.window);
  TORCH_CHECK_VALUE(given.empty(), "edge source: expected options that it knows; got '", given.begin()->first,
                    "'");
  return result;
}

}  // namespace edgewise::python
