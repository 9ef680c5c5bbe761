#include "sweep/sweep_file.h"

#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <toml++/toml.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "train/recipe/nearest_name.h"
#include "train/recipe/toml_depth.h"
#include "train/recipe/toml_number.h"

namespace edgewise::app {
namespace {

// A key of a recipe with the values that it takes, as TOML text.
struct Setting {
  std::string key;  // "train.seed"
  std::vector<std::string> values;
};

struct Row {
  std::string name;
  std::filesystem::path recipe;
  int64_t stage = 1;
  std::vector<int64_t> seeds;
  std::vector<Setting> settings;
};

std::string shown_kind(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  return train::toml_text(node);
}

void check_keys(const toml::table& table, const std::vector<std::string>& known, const std::string& where) {
  for (const auto& [key, node] : table) {
    if (std::ranges::find(known, key.str()) != known.end()) continue;
    std::string all;
    for (const std::string& name : known) all += (all.empty() ? "" : ", ") + name;
    const std::string nearest = train::nearest_name(key.str(), known);
    TORCH_CHECK_VALUE(false, where, ": unknown key '", key.str(), "'",
                      nearest.empty() ? "; expected one of " + all : "; did you mean '" + nearest + "'?");
  }
}

template <typename Value>
std::optional<Value> value_of(const toml::table& table, const char* key, const char* kind,
                              const std::string& where) {
  const toml::node* node = table.get(key);
  if (!node) return std::nullopt;
  std::optional<Value> value = node->value_exact<Value>();
  TORCH_CHECK_VALUE(value.has_value(), where, ": expected ", key, " to be ", kind, "; found ",
                    shown_kind(*node));
  return value;
}

std::vector<int64_t> seeds_of(const toml::table& table, const std::string& where,
                              std::vector<int64_t> otherwise) {
  const toml::node* node = table.get("seeds");
  if (!node) return otherwise;
  const toml::array* list = node->as_array();
  TORCH_CHECK_VALUE(list && !list->empty(), where, ": expected seeds to be a list, e.g. [0, 1, 2]; found ",
                    list ? "an empty one" : shown_kind(*node));
  std::vector<int64_t> seeds;
  for (const toml::node& item : *list) {
    const auto seed = item.value_exact<int64_t>();
    TORCH_CHECK_VALUE(seed && *seed >= 0, where, ": expected seeds to be whole numbers from 0; found ",
                      shown_kind(item));
    TORCH_CHECK_VALUE(std::ranges::find(seeds, *seed) == seeds.end(), where,
                      ": expected every seed once; found ", *seed, " twice");
    seeds.push_back(*seed);
  }
  return seeds;
}

// [set] or row.set: sections with keys, a list standing for several values.
std::vector<Setting> settings_of(const toml::table& table, const std::string& where) {
  const toml::node* node = table.get("set");
  if (!node) return {};
  TORCH_CHECK_VALUE(node->is_table(), where,
                    ": expected set to hold keys of recipes, e.g. "
                    "set.train.batch = 32; found ",
                    shown_kind(*node));
  std::vector<Setting> settings;
  for (const auto& [section, inner] : *node->as_table()) {
    const toml::table* keys = inner.as_table();
    TORCH_CHECK_VALUE(keys, where, ": expected set.SECTION.KEY, e.g. set.train.batch = 32; found set.",
                      section.str(), " = ", shown_kind(inner));
    for (const auto& [key, value] : *keys) {
      Setting setting{std::string(section.str()) + "." + std::string(key.str()), {}};
      TORCH_CHECK_VALUE(setting.key != "train.seed", where,
                        ": expected seeds in the key seeds; found set.train.seed");
      TORCH_CHECK_VALUE(!value.is_table(), where, ": expected a value or a list of values for set.",
                        setting.key, "; found a table");
      if (const toml::array* list = value.as_array()) {
        TORCH_CHECK_VALUE(!list->empty(), where, ": expected values in the list set.", setting.key,
                          "; it is empty");
        for (const toml::node& item : *list) {
          TORCH_CHECK_VALUE(!item.is_table() && !item.is_array(), where,
                            ": expected plain values in the list set.", setting.key, "; found ",
                            shown_kind(item));
          setting.values.push_back(train::toml_text(item));
        }
      } else {
        setting.values.push_back(train::toml_text(value));
      }
      settings.push_back(std::move(setting));
    }
  }
  return settings;
}

// Names become folders, and words of a command line.
void check_name(const std::string& name, const std::string& where) {
  const bool fits =
      !name.empty() && name[0] != '.' && name[0] != '-' && std::ranges::all_of(name, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
      });
  TORCH_CHECK_VALUE(fits, where, ": expected a name of letters, digits, '.', '-' and '_'; found '", name,
                    "'");
}

Row row_of(const toml::node& node, const std::filesystem::path& file, const std::vector<int64_t>& seeds,
           size_t number) {
  std::string where = file.string() + ", row " + std::to_string(number);
  const toml::table* table = node.as_table();
  TORCH_CHECK_VALUE(table, where, ": expected a [[row]]; found ", shown_kind(node));
  const auto name = value_of<std::string>(*table, "name", "a string", where);
  TORCH_CHECK_VALUE(name.has_value(), where, ": expected name = \"...\"; it has none");
  check_name(*name, where);
  where = file.string() + ", row " + *name;
  check_keys(*table, {"name", "recipe", "stage", "seeds", "set"}, where);
  const auto recipe = value_of<std::string>(*table, "recipe", "a string", where);
  TORCH_CHECK_VALUE(recipe.has_value(), where, ": expected recipe = \"FILE.toml\", from the folder of ",
                    file.string(), "; it has none");
  return {.name = *name,
          .recipe = file.parent_path() / *recipe,
          .stage = value_of<int64_t>(*table, "stage", "a whole number", where).value_or(1),
          .seeds = seeds_of(*table, where, seeds),
          .settings = settings_of(*table, where)};
}

// A row for every choice of values from the lists of its settings; their values make its name longer.
std::vector<Row> spread_out(const Row& row) {
  std::vector<Row> rows = {row};
  rows[0].settings.clear();
  for (const Setting& setting : row.settings) {
    std::vector<Row> longer;
    for (const Row& before : rows)
      for (const std::string& value : setting.values) {
        Row next = before;
        next.settings.push_back({setting.key, {value}});
        if (setting.values.size() > 1) {
          std::string word = value;
          std::erase_if(word, [](char c) { return c == '"' || c == '\''; });
          next.name += "-" + word;
        }
        longer.push_back(std::move(next));
      }
    rows = std::move(longer);
  }
  return rows;
}

KeptWeights kept_weights(const std::string& name, const std::string& where) {
  const std::map<std::string, KeptWeights> known = {{"all", KeptWeights::kAll},
                                                    {"best", KeptWeights::kBest},
                                                    {"first", KeptWeights::kFirst},
                                                    {"none", KeptWeights::kNone}};
  const auto found = known.find(name);
  TORCH_CHECK_VALUE(found != known.end(), where, ": expected weights to be all, best, first or none; found '",
                    name, "'");
  return found->second;
}

SweepRun run_of(const Row& row, int64_t seed, const std::vector<Setting>& common,
                const std::vector<std::string>& overrides, const std::string& where) {
  SweepRun run;
  run.name = row.name + "-" + std::to_string(seed);
  run.row = row.name;
  run.seed = seed;
  run.recipe_file = row.recipe;
  for (const auto* settings : {&common, &row.settings})
    for (const Setting& setting : *settings) run.overrides.push_back(setting.key + "=" + setting.values[0]);
  run.overrides.push_back("train.seed=" + std::to_string(seed));
  run.overrides.insert(run.overrides.end(), overrides.begin(), overrides.end());
  try {
    run.recipe = train::load_recipe(run.recipe_file.string(), run.overrides);
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(false, where, ", row ", row.name, ": ", error.what_without_backtrace());
  }
  return run;
}

toml::table parse(const std::filesystem::path& file) {
  try {
    const std::string text = io::read_text(file);
    train::check_toml_depth(text, file.string());
    return toml::parse(text, file.string());
  } catch (const toml::parse_error& error) {
    TORCH_CHECK_VALUE(false, file.string(), ":", error.source().begin.line, ": expected TOML; ",
                      error.description());
  }
}

}  // namespace

Sweep load_sweep(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  const std::string where = file.string();
  for (const std::string& text : overrides)
    TORCH_CHECK_VALUE(!text.starts_with("train.seed"), "--set ", text, ": expected seeds in ", where,
                      " (seeds = [...]), not in --set");
  const toml::table root = parse(file);
  check_keys(root, {"runs", "seeds", "weights", "set", "row"}, where);
  Sweep sweep;
  sweep.folder = value_of<std::string>(root, "runs", "a string", where)
                     .value_or((std::filesystem::path("runs") / file.stem()).string());
  const KeptWeights kept =
      kept_weights(value_of<std::string>(root, "weights", "a string", where).value_or("all"), where);
  const std::vector<int64_t> seeds = seeds_of(root, where, {0});
  const std::vector<Setting> common = settings_of(root, where);
  for (const Setting& setting : common)
    TORCH_CHECK_VALUE(setting.values.size() == 1, where, ": expected one value for set.", setting.key,
                      ", which is of all rows; found a list. Lists stand in rows");
  const toml::array* listed = root.get_as<toml::array>("row");
  TORCH_CHECK_VALUE(listed && !listed->empty(), where, ": expected rows, [[row]]; it has none");
  std::vector<Row> rows;
  for (size_t n = 0; n < listed->size(); ++n)
    for (Row& row : spread_out(row_of(*listed->get(n), file, seeds, n + 1))) rows.push_back(std::move(row));

  std::vector<std::tuple<int64_t, size_t, size_t>> order;  // stage, place of the seed, row
  std::set<std::string> names;
  for (size_t n = 0; n < rows.size(); ++n) {
    check_name(rows[n].name, where + ", row " + rows[n].name);
    TORCH_CHECK_VALUE(names.insert(rows[n].name).second, where, ": expected rows of different names; found ",
                      rows[n].name, " twice");
    sweep.rows.push_back(rows[n].name);
    for (size_t seed = 0; seed < rows[n].seeds.size(); ++seed) order.emplace_back(rows[n].stage, seed, n);
  }
  std::ranges::sort(order);
  for (const auto& [stage, seed, n] : order) {
    SweepRun run = run_of(rows[n], rows[n].seeds[seed], common, overrides, where);
    run.keeps_all = kept == KeptWeights::kAll;
    run.keeps_best = kept == KeptWeights::kBest || (kept == KeptWeights::kFirst && seed == 0);
    sweep.runs.push_back(std::move(run));
  }
  return sweep;
}

}  // namespace edgewise::app
