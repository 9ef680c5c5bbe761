// Reading vocab.json, merges.txt and special_tokens_map.json.
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "data/readers/compressed.h"
#include "data/text/failure.h"
#include "data/tokenizers/bpe/merges_file.h"
#include "data/tokenizers/byte_symbols.h"
#include "data/tokenizers/tokenizer_files.h"
#include "data/tokenizers/vocabulary_json.h"

namespace edgewise::data {
namespace {

using Ids = std::unordered_map<std::string_view, int32_t>;

struct SpecialName {
  const char* key;
  std::optional<int32_t> SpecialIds::*id;
};
constexpr SpecialName kSpecialNames[] = {{"bos_token", &SpecialIds::begin},
                                         {"pad_token", &SpecialIds::pad},
                                         {"eos_token", &SpecialIds::end},
                                         {"unk_token", &SpecialIds::unknown},
                                         {"mask_token", &SpecialIds::mask}};

SpecialIds usual_special(const Ids& ids) {
  const auto id = [&](std::string_view piece) -> std::optional<int32_t> {
    const auto found = ids.find(piece);
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  };
  SpecialIds special{id("<s>"), id("<pad>"), id("</s>"), id("<unk>"), id("<mask>")};
  if (!special.begin && !special.end)
    special.begin = special.end = special.unknown = id("<|endoftext|>");  // GPT-2
  return special;
}

SpecialIds named_special(const TextFile& file, const Ids& ids) {
  const nlohmann::json map = nlohmann::json::parse(file.text, nullptr, false);
  if (!map.is_object()) fail(file.name, ": expected an object of JSON; found something else");
  SpecialIds special;
  for (const SpecialName& name : kSpecialNames) {
    if (!map.contains(name.key)) continue;
    const nlohmann::json& value = map[name.key];
    const nlohmann::json content = value.is_object() ? value.value("content", nlohmann::json()) : value;
    if (!content.is_string())
      fail(file.name, ": expected a piece as ", name.key, "; found ", in_quotes(value.dump()));
    const auto found = ids.find(content.get_ref<const std::string&>());
    if (found == ids.end())
      fail(file.name, ": expected a piece of the vocabulary as ", name.key, "; found ",
           in_quotes(content.get<std::string>()), ", which vocab.json lacks");
    special.*name.id = found->second;
  }
  return special;
}

}  // namespace

TextFile read_text_file(const std::filesystem::path& path, const char* what) {
  const auto found = find_plain_or_xz(path);
  if (!found)
    fail("tokeniser: expected ", what, " at ", path.string(), " (or ", path.string(), ".xz); there is none");
  const std::vector<uint8_t> bytes = read_plain_or_xz(*found);
  return {found->string(), std::string(as_text(bytes))};
}

ByteLevelBpe read_byte_level_bpe(const ByteLevelBpeFiles& files, const std::optional<SpecialIds>& given) {
  const TextFile vocabulary = read_text_file(files.vocabulary, "a vocabulary");
  std::vector<std::string> pieces = parse_vocabulary_json(vocabulary.text, vocabulary.name);
  Ids ids;
  for (const std::string& piece : pieces) ids.emplace(piece, static_cast<int32_t>(ids.size()));
  const TextFile file = read_text_file(files.merges, "merges");
  const auto one_byte = [](std::string_view part) {
    const std::optional<std::string> bytes = bytes_of_spelling(part);
    return bytes && bytes->size() == 1;
  };
  const MergesFile read = parse_merges(file.text, file.name, one_byte);
  std::vector<ByteLevelMerge> merges;
  for (const MergeLine& line : read.merges) {
    const auto id = [&](const std::string& piece) {
      const auto found = ids.find(piece);
      if (found == ids.end())
        fail(file.name, ":", line.line, ": expected pieces of the vocabulary; found ", in_quotes(piece),
             ", which ", vocabulary.name, " lacks. It is cut, or belongs to other merges.");
      return found->second;
    };
    merges.push_back({id(line.left), id(line.right), id(line.left + line.right)});
  }
  SpecialIds special;
  if (given) {
    special = *given;
  } else if (!files.special.empty()) {
    special = named_special(read_text_file(files.special, "the map of special pieces"), ids);
  } else {
    special = usual_special(ids);
  }
  return {std::move(pieces), std::move(merges), special};
}

ByteLevelBpe::ByteLevelBpe(const ByteLevelBpeFiles& files)
    : ByteLevelBpe(read_byte_level_bpe(files, std::nullopt)) {}

}  // namespace edgewise::data
