// Recipes as text: the resolved TOML file.
#include <array>
#include <cstdio>
#include <type_traits>

#include <edgewise/train/recipe.h>

#include "train/recipe/kind_names.h"
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

}  // namespace

std::string field_value(const RecipeField& field, Recipe& recipe) {
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

std::string to_toml(const Recipe& recipe) {
  Recipe copy = recipe;  // a slot points into a recipe that may be changed
  std::string text;
  for (const std::string& section : recipe_sections()) {
    if (!reads_section(recipe, section)) continue;
    std::string lines;
    for (const RecipeField& field : recipe_fields()) {
      const bool is_read = field.section == section && reads_key(recipe, section, field.key);
      const std::string value = is_read ? field_value(field, copy) : "";
      if (!value.empty()) lines += field.key + " = " + value + "\n";
    }
    if (!lines.empty()) text += (text.empty() ? "[" : "\n[") + section + "]\n" + lines;
  }
  return text;
}

}  // namespace edgewise::train
