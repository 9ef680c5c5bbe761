// Recipes as text: the resolved TOML file, and the help that lists every key.
#include <array>
#include <cstdio>
#include <type_traits>

#include <edgewise/train/recipe.h>

#include "train/recipe/recipe_fields.h"
#include "train/recipe/toml_number.h"

namespace edgewise::train {

namespace {

std::string toml_value(bool value) {
  return value ? "true" : "false";
}
std::string toml_value(int64_t value) {
  return std::to_string(value);
}
std::string toml_value(double value) {
  return toml_number(value);
}
std::string toml_value(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (code < 0x20 || code == 0x7f) {
      std::array<char, 8> escape;
      std::snprintf(escape.data(), escape.size(), "\\u%04X", code);
      text += escape.data();
    } else {
      text += c;
    }
  }
  return text + '"';
}

// Empty when the field is an override that is not set.
std::string value_of(const RecipeField& field, Recipe& recipe) {
  return std::visit(
      [](const auto* slot) -> std::string {
        if constexpr (requires { slot->has_value(); }) {
          return slot->has_value() ? toml_value(**slot) : "";
        } else {
          return toml_value(*slot);
        }
      },
      field.slot(recipe));
}

}  // namespace

std::string to_toml(const Recipe& recipe) {
  Recipe copy = recipe, defaults;  // a slot points into a recipe that may be changed
  // What another kind of attention reads tells nothing of this run. If it is no default it stays all the
  // same: the text loads back to an equal recipe.
  const auto is_told = [&](const RecipeField& field, const std::string& value) {
    return field.is_read_by(recipe.attention.kind) || value != value_of(field, defaults);
  };
  std::string text;
  for (const std::string& section : recipe_sections()) {
    std::string lines;
    for (const RecipeField& field : recipe_fields()) {
      const std::string value = field.section == section ? value_of(field, copy) : "";
      if (!value.empty() && is_told(field, value)) lines += field.key + " = " + value + "\n";
    }
    if (!lines.empty()) text += (text.empty() ? "[" : "\n[") + section + "]\n" + lines;
  }
  return text;
}

std::string recipe_help() {
  Recipe defaults;
  std::string text =
      "A recipe is a TOML file; --set section.key=value beats it. Every key, its default and its meaning:\n";
  for (const std::string& section : recipe_sections()) {
    text += "\n[" + section + "]\n";
    for (const RecipeField& field : recipe_fields()) {
      if (field.section != section) continue;
      std::string line = "  " + field.key;
      line.resize(std::max<size_t>(line.size() + 1, 24), ' ');
      const std::string value = value_of(field, defaults);
      line += !value.empty() ? value : section == "sac" ? "(unset)" : "(preset)";
      line.resize(std::max<size_t>(line.size() + 1, 44), ' ');
      const std::string rule = field.rule.describe();
      text += line + field.meaning + (rule.empty() ? "" : " (" + rule + ")") + "\n";
    }
  }
  return text;
}

}  // namespace edgewise::train
