// Folders of tokenisers, and the description of how a data set reads its texts.
#include <edgewise/data/byte_level_bpe.h>
#include <edgewise/data/examples/text_reader.h>
#include <edgewise/data/subword_bpe.h>
#include <edgewise/data/tokenizer.h>
#include <edgewise/data/train_tokenizer.h>

#include "fuzz_target.h"

namespace edgewise::fuzz {
namespace {

constexpr const char* kText = "the theatre then, th\xC3\xA9 \xF0\x9F\x98\x80 <mask> 12  34\n\n";

// What a tokeniser reads it also spells.
void use(const data::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  tokenizer.encode(kText, ids);
  for (const int32_t id : ids) must(id >= 0 && id < tokenizer.size(), "ids below the size");
  tokenizer.decode(ids);
  for (int32_t id = 0; id < std::min<int64_t>(tokenizer.size(), 8); ++id) tokenizer.piece(id);
}

// A folder of the files named, each a part of the input. Saved and read again it reads the text alike.
void run_folder(std::string_view input, const char* folder, const std::vector<const char*>& names) {
  std::filesystem::create_directories(scratch() / folder);
  const auto parts = parts_of(input, names.size());
  for (size_t n = 0; n < names.size(); ++n) {
    const std::string name = std::string(folder) + "/" + names[n];
    if (parts[n].empty())
      std::filesystem::remove(scratch() / name);
    else
      write_scratch(name, parts[n]);
  }
  refuses_or_reads([&] {
    const auto tokenizer = data::load_tokenizer(scratch() / folder);
    use(*tokenizer);
    tokenizer->save(scratch() / "tokenizer-again");
    const auto again = data::load_tokenizer(scratch() / "tokenizer-again");
    must(again->encode(kText) == tokenizer->encode(kText), "the same ids from the tokeniser that was saved");
  });
  std::filesystem::remove_all(scratch() / "tokenizer-again");
}

template <typename Trainer>
std::vector<std::string> trained_seed(const char* folder, const std::vector<const char*>& names,
                                      int64_t vocabulary) {
  Trainer trainer;
  for (int n = 0; n < 3; ++n) trainer.add(kText);
  std::filesystem::remove_all(scratch() / folder);
  trainer.train({.vocabulary = vocabulary}).save(scratch() / folder);
  std::vector<std::string> parts;
  parts.reserve(names.size());
  for (const char* name : names) parts.push_back(read_scratch(std::string(folder) + "/" + name));
  std::filesystem::remove_all(scratch() / folder);
  std::vector<std::string> foreign = parts;
  foreign[0].clear();
  return {join_parts(parts), join_parts(foreign)};
}

const std::vector<const char*> kByteFiles = {"edgewise_tokenizer.json", "vocab.json", "merges.txt",
                                             "special_tokens_map.json"},
                               kSubwordFiles = {"edgewise_tokenizer.json", "codes.txt", "vocabulary.txt"},
                               kOneFile = {"edgewise_tokenizer.json"};

constexpr const char* kReader =
    R"({"format": "edgewise.text_reader.1", "answer": "class", "metric": "accuracy", "max_length": 16,
 "columns": {"text": "text", "pair": "", "label": "label"}, "classes": ["no", "yes"]})";

void run_reader(std::string_view input) {
  std::filesystem::create_directories(scratch() / "reader/tokenizer");
  write_scratch("reader/tokenizer/edgewise_tokenizer.json",
                R"({"format": 1, "kind": "bytes", "size": 257, "special": {"pad": 0}})");
  write_scratch("reader/reader.json", input);
  refuses_or_reads([] {
    const data::TextReader reader = data::TextReader::load(scratch() / "reader");
    std::vector<int32_t> ids;
    const std::optional<std::string_view> pair =
        reader.options().reads_pairs() ? std::optional("another") : std::nullopt;
    reader.read("a text that is a little longer than it may be", pair, ids);
    must(std::ssize(ids) <= reader.options().max_length, "no more ids than max_length");
  });
}

}  // namespace

std::vector<Target> tokenizer_targets() {
  return {
      {"byte_bpe", "vocab.json, merges.txt, special_tokens_map.json",
       [] { return trained_seed<data::ByteLevelBpeTrainer>("byte-made", kByteFiles, 270); },
       [](std::string_view input) { run_folder(input, "byte", kByteFiles); }},
      {"subword_bpe", "codes.txt, vocabulary.txt",
       [] { return trained_seed<data::SubwordBpeTrainer>("subword-made", kSubwordFiles, 6); },
       [](std::string_view input) { run_folder(input, "subword", kSubwordFiles); }},
      {"tokenizer_json", "edgewise_tokenizer.json",
       [] {
         return std::vector<std::string>{
             R"({"format": 1, "kind": "characters", "size": 4, "special": {}, "bytes": [10, 32, 97, 116]})",
             R"({"format": 1, "kind": "bytes", "size": 257, "special": {"pad": 0}})"};
       },
       [](std::string_view input) { run_folder(input, "one", kOneFile); }},
      {"reader_json", "how a data set reads its texts",
       [] {
         return std::vector<std::string>{
             kReader,
             R"({"format": "edgewise.text_reader.1", "answer": "number", "metric": "pearson", "max_length": 16, "columns":
 {"text": "a", "pair": "b", "label": "c"}, "mean": 0.5, "scale": 2.0})"};
       },
       run_reader},
  };
}

}  // namespace edgewise::fuzz
