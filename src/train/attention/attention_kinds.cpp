#include <edgewise/train/attention_kinds.h>

#include <algorithm>
#include <deque>

#include <c10/util/Exception.h>

#include "train/attention/builtin_kinds.h"
#include "train/recipe/kind_names.h"
#include "train/recipe/nearest_name.h"
#include "train/recipe/recipe_fields.h"

namespace edgewise::train {
namespace {

std::deque<AttentionKind>& registry() {  // whose elements stay where they are
  static std::deque<AttentionKind> kinds = [] {
    std::deque<AttentionKind> all;
    for (auto part : {pattern_kinds, sbm_kinds, sac_kinds, indexer_kinds, graph_kinds, approximation_kinds,
                      decoder_kinds})
      for (AttentionKind& kind : part()) all.push_back(std::move(kind));
    return all;
  }();
  return kinds;
}

const AttentionKind* find(const std::string& name) {
  const auto found = std::ranges::find(registry(), name, &AttentionKind::name);
  return found == registry().end() ? nullptr : &*found;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

bool AttentionKind::reads(const std::string& section) const {
  return std::ranges::find(sections, section) != sections.end();
}

void register_attention(AttentionKind kind) {
  TORCH_CHECK_VALUE(!kind.name.empty() && kind.make,
                    "register_attention: expected a kind with a name and a function make; got '", kind.name,
                    "'", kind.make ? "" : " without one");
  TORCH_CHECK_VALUE(!find(kind.name), "register_attention: expected a new name; '", kind.name,
                    "' is taken. Taken are ", listed(attention_names()));
  for (const std::string& section : kind.sections)
    TORCH_CHECK_VALUE(!kinds_that_read(section).empty(),
                      "register_attention: expected sections that a recipe has; got '", section, "' of '",
                      kind.name, "'. Keys of its own go to options");
  add_own_fields("attention.kind", kind.name, kind.options);
  kind.sections.push_back(kind.name);
  registry().push_back(std::move(kind));
}

const AttentionKind& attention_kind(const std::string& name) {
  const AttentionKind* const kind = find(name);
  const std::string nearest = kind ? "" : nearest_name(name, attention_names());
  TORCH_CHECK_VALUE(kind, "expected attention.kind to be one of ", listed(attention_names()), "; found '",
                    name, "'", nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
  return *kind;
}

const AttentionKind& attention_kind(const Recipe& recipe) {
  return attention_kind(recipe.attention.kind);
}

std::vector<std::string> attention_names() {
  std::vector<std::string> names;
  for (const AttentionKind& kind : registry()) names.push_back(kind.name);
  return names;
}

std::string attention_meaning(const std::string& kind) {
  return attention_kind(kind).meaning;
}

bool reads_section(const std::string& kind, const std::string& section) {
  return is_of_everybody(section) || attention_kind(kind).reads(section);
}

bool reads_section(const Recipe& recipe, const std::string& section) {
  const AttentionRecipe& attention = recipe.attention;
  for (const std::optional<std::string>* more : {&attention.edges, &attention.decoder, &attention.cross})
    if (*more && reads_section(**more, section)) return true;
  return reads_section(attention.kind, section) || section == recipe.data.name;
}

bool reads_key(const Recipe& recipe, const std::string& section, const std::string& key) {
  const bool is_unit = section == "attention" && key == "unit";
  return reads_section(recipe, section) && (!is_unit || attention_kind(recipe).takes_squares);
}

Recipe recipe_of_place(const Recipe& recipe, DecoderPlace place) {
  Recipe result = recipe;
  AttentionRecipe& attention = result.attention;
  if (place == DecoderPlace::kDecoder) attention.kind = attention.decoder.value_or(attention.kind);
  if (place == DecoderPlace::kCross) attention.kind = attention.cross.value_or(attention.kind);
  attention.decoder.reset();
  attention.cross.reset();
  return result;
}

bool takes_edges(const Recipe& recipe) {
  return attention_kind(recipe).takes_edges;
}

std::vector<std::string> kinds_that_read(const std::string& section) {
  std::vector<std::string> names;
  for (const AttentionKind& kind : registry())
    if (kind.reads(section)) names.push_back(kind.name);
  return names;
}

std::string describe_attention(const Recipe& recipe) {
  const AttentionKind& kind = attention_kind(recipe);
  return kind.name + (kind.variant ? " " + kind.variant(recipe) : "");
}

}  // namespace edgewise::train
