// Loading recipes: TOML and overrides into the fields of recipe_fields.h that the kind of attention reads.
#include <edgewise/train/recipe.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <set>
#include <system_error>
#include <type_traits>

#include <c10/util/Exception.h>
#include <toml++/toml.h>

#include <edgewise/io/atomic_file.h>

#include "train/recipe/kind_names.h"
#include "train/recipe/nearest_name.h"
#include "train/recipe/old_keys.h"
#include "train/recipe/recipe_checks.h"
#include "train/recipe/recipe_fields.h"
#include "train/recipe/toml_depth.h"
#include "train/recipe/toml_number.h"

namespace edgewise::train {

namespace {

// A value as it stands in the file, for messages.
std::string shown(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  return toml_text(node);
}

template <typename Value>
struct Kind {
  using Type = Value;
};
template <typename Value>
struct Kind<std::optional<Value>> {
  using Type = Value;
};

template <typename Value>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<Value, bool>) return "true or false";
  if constexpr (std::is_same_v<Value, int64_t>) return "an integer";
  if constexpr (std::is_same_v<Value, double>) return "a number";
  return "a string";
}

// Strict but for one thing: a whole number is a number.
template <typename Value>
std::optional<Value> exact_value(const toml::node& node) {
  if constexpr (std::is_same_v<Value, double>) {
    if (const auto whole = node.value_exact<int64_t>()) return static_cast<double>(*whole);
  }
  return node.value_exact<Value>();
}

// Whatever the rule of a field: sums and products with it neither overflow nor become infinite. Seeds are
// only mixed, and the norm of the gradient is only compared.
template <typename Value>
bool is_moderate(Value value, const std::string& key) {
  if constexpr (std::is_same_v<Value, double>)
    return std::isfinite(value) && (std::abs(value) <= 1e30 || key == "grad_clip");
  if constexpr (std::is_same_v<Value, int64_t>)
    return key == "seed" || (value <= int64_t{1} << 53 && value >= -(int64_t{1} << 53));
  return true;
}

void set_field(Recipe& recipe, const RecipeField& field, const toml::node& node, const std::string& where) {
  std::visit(
      [&](auto* slot) {
        using Value = typename Kind<std::remove_pointer_t<decltype(slot)>>::Type;
        const std::string rule = field.rule.describe();
        const std::optional<Value> value = exact_value<Value>(node);
        TORCH_CHECK_VALUE(value.has_value(), where, ": expected ", field.full_name(), " to be ",
                          type_name<Value>(), rule.empty() ? "" : ", " + rule, "; found ", shown(node));
        if constexpr (std::is_same_v<Value, std::string>) {
          const std::string nearest = nearest_name(*value, field.rule.names);
          TORCH_CHECK_VALUE(field.rule.allows(*value), where, ": expected ", field.full_name(), " to be ",
                            rule, "; found '", *value, "'",
                            nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
        } else if constexpr (!std::is_same_v<Value, bool>) {
          TORCH_CHECK_VALUE(field.rule.allows(static_cast<double>(*value)), where, ": expected ",
                            field.full_name(), " to be ", rule, "; found ", shown(node));
          TORCH_CHECK_VALUE(
              is_moderate(*value, field.key), where, ": expected ", field.full_name(), " to be a number ",
              std::is_same_v<Value, double> ? "between -1e30 and 1e30" : "between -2^53 and 2^53", "; found ",
              shown(node));
        }
        *slot = *value;
      },
      field.slot(recipe));
}

// "data, model, attention, sbm or train".
std::string section_names() {
  std::string text;
  const std::vector<std::string> sections = recipe_sections();
  for (size_t n = 0; n < sections.size(); ++n)
    text += (n == 0 ? "" : n + 1 == sections.size() ? " or " : ", ") + sections[n];
  return text;
}

// "; did you mean 'train.steps'?", or what to say when nothing is near.
std::string did_you_mean(const std::string& nearest, const std::string& otherwise) {
  return "; " + (nearest.empty() ? otherwise : "did you mean '" + nearest + "'?");
}

void check_section(std::string_view section, const std::string& where) {
  const auto sections = recipe_sections();
  TORCH_CHECK_VALUE(std::ranges::find(sections, section) != sections.end(), where, ": unknown section '",
                    section, "'",
                    did_you_mean(nearest_recipe_section(section), "expected " + section_names()));
}

const RecipeField& known_field(std::string_view section, std::string_view key, const std::string& where) {
  check_section(section, where);
  const RecipeField* field = find_recipe_field(section, key);
  TORCH_CHECK_VALUE(field != nullptr, where, ": unknown key '", section, ".", key, "'",
                    did_you_mean(nearest_recipe_key(section, key), "all keys: edgewise train --help-recipe"));
  return *field;
}

std::string line_of(const std::string& name, const toml::source_region& source) {
  return name + ":" + std::to_string(source.begin.line);
}

// A key as it is given, in the file or by an override.
struct Entry {
  std::string section, key;
  const toml::node* node;
  std::string where;
  bool is_override;

  // Whether it decides which other keys count.
  bool is_choice() const {
    return (section == "attention" &&
            (key == "kind" || key == "edges" || key == "decoder" || key == "cross")) ||
           (section == "data" && key == "name");
  }
};

std::vector<Entry> entries_of(const toml::table& root, const std::string& name) {
  std::vector<Entry> entries;
  for (const auto& [section, node] : root) {
    const toml::table* table = node.as_table();
    const std::string where = line_of(name, section.source());
    if (table == nullptr) {
      const auto hint = nearest_recipe_key("train", section.str());
      TORCH_CHECK_VALUE(false, where, ": key '", section.str(),
                        "' stands outside of a section; expected it under [data], [model], [attention], "
                        "[train] or the section of an attention",
                        hint.empty() ? "" : ": did you mean '" + hint + "'?");
    }
    if (table->empty()) check_section(section.str(), where);
    for (const auto& [key, value] : *table)
      entries.push_back(
          {std::string(section.str()), std::string(key.str()), &value, line_of(name, key.source()), false});
  }
  return entries;
}

// The value of an override: TOML where it parses as one value, else the text itself, so that quotes are not
// needed. A string field takes the text whatever it looks like: data.path=2024 is a folder.
toml::table override_value(std::string_view text, bool is_string) {
  if (too_deep_line(text)) return toml::table{{"value", text}};
  try {
    toml::table table = toml::parse("value = " + std::string(text));
    const bool is_one_value = table.size() == 1 && table.contains("value");
    if (is_one_value && (!is_string || table.get("value")->is_string())) return table;
  } catch (const toml::parse_error&) {
  }
  return toml::table{{"value", text}};
}

bool is_string(const FieldSlot& slot) {
  return std::holds_alternative<std::string*>(slot) ||
         std::holds_alternative<std::optional<std::string>*>(slot);
}

// `read` keeps the values.
Entry override_entry(const std::string& text, std::deque<toml::table>& read) {
  const std::string where = "--set " + text;
  const size_t equals = text.find('=');
  const size_t dot = text.find('.');
  TORCH_CHECK_VALUE(equals != std::string::npos && dot < equals, where,
                    ": expected section.key=value, e.g. train.steps=100");
  Entry entry{text.substr(0, dot), text.substr(dot + 1, equals - dot - 1), nullptr, where, true};
  Recipe scratch;
  const RecipeField* const field = find_recipe_field(entry.section, entry.key);
  const bool text_wanted = field && is_string(field->slot(scratch));
  read.push_back(override_value(std::string_view(text).substr(equals + 1), text_wanted));
  entry.node = read.back().get("value");
  return entry;
}

// "sbm and window+sbm read it".
std::string readers_of(const std::string& section) {
  const std::vector<std::string> kinds = kinds_that_read(section);
  std::string text;
  for (size_t n = 0; n < kinds.size(); ++n)
    text += (n == 0 ? "" : n + 1 == kinds.size() ? " and " : ", ") + kinds[n];
  return text + (kinds.size() == 1 ? " reads it" : " read it");
}

class Reader {
 public:
  explicit Reader(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  Recipe read() {
    for (const Entry& entry : entries_)
      if (entry.is_choice()) {
        set_field(recipe_, known_field(entry.section, entry.key, entry.where), *entry.node, entry.where);
        if (!entry.is_override) file_kind_ = recipe_.attention.kind;
        if (entry.is_override) overridden_.insert(entry.section);
        if (entry.key == "edges") edges_are_override_ = entry.is_override;
      }
    // The edges that the file chose for another kind.
    if (overridden_.contains("attention") && !edges_are_override_ && !takes_edges(recipe_))
      recipe_.attention.edges.reset();
    for (const Entry& entry : entries_)
      if (!entry.is_choice()) read_entry(entry);
    check_old_head_dim(recipe_, head_dim_);
    if (!snapshot_switch_.where.empty())
      apply_snapshot_switch(recipe_, snapshot_switch_.where, snapshot_switch_.value);
    return recipe_;
  }

 private:
  void read_entry(const Entry& entry) {
    const std::string& kind = entry.is_override ? recipe_.attention.kind : file_kind_;
    const OldKey old = old_key(entry.section, entry.key, kind);
    if (old.is_gone) return read_gone(entry, old);
    const RecipeField& field = known_field(old.section, old.key, entry.where);
    const bool for_another_kind = !entry.is_override && overridden_.contains("attention");
    if (reads_section(recipe_, field.section) &&
        (!for_another_kind || reads_key(recipe_, field.section, field.key)))
      return set_field(recipe_, field, *entry.node, entry.where);
    // Still a value that must be right.
    Recipe aside;
    set_field(aside, field, *entry.node, entry.where);
    if (for_another_kind && reads_section(recipe_, field.section)) return;
    // Former versions wrote down what no kind of the run reads.
    if (old.was_renamed && aside == Recipe()) return;
    const bool is_of_task = kinds_that_read(field.section).empty();
    // What the file says for another kind, or for another task.
    if (!entry.is_override && overridden_.contains(is_of_task ? "data" : "attention")) return;
    TORCH_CHECK_VALUE(!is_of_task, entry.where, ": ", field.full_name(),
                      " is not read by data.name = ", recipe_.data.name, ". Leave it out, or choose ",
                      field.section);
    TORCH_CHECK_VALUE(false, entry.where, ": ", field.full_name(),
                      " is not read by attention.kind = ", recipe_.attention.kind, "; ",
                      readers_of(field.section), ". Leave it out, or choose another attention.kind");
  }

  void read_gone(const Entry& entry, const OldKey& old) {
    if (old.is_head_dim) {
      head_dim_ = {entry.where, toml_text(*entry.node)};
      return;
    }
    if (old.is_snapshot_switch) {
      snapshot_switch_ = {entry.where, toml_text(*entry.node)};
      return;
    }
    TORCH_CHECK_VALUE(toml_text(*entry.node) == old.only_value, entry.where, ": ", entry.section, ".",
                      entry.key, " is gone, and ",
                      old.only_value.empty() ? "the preset decides it" : "it is always " + old.only_value,
                      " now; found ", shown(*entry.node), ". ", old.instead);
  }

  std::vector<Entry> entries_;
  Recipe recipe_;
  std::string file_kind_ = recipe_.attention.kind;
  std::set<std::string> overridden_;  // sections whose choice is not the file's
  bool edges_are_override_ = false;
  OldHeadDim head_dim_;
  struct {
    std::string where, value;
  } snapshot_switch_;  // train.snapshot_edges
};

// A path of a recipe starts at its folder, one of an override where the program was called. Run folders hold
// absolute ones; those of former versions started where the program was called.
void make_absolute(std::string& place, const std::string& key, const std::string& file,
                   const std::vector<std::string>& overrides) {
  if (place.empty()) return;
  const bool is_override =
      std::ranges::any_of(overrides, [&](const std::string& text) { return text.starts_with(key + "="); });
  const std::filesystem::path recipe = std::filesystem::absolute(file);
  const bool is_of_run = recipe.filename() == "config.toml";
  const std::filesystem::path start =
      is_override || is_of_run ? std::filesystem::current_path() : recipe.parent_path();
  place = (start / place).lexically_normal().string();
}

}  // namespace

Recipe parse_recipe(std::string_view text, const std::string& name,
                    const std::vector<std::string>& overrides) {
  check_toml_depth(text, name);
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    TORCH_CHECK_VALUE(false, name, ":", error.source().begin.line, ":", error.source().begin.column,
                      ": expected TOML; found: ", error.description());
  }
  std::vector<Entry> entries = entries_of(root, name);
  std::deque<toml::table> read;
  for (const std::string& text_of_override : overrides)
    entries.push_back(override_entry(text_of_override, read));
  Recipe recipe = Reader(std::move(entries)).read();
  resolve_recipe(recipe, name);
  return recipe;
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  std::string text;
  try {
    text = io::read_text(path);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, "load_recipe: could not read '", path, "': ", error.code().message(),
                      "; expected a recipe, e.g. recipes/demo/edgewise.toml");
  }
  Recipe recipe = parse_recipe(text, path, overrides);
  make_absolute(recipe.data.path, "data.path", path, overrides);
  make_absolute(recipe.train.weights, "train.weights", path, overrides);
  return recipe;
}

}  // namespace edgewise::train
