// The one list of a recipe's fields. Reading, writing, checking and the help text all go through it.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <edgewise/train/recipe.h>

namespace edgewise::train {

// Where a field lives inside a recipe; its alternative is its type. An optional field may stay unset.
using FieldSlot = std::variant<bool*, int64_t*, double*, std::string*, std::optional<bool>*,
                               std::optional<int64_t>*, std::optional<double>*, std::optional<std::string>*>;

// What a field's value may be.
struct FieldRule {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_is_allowed = true;
  bool high_is_allowed = true;
  std::vector<std::string> names = {};  // the allowed strings; empty = any

  std::string describe() const;  // "one of a, b", "at least 1", "in [0, 1)"; empty when anything goes
  bool allows(double value) const;
  bool allows(const std::string& value) const;
};

struct RecipeField {
  std::string section, key;
  std::function<FieldSlot(Recipe&)> slot;
  std::string meaning;
  FieldRule rule = {};
  std::string unset = {};  // of an optional field: what holds where it is not set

  std::string full_name() const { return section + "." + key; }
};

// Its value as TOML; empty where it is optional and not set.
std::string field_value(const RecipeField& field, Recipe& recipe);

const std::vector<RecipeField>& recipe_fields();  // in the order of the file
std::vector<std::string> recipe_sections();
// Whether every run reads it: data, model, attention and train.
bool is_of_everybody(std::string_view section);
// An attention or a task of a program's own, and the keys of its section; `choice` is the field that names
// it. Throws when there is a section of that name.
void add_own_fields(const std::string& choice, const std::string& section,
                    const std::vector<OwnOption>& options);
const RecipeField* find_recipe_field(std::string_view section, std::string_view key);  // null when unknown
// The known key nearest to a misspelt one: "train.steps". A right key in a wrong section is nearest of all.
// These two are empty when none is near.
std::string nearest_recipe_key(std::string_view section, std::string_view key);
std::string nearest_recipe_section(std::string_view section);

}  // namespace edgewise::train
