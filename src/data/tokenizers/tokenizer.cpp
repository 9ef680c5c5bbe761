#include <edgewise/data/byte_level_bpe.h>
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/sentencepiece.h>
#include <edgewise/data/subword_bpe.h>
#include <edgewise/data/tokenizer.h>
#include <edgewise/io/atomic_file.h>

#include <nlohmann/json.hpp>

#include "data/readers/compressed.h"
#include "data/text/failure.h"
#include "data/tokenizers/tokenizer_files.h"

namespace edgewise::data {
namespace {

using nlohmann::json;

constexpr const char* kMetadata = "edgewise_tokenizer.json";
constexpr const char* kKinds = "bytes, characters, byte-bpe, subword-bpe or sentencepiece";

struct SpecialKey {
  const char* name;
  std::optional<int32_t> SpecialIds::*id;
};
constexpr SpecialKey kSpecialKeys[] = {{"begin", &SpecialIds::begin},
                                       {"pad", &SpecialIds::pad},
                                       {"end", &SpecialIds::end},
                                       {"unknown", &SpecialIds::unknown},
                                       {"mask", &SpecialIds::mask}};

struct Metadata {
  std::string file, kind;
  int64_t size = 0;
  SpecialIds special;
  std::vector<uint8_t> bytes;
};

Metadata read_metadata(const std::filesystem::path& path) {
  Metadata result{.file = path.string(), .kind = {}, .special = {}, .bytes = {}};
  const json data = json::parse(io::read_file(path), nullptr, /*allow_exceptions=*/false);
  const auto whole_number = [&](const json& object, const char* key, int64_t bound) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned() ||
        found->get<uint64_t>() >= static_cast<uint64_t>(bound))
      fail(result.file, ": expected ", key, ", a whole number below ", bound, "; found ",
           found == object.end() ? "none" : found->dump());
    return found->get<int64_t>();
  };
  if (!data.is_object())
    fail(result.file, ": expected an object of JSON; found something else. The file is damaged.");
  if (const int64_t format = whole_number(data, "format", 1 << 30); format != 1)
    fail(result.file, ": expected format 1; found ", format, ", of a newer version of Edgewise");
  if (!data.contains("kind") || !data["kind"].is_string())
    fail(result.file, ": expected a kind: ", kKinds, "; found none");
  result.kind = data["kind"];
  result.size = whole_number(data, "size", int64_t{1} << 31);
  const json special = data.value("special", json::object());
  if (!special.is_object())
    fail(result.file, ": expected an object as special; found ", in_quotes(special.dump()));
  for (const SpecialKey& key : kSpecialKeys)
    if (special.contains(key.name))
      result.special.*key.id = static_cast<int32_t>(whole_number(special, key.name, result.size));
  const json bytes = data.value("bytes", json::array());
  if (!bytes.is_array()) fail(result.file, ": expected a list as bytes; found ", in_quotes(bytes.dump()));
  for (const json& byte : bytes) {
    if (!byte.is_number_unsigned() || byte.get<uint64_t>() > 255)
      fail(result.file, ": expected bytes, 0 to 255; found ", in_quotes(byte.dump()));
    result.bytes.push_back(byte.get<uint8_t>());
  }
  return result;
}

std::unique_ptr<Tokenizer> load_kind(const Metadata& metadata, const std::filesystem::path& folder) {
  if (metadata.kind == "bytes") return std::make_unique<BytesTokenizer>();
  if (metadata.kind == "characters") return std::make_unique<CharactersTokenizer>(metadata.bytes);
  if (metadata.kind == "byte-bpe")
    return std::make_unique<ByteLevelBpe>(
        read_byte_level_bpe({folder / "vocab.json", folder / "merges.txt", {}}, metadata.special));
  if (metadata.kind == "subword-bpe")
    return std::make_unique<SubwordBpe>(SubwordBpeFiles{folder / "codes.txt", folder / "vocabulary.txt"});
  if (metadata.kind == "sentencepiece") return load_sentencepiece(folder / "sentencepiece.model");
  fail(metadata.file, ": expected the kind ", kKinds, "; found ", in_quotes(metadata.kind));
}

// A folder that another program made.
std::unique_ptr<Tokenizer> load_foreign(const std::filesystem::path& folder) {
  const auto has = [&](const char* name) { return find_plain_or_xz(folder / name).has_value(); };
  if (has("vocab.json") && has("merges.txt")) {
    const std::filesystem::path map =
        has("special_tokens_map.json") ? folder / "special_tokens_map.json" : "";
    return std::make_unique<ByteLevelBpe>(
        ByteLevelBpeFiles{folder / "vocab.json", folder / "merges.txt", map});
  }
  if (has("codes.txt") && has("vocabulary.txt"))
    return std::make_unique<SubwordBpe>(SubwordBpeFiles{folder / "codes.txt", folder / "vocabulary.txt"});
  std::vector<std::filesystem::path> models;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".model") models.push_back(entry.path());
  if (models.size() == 1) return load_sentencepiece(models.front());
  fail("load_tokenizer: expected ", kMetadata,
       ", vocab.json and merges.txt, codes.txt and vocabulary.txt, or one *.model in ", folder.string(),
       "; found ", models.size() > 1 ? "several models" : "none of them");
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

void Tokenizer::check_id(int32_t id, const char* caller) const {
  if (id < 0 || id >= size()) fail(caller, ": expected ids from 0 to ", size() - 1, "; got ", id);
}

void Tokenizer::save(const std::filesystem::path& folder) const {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) fail("tokeniser: cannot make the folder '", folder.string(), "': ", failure.message());
  save_files(folder);
  nlohmann::ordered_json data = {{"format", 1}, {"kind", kind()}, {"size", size()}};
  data["special"] = nlohmann::ordered_json::object();
  for (const SpecialKey& key : kSpecialKeys)
    if (const auto& id = special_.*key.id) data["special"][key.name] = *id;
  if (const auto* const characters = dynamic_cast<const CharactersTokenizer*>(this))
    data["bytes"] = characters->bytes();
  io::write_file_atomically(folder / kMetadata, data.dump() + "\n");
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder))
    fail("load_tokenizer: expected a folder with a tokeniser; '", folder.string(), "' is none");
  const std::filesystem::path path = folder / kMetadata;
  if (!std::filesystem::exists(path)) return load_foreign(folder);
  const Metadata metadata = read_metadata(path);
  std::unique_ptr<Tokenizer> tokenizer = load_kind(metadata, folder);
  if (tokenizer->size() != metadata.size)
    fail(metadata.file, ": expected ", metadata.size, " ids in the files beside it; found ",
         tokenizer->size(), ". One of them is cut, or belongs to another tokeniser.");
  if (tokenizer->special() != metadata.special)
    fail(metadata.file,
         ": expected the special ids of the files beside it; found others. It belongs to another tokeniser.");
  return tokenizer;
}

std::vector<int32_t> framed(const Tokenizer& tokenizer, std::string_view text) {
  const SpecialIds& special = tokenizer.special();
  std::vector<int32_t> ids;
  if (special.begin) ids.push_back(*special.begin);
  tokenizer.encode(text, ids);
  if (special.end) ids.push_back(*special.end);
  return ids;
}

std::vector<int32_t> framed_pair(const Tokenizer& tokenizer, std::string_view first,
                                 std::string_view second) {
  const SpecialIds& special = tokenizer.special();
  std::vector<int32_t> ids = framed(tokenizer, first);
  if (special.end) ids.push_back(*special.end);
  tokenizer.encode(second, ids);
  if (special.end) ids.push_back(*special.end);
  return ids;
}

}  // namespace edgewise::data
