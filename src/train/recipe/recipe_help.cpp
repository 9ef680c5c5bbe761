// What a recipe may hold, section by section: for a terminal, and as the tables of a page.
#include <algorithm>
#include <type_traits>

#include <edgewise/train/recipe.h>

#include "train/recipe/kind_names.h"
#include "train/recipe/recipe_fields.h"

namespace edgewise::train {
namespace {

struct Section {
  std::string_view name, meaning;
};
constexpr Section kSections[] = {{"data", "what is learned"},
                                 {"model", "the Transformer"},
                                 {"attention", "which attention; its options have a section of their own"},
                                 {"window", "the neighbours of every query"},
                                 {"segments", "pieces of the sequence, each with what stands before it"},
                                 {"random", "keys drawn uniformly"},
                                 {"sbm", "edges sampled from a stochastic block model"},
                                 {"sac", "edges that an LSTM predicts"},
                                 {"indexer", "the best keys by a cheap score of their own"},
                                 {"train", "how it is trained"}};

std::string meaning_of(const std::string& section) {
  const auto found = std::ranges::find(kSections, section, &Section::name);
  if (found != std::end(kSections)) return std::string(found->meaning);
  // A section of one attention or one task, called like it.
  return kinds_that_read(section).empty() ? task_meaning(section) : attention_meaning(section);
}

std::string readers_of(const std::string& section) {
  std::string text;
  for (const std::string& kind : kinds_that_read(section)) text += (text.empty() ? "" : ", ") + kind;
  return text;
}

std::string type_of(const RecipeField& field, Recipe& recipe) {
  return std::visit(
      [](const auto* slot) -> std::string {
        using Value = std::remove_cvref_t<decltype(*slot)>;
        if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, std::optional<bool>>)
          return "true or false";
        else if constexpr (std::is_same_v<Value, int64_t> || std::is_same_v<Value, std::optional<int64_t>>)
          return "integer";
        else if constexpr (std::is_same_v<Value, double> || std::is_same_v<Value, std::optional<double>>)
          return "number";
        else
          return "string";
      },
      field.slot(recipe));
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

// A cell of a table in Markdown.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return "| " + text + " ";
}

class Help {
 public:
  explicit Help(HelpForm form) : markdown_(form == HelpForm::kMarkdown) {}

  std::string text() {
    std::string text = markdown_ ? ""
                                 : "A recipe is a TOML file; --set section.key=value beats it. Every key, "
                                   "its default and its meaning:\n";
    for (const std::string& section : recipe_sections()) {
      text += heading(section);
      for (const RecipeField& field : recipe_fields())
        if (field.section == section) text += line(field);
      if (section == "attention") text += list("kind", attention_names(), attention_meaning);
      if (section == "data") text += list("name", task_names(), task_meaning);
    }
    return text;
  }

 private:
  std::string heading(const std::string& section) const {
    const std::string readers = readers_of(section);
    if (markdown_)
      return "\n## `[" + section + "]`\n\n" + meaning_of(section) +
             (readers.empty() ? "" : ". Read by `attention.kind` = " + readers) +
             ".\n\n| key | type | default | meaning | values |\n| --- | --- | --- | --- | --- |\n";
    return "\n[" + section + "]  " + meaning_of(section) +
           (readers.empty() || readers == section ? "" : "; attention.kind = " + readers) + "\n";
  }

  std::string line(const RecipeField& field) {
    std::string value = field_value(field, defaults_);
    if (value.empty()) value = field.unset;
    // Attentions and tasks have a list of their own.
    const std::string name = field.full_name();
    const std::string rule = name == "attention.kind" || name == "data.name" ? "" : field.rule.describe();
    if (markdown_)
      return cell("`" + field.key + "`") + cell(type_of(field, defaults_)) + cell(value) +
             cell(field.meaning) + cell(rule) + "|\n";
    return padded(padded("  " + field.key, 24) + value, 44) + field.meaning +
           (rule.empty() ? "" : " (" + rule + ")") + "\n";
  }

  std::string list(const std::string& what, const std::vector<std::string>& names,
                   std::string (*meaning)(const std::string&)) const {
    std::string text = markdown_ ? "\n| " + what + " | what it is |\n| --- | --- |\n" : "";
    for (const std::string& name : names)
      text += markdown_ ? cell("`" + name + "`") + cell(meaning(name)) + "|\n"
                        : padded("    " + name, 24) + meaning(name) + "\n";
    return text;
  }

  bool markdown_;
  Recipe defaults_;
};

}  // namespace

std::string recipe_help(HelpForm form) {
  return Help(form).text();
}

}  // namespace edgewise::train
