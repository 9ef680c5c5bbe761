#include "validators.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
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

std::string expected(const std::string& what, const std::string& text) {
  return "expected " + what + "; got '" + text + "'";
}

CLI::Validator expecting(const std::string& what, const std::function<bool(const std::string&)>& allows) {
  return {[=](std::string& text) { return allows(text) ? std::string() : expected(what, text); }, ""};
}

// Digits alone, and more than fit.
bool too_large(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc::result_out_of_range && end == text.data() + text.size() && text[0] != '-';
}

// A number that is infinite, too large for a double, or none ("nan"): that it is to be finite is what is
// wrong.
bool not_finite(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && !std::isfinite(value);
}

CLI::Validator finite(const std::string& what, const std::function<bool(double)>& allows) {
  return {[=](std::string& text) -> std::string {
            const auto value = parse<double>(text);
            if (value && std::isfinite(*value) && allows(*value)) return {};
            return expected((not_finite(text) ? "a finite " : "a ") + what, text);
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
  return {[=](std::string& text) -> std::string {
            const auto value = parse<int64_t>(text);
            if (value && *value >= least) return {};
            const std::string from = std::to_string(least);
            return expected(too_large(text) ? "a whole number from " + from + " to " +
                                                  std::to_string(std::numeric_limits<int64_t>::max())
                                            : "a whole number of at least " + from,
                            text);
          },
          ""};
}

CLI::Validator number_of_at_least(double least) {
  return finite("number of at least " + shown(least), [=](double value) { return value >= least; });
}

CLI::Validator number_above(double bound) {
  return finite("number above " + shown(bound), [=](double value) { return value > bound; });
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
