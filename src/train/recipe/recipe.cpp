// Loading recipes: TOML and overrides into the fields of recipe_fields.h, then what fields must satisfy
// together.
#include <edgewise/train/recipe.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <type_traits>

#include <c10/util/Exception.h>
#include <toml++/toml.h>

#include "train/recipe/nearest_name.h"
#include "train/recipe/recipe_fields.h"
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
        }
        *slot = *value;
      },
      field.slot(recipe));
}

constexpr const char* kSections = "expected data, model, attention, sac or train";

// "; did you mean 'train.steps'?", or what to say when nothing is near.
std::string did_you_mean(const std::string& nearest, const std::string& otherwise) {
  return "; " + (nearest.empty() ? otherwise : "did you mean '" + nearest + "'?");
}

const RecipeField& known_field(std::string_view section, std::string_view key, const std::string& where) {
  const auto sections = recipe_sections();
  const bool is_known = std::find(sections.begin(), sections.end(), section) != sections.end();
  TORCH_CHECK_VALUE(is_known, where, ": unknown section '", section, "'",
                    did_you_mean(nearest_recipe_section(section), kSections));
  const RecipeField* field = find_recipe_field(section, key);
  TORCH_CHECK_VALUE(field != nullptr, where, ": unknown key '", section, ".", key, "'",
                    did_you_mean(nearest_recipe_key(section, key), "all keys: edgewise train --help-recipe"));
  return *field;
}

std::string line_of(const std::string& name, const toml::source_region& source) {
  return name + ":" + std::to_string(source.begin.line);
}

void read_tables(Recipe& recipe, const toml::table& root, const std::string& name) {
  for (const auto& [section, node] : root) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      const auto hint = nearest_recipe_key("train", section.str());
      TORCH_CHECK_VALUE(
          false, line_of(name, section.source()), ": key '", section.str(),
          "' stands outside of a section; expected it under [data], [model], [attention], [sac] or [train]",
          hint.empty() ? "" : ": did you mean '" + hint + "'?");
    }
    if (table->empty()) {
      const auto sections = recipe_sections();
      TORCH_CHECK_VALUE(std::find(sections.begin(), sections.end(), section.str()) != sections.end(),
                        line_of(name, section.source()), ": unknown section '", section.str(), "'",
                        did_you_mean(nearest_recipe_section(section.str()), kSections));
    }
    for (const auto& [key, value] : *table) {
      const std::string where = line_of(name, key.source());
      set_field(recipe, known_field(section.str(), key.str(), where), value, where);
    }
  }
}

// The value of an override: TOML where it parses as one value, else the text itself, so that quotes are not
// needed. A string field takes the text whatever it looks like: data.path=2024 is a folder.
toml::table override_value(std::string_view text, bool is_string) {
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

void read_override(Recipe& recipe, const std::string& text) {
  const std::string where = "--set " + text;
  const size_t equals = text.find('=');
  const size_t dot = text.find('.');
  TORCH_CHECK_VALUE(equals != std::string::npos && dot < equals, where,
                    ": expected section.key=value, e.g. train.steps=100");
  const std::string_view all = text;
  const RecipeField& field = known_field(all.substr(0, dot), all.substr(dot + 1, equals - dot - 1), where);
  const toml::table table = override_value(all.substr(equals + 1), is_string(field.slot(recipe)));
  set_field(recipe, field, *table.get("value"), where);
}

// Attention for texts looks at tokens up to the query's only; some kinds have no such form, some no other.
// Only what takes tokens as a set with positions computes the same without those that are masked.
void check_drop_masked(const Recipe& recipe, const std::string& name) {
  if (!recipe.data.drop_masked) return;
  const std::string& kind = recipe.attention.kind;
  TORCH_CHECK_VALUE(
      recipe.data.mask_zero && !recipe.data.fixed_length, name,
      ": expected data.drop_masked with data.mask_zero = true and data.fixed_length = false; found ",
      recipe.data.mask_zero ? "fixed_length = true" : "mask_zero = false");
  TORCH_CHECK_VALUE(
      kind == "dense" || kind == "sbm", name,
      ": expected data.drop_masked with attention.kind dense or sbm, which do not look at places in "
      "the batch; found ",
      kind);
  const bool counted = recipe.attention.count_padding.value_or(recipe.attention.preset == "published");
  TORCH_CHECK_VALUE(
      kind != "sbm" || !counted, name,
      ": expected attention.count_padding = false with data.drop_masked: what is left out cannot be "
      "counted; found it true (the default of the preset published)");
  TORCH_CHECK_VALUE(
      !recipe.train.snapshot_edges, name,
      ": expected train.snapshot_edges = false with data.drop_masked: its edges are between places in "
      "the batch, not in the sequence");
}

void check_attention(const Recipe& recipe, const std::string& name) {
  const std::string& kind = recipe.attention.kind;
  const bool is_text = recipe.data.name == "characters";
  const bool only_text = kind == "transformer_xl" || kind == "adaptive_span" || kind == "tree";
  TORCH_CHECK_VALUE(is_text || !only_text, name, ": expected attention.kind = ", kind,
                    " with data.name = characters, as it stands here for a language model; found it with ",
                    recipe.data.name);
  if (!is_text) return;
  std::string reason;
  if (kind == "reformer")
    reason = "its chunks are cut from the whole sequence in the order of its buckets";
  else if (kind == "linformer")
    reason = "it mixes all keys of the sequence into a few";
  else if (kind == "nystromformer")
    reason = "its landmarks are means over the whole sequence";
  else if (kind == "linear" || kind == "performer")
    reason = "it is built here as one sum over all keys of the sequence";
  TORCH_CHECK_VALUE(
      reason.empty(), name,
      ": a language model predicts the next character and may not see it, but attention.kind = ", kind,
      " has no causal form here: ", reason,
      ". Use dense, full, window, random, sbm, window+sbm, sac, window+sac, transformer_xl, adaptive_span or "
      "tree.");
  TORCH_CHECK_VALUE(
      recipe.sac.walk.value_or("rooted") == "rooted" || kind.find("sac") == std::string::npos, name,
      ": a language model needs sac.walk = rooted: a walk of pairs goes from token to token in any "
      "order, so that the edges of a query would depend on characters after it");
}

// The option that `edgewise data` wants for a task besides --out.
const char* source_of(const std::string& task) {
  if (task == "listops") return "";
  return task == "pathfinder" ? " --generate" : " --from FOLDER";
}

// Who shortens a run hears at once of everything that is to be lowered too.
void check_schedule(const TrainRecipe& train, const std::string& name) {
  std::string wrong, cure;
  const auto add = [&](const std::string& what, const std::string& key) {
    wrong += (wrong.empty() ? "" : ", and ") + what;
    cure += " --set train." + key + "=0";
  };
  if (train.warmup_steps > train.steps)
    add("train.warmup_steps to be at most train.steps; found " + std::to_string(train.warmup_steps) +
            " and " + std::to_string(train.steps),
        "warmup_steps");
  if (train.density_weight != 0 && train.density_start >= train.steps)
    add("train.density_start below train.steps, or the penalty would never act; found " +
            std::to_string(train.density_start) + " and " + std::to_string(train.steps),
        "density_start");
  TORCH_CHECK_VALUE(wrong.empty(), name, ": expected ", wrong, "; for a short run:", cure);
}

// Fills in what follows from other fields and checks fields against each other.
void resolve(Recipe& recipe, const std::string& name) {
  ModelRecipe& model = recipe.model;
  TrainRecipe& train = recipe.train;
  if (model.head_dim == 0) {
    TORCH_CHECK_VALUE(model.dim % model.heads == 0, name,
                      ": expected model.heads to divide model.dim; found ", model.heads, " and ", model.dim,
                      "; change one of them");
    model.head_dim = model.dim / model.heads;
  }
  TORCH_CHECK_VALUE(model.head_dim * model.heads == model.dim, name,
                    ": expected model.heads * model.head_dim = model.dim; found ", model.heads, " * ",
                    model.head_dim, " and ", model.dim);
  // A smaller batch than the micro-batch is one micro-batch: --set train.batch=8 works on any recipe.
  if (train.micro_batch == 0 || train.micro_batch > train.batch) train.micro_batch = train.batch;
  TORCH_CHECK_VALUE(train.batch % train.micro_batch == 0, name,
                    ": expected train.micro_batch to divide train.batch; found ", train.micro_batch, " and ",
                    train.batch);
  TORCH_CHECK_VALUE(recipe.attention.conv_kernel == 0 || recipe.attention.conv_kernel % 2 == 1, name,
                    ": expected attention.conv_kernel to be odd, or 0 for none; found ",
                    recipe.attention.conv_kernel);
  check_schedule(train, name);
  const std::string& task = recipe.data.name;
  const bool generated = task == "repeated_tokens" || task == "associative_recall";
  TORCH_CHECK_VALUE(
      task != "characters" || !recipe.data.path.empty(), name,
      ": expected data.path, a text file of any kind; found none; set it with --set data.path=FILE");
  TORCH_CHECK_VALUE(
      task != "characters" || model.token_dropout == 0, name,
      ": expected model.token_dropout = 0 with characters, whose model predicts them all; found ",
      model.token_dropout);
  check_attention(recipe, name);
  TORCH_CHECK_VALUE(generated || !recipe.data.path.empty(), name, ": expected data.path, the folder of the ",
                    task, " data; found none; make it with 'edgewise data ", task, source_of(task),
                    " --out DATA' and set data.path=DATA");
  TORCH_CHECK_VALUE(!recipe.data.mask_zero || task == "image" || task == "pathfinder", name,
                    ": expected data.mask_zero with image or pathfinder only; found it with ", task);
  check_drop_masked(recipe, name);
  TORCH_CHECK_VALUE(recipe.data.symmetries == "none" || task == "image" || task == "pathfinder", name,
                    ": expected data.symmetries with image or pathfinder only; found it with ", task);
  TORCH_CHECK_VALUE(recipe.data.validation == "own" || task == "text", name,
                    ": expected data.validation = test with text only; found it with ", task);
  TORCH_CHECK_VALUE(
      !(generated || task == "characters") || model.max_length == 0 || model.max_length >= recipe.data.length,
      name, ": expected model.max_length to be at least data.length; found ", model.max_length, " and ",
      recipe.data.length, "; model.max_length = 0 takes the dataset's");
}

}  // namespace

Recipe parse_recipe(std::string_view text, const std::string& name,
                    const std::vector<std::string>& overrides) {
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    TORCH_CHECK_VALUE(false, name, ":", error.source().begin.line, ":", error.source().begin.column,
                      ": expected TOML; found: ", error.description());
  }
  Recipe recipe;
  read_tables(recipe, root, name);
  for (const std::string& text_of_override : overrides) read_override(recipe, text_of_override);
  resolve(recipe, name);
  return recipe;
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::getline(file, text,
               '\0');  // all of it: TOML holds no NUL. Unlike an iterator, getline does not throw on a folder
  TORCH_CHECK(file.is_open() && !file.bad(), "load_recipe: could not read '", path,
              "': ", std::strerror(errno), "; expected a recipe, e.g. recipes/demo/edgewise.toml");
  return parse_recipe(text, path, overrides);
}

}  // namespace edgewise::train
