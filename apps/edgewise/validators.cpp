#include "validators.h"

#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <sstream>

#include "usage.h"

namespace edgewise::app {
namespace {

// The whole text as one number; nothing else, and nothing that does not fit.
template <typename Number>
std::optional<Number> parse(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

CLI::Validator expecting(const std::string& what, const std::function<bool(const std::string&)>& allows) {
  return {[=](std::string& text) {
            return allows(text) ? std::string() : "expected " + what + "; got '" + text + "'";
          },
          ""};
}

std::string shown(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

CLI::Validator whole_number(int64_t least) {
  return expecting("a whole number of at least " + std::to_string(least), [=](const std::string& text) {
    const auto value = parse<int64_t>(text);
    return value && *value >= least;
  });
}

CLI::Validator number_of_at_least(double least) {
  return expecting("a number of at least " + shown(least), [=](const std::string& text) {
    const auto value = parse<double>(text);
    return value && std::isfinite(*value) && *value >= least;
  });
}

CLI::Validator number_above(double bound) {
  return expecting("a number above " + shown(bound), [=](const std::string& text) {
    const auto value = parse<double>(text);
    return value && std::isfinite(*value) && *value > bound;
  });
}

CLI::Validator number_between(double least, double most) {
  return expecting("a number from " + shown(least) + " to " + shown(most), [=](const std::string& text) {
    const auto value = parse<double>(text);
    return value && *value >= least && *value <= most;
  });
}

CLI::Validator one_of(std::vector<std::string> names) {
  return {[names](std::string& text) -> std::string {
            for (const std::string& name : names)
              if (name == text) return {};
            return "expected " + joined(names, "or") + "; got '" + text + "'" + did_you_mean(text, names);
          },
          ""};
}

}  // namespace edgewise::app
