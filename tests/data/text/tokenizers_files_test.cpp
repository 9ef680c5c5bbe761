// Folders of tokenisers: what is saved is read back, and every way a file can be wrong is an error that names
// the place.
#include <edgewise/data/byte_level_bpe.h>
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/sentencepiece.h>
#include <edgewise/data/subword_bpe.h>
#include <edgewise/data/train_tokenizer.h>

#include "data/readers/compressed.h"
#include "data/text/text_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

std::string load_error(const ScratchFolder& folder) {
  return error_of([&] { load_tokenizer(folder.path()); });
}

void write_xz(const ScratchFolder& folder, const std::string& name, const std::string& text) {
  const std::vector<uint8_t> bytes =
      xz_compress({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  folder.write(name, std::string(as_text(bytes)));
}

TEST(Tokenizers, BytesAndCharactersHaveTheIdsOfTheDataSets) {
  const BytesTokenizer bytes;
  const std::string all("\0a\xFF\n", 4);
  EXPECT_EQ(bytes.encode(all), (std::vector<int32_t>{1, 98, 256, 11}));
  EXPECT_EQ(bytes.decode(bytes.encode(all)), all);
  EXPECT_EQ(bytes.decode(std::vector<int32_t>{98, 0}), "a<pad>");
  EXPECT_EQ(bytes.decode(std::vector<int32_t>{98, 0}, true), "a");
  EXPECT_EQ(bytes.piece(11), "0x0a");
  const CharactersTokenizer characters({'\n', 'a', 'b'});
  EXPECT_EQ(characters.encode("ba\n"), (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ(characters.decode(characters.encode("ba\n")), "ba\n");
  EXPECT_EQ(error_of([&] { characters.encode("ab\xC3"); }),
            "characters: expected the 3 bytes of the vocabulary; found 0xc3 at byte 2 of the text");
  EXPECT_THAT(error_of([] { CharactersTokenizer({'a', 'a'}); }), HasSubstr("each byte once; found 97 twice"));
}

TEST(Tokenizers, EveryKindIsReadBackFromItsFolder) {
  SubwordBpeTrainer subword;
  subword.add("low lower lower newest newest");
  ByteLevelBpeTrainer bytes;
  bytes.add("low lower lower newest newest");
  std::vector<std::unique_ptr<Tokenizer>> all;
  all.push_back(std::make_unique<BytesTokenizer>());
  all.push_back(std::make_unique<CharactersTokenizer>(
      std::vector<uint8_t>{' ', 'e', 'l', 'n', 'o', 'r', 's', 't', 'w', 255}));
  all.push_back(std::make_unique<SubwordBpe>(subword.train()));
  all.push_back(std::make_unique<ByteLevelBpe>(bytes.train()));
  if (has_sentencepiece()) all.push_back(load_sentencepiece(golden_path("tiny.model")));
  for (const auto& each : all) {
    const ScratchFolder folder;
    each->save(folder / "a/b");
    const auto loaded = load_tokenizer(folder / "a/b");
    EXPECT_EQ(loaded->kind(), each->kind());
    EXPECT_EQ(loaded->size(), each->size());
    EXPECT_EQ(loaded->special(), each->special());
    EXPECT_EQ(loaded->encode("newest lower"), each->encode("newest lower")) << each->kind();
    for (int32_t id = 0; id < each->size(); ++id) EXPECT_EQ(loaded->piece(id), each->piece(id));
    each->save(folder / "a/b");  // over itself
    EXPECT_EQ(load_tokenizer(folder / "a/b")->size(), each->size());
  }
}

TEST(Tokenizers, RobertasFolderIsReadAsItIsDistributed) {
  const ScratchFolder folder;
  write_xz(folder, "vocab.json.xz", golden_text("vocab.json"));
  folder.write("merges.txt", golden_text("merges.txt"));
  EXPECT_EQ(load_tokenizer(folder.path())->special().mask, 4);
  folder.write("special_tokens_map.json",
               R"({"bos_token": "<s>", "mask_token": {"content": "he", "lstrip": true}})");
  const auto named = load_tokenizer(folder.path());
  EXPECT_EQ(named->special().begin, 0);
  EXPECT_EQ(named->piece(*named->special().mask), "he");
  EXPECT_FALSE(named->special().end.has_value());
  folder.write("special_tokens_map.json", R"({"bos_token": "<bos>"})");
  EXPECT_THAT(
      load_error(folder),
      HasSubstr("special_tokens_map.json: expected a piece of the vocabulary as bos_token; found '<bos>'"));
  folder.write("special_tokens_map.json", "{");
  EXPECT_THAT(load_error(folder), HasSubstr("special_tokens_map.json: expected an object"));
}

TEST(Tokenizers, SentencePieceIsThatOfTheLibrary) {
  if (!has_sentencepiece()) {
    EXPECT_THAT(error_of([] { load_sentencepiece(golden_path("tiny.model")); }),
                HasSubstr("Install libsentencepiece-dev"));
    return;
  }
  const auto model = load_sentencepiece(golden_path("tiny.model"));
  for (const nlohmann::json& each : golden_json("sentencepiece.json")) {
    const std::vector<int32_t> ids = model->encode(each["text"].get<std::string>());
    EXPECT_EQ(ids, each["ids"].get<std::vector<int32_t>>()) << each["text"];
    EXPECT_EQ(model->decode(ids), each["back"].get<std::string>()) << each["text"];
  }
  EXPECT_EQ(model->special().pad, 3);
  EXPECT_EQ(model->decode(framed(*model, "the edges"), true), "the edges");
  std::mt19937_64 random(11);
  for (int i = 0; i < 200; ++i)
    for (const int32_t id : model->encode(random_text(random, 80)))
      ASSERT_TRUE(id >= 0 && id < model->size());
  const ScratchFolder folder;
  folder.write("x.model", "no model");
  EXPECT_THAT(load_error(folder), HasSubstr("x.model: expected a model of SentencePiece"));
}

TEST(Tokenizers, AFolderWithoutATokenizerIsExplained) {
  const ScratchFolder folder;
  EXPECT_THAT(load_error(folder), HasSubstr("expected edgewise_tokenizer.json, vocab.json and merges.txt"));
  EXPECT_THAT(error_of([&] { load_tokenizer(folder / "nowhere"); }),
              HasSubstr("expected a folder with a tokeniser"));
  EXPECT_THAT(
      error_of([] {
        ByteLevelBpe({"/nowhere/vocab.json", "/nowhere/merges.txt", {}});
      }),
      HasSubstr("expected a vocabulary at /nowhere/vocab.json (or /nowhere/vocab.json.xz); there is none"));
}

TEST(Tokenizers, DamagedMetadataIsExplained) {
  const ScratchFolder folder;
  const auto with = [&](const std::string& text) {
    folder.write("edgewise_tokenizer.json", text);
    return load_error(folder);
  };
  EXPECT_THAT(with("{\"format\":1"), HasSubstr("edgewise_tokenizer.json: expected an object of JSON"));
  EXPECT_THAT(with("[]"), HasSubstr("expected an object of JSON"));
  EXPECT_THAT(with("{}"), HasSubstr("expected format"));
  EXPECT_THAT(with(R"({"format":2,"kind":"bytes","size":257})"), HasSubstr("expected format 1; found 2"));
  EXPECT_THAT(with(R"({"format":1,"size":257})"), HasSubstr("expected a kind"));
  EXPECT_THAT(with(R"({"format":1,"kind":"bpe","size":257})"), HasSubstr("found 'bpe'"));
  EXPECT_THAT(with(R"({"format":1,"kind":"bytes","size":-1})"), HasSubstr("expected size"));
  EXPECT_THAT(with(R"({"format":1,"kind":"bytes","size":300,"special":{"pad":0}})"),
              HasSubstr("expected 300 ids in the files beside it; found 257"));
  EXPECT_THAT(with(R"({"format":1,"kind":"bytes","size":257,"special":{"pad":1}})"),
              HasSubstr("special ids"));
  EXPECT_THAT(with(R"({"format":1,"kind":"bytes","size":257,"special":{"pad":257}})"),
              HasSubstr("expected pad, a whole number below 257"));
  EXPECT_THAT(with(R"({"format":1,"kind":"characters","size":1,"bytes":[256]})"),
              HasSubstr("expected bytes, 0 to 255; found '256'"));
  EXPECT_EQ(with(R"({"format":1,"kind":"bytes","size":257,"special":{"pad":0}})"), "no error");
}

TEST(Tokenizers, DamagedVocabulariesAreExplained) {
  const ScratchFolder folder;
  const auto with = [&](const std::string& vocabulary) {
    folder.write("vocab.json", vocabulary);
    folder.write("merges.txt", golden_text("merges.txt"));
    return load_error(folder);
  };
  const std::string good = golden_text("vocab.json");
  EXPECT_EQ(with(good), "no error");
  EXPECT_THAT(with(good.substr(0, good.size() / 2)), HasSubstr("vocab.json:1:"));
  EXPECT_THAT(with(""),
              HasSubstr("vocab.json:1:1: expected an object of pieces and ids; found the end of the file"));
  EXPECT_THAT(with("{\n\"a\": 0,\n\"b\": 0}"),
              HasSubstr("vocab.json:3:6: expected a new id; found 0 again, which is 'a'"));
  EXPECT_THAT(with("{\"a\": 0,\n \"a\": 1}"),
              HasSubstr("vocab.json:2:2: expected a new piece; found 'a' again, which has the id 0"));
  EXPECT_THAT(with("{\"a\": 1}"),
              HasSubstr("expected 1 pieces to have the ids 0 to 0; found the id 1 for 'a'"));
  EXPECT_THAT(with("{\"a\": -1}"), HasSubstr("vocab.json:1:7: expected an id"));
  EXPECT_THAT(with("{\"a\": 99999999999999999999}"), HasSubstr("expected an id, a whole number below 2^30"));
  EXPECT_THAT(with("{\"a\" 1}"), HasSubstr("vocab.json:1:6: expected ':' after a piece; found '1'"));
  EXPECT_THAT(with("{\"a\": 0} x"), HasSubstr("expected nothing after the object; found 'x'"));
  EXPECT_THAT(with("{\"a: 0}"), HasSubstr("expected a piece that ends"));
  EXPECT_THAT(with(R"({"\ud800": 0})"), HasSubstr("expected a whole character; found half of a pair"));
  EXPECT_THAT(with(R"({"\x": 0})"), HasSubstr("expected an escape that JSON has; found 'x'"));
  EXPECT_THAT(with("{\"a\": 0}"),
              HasSubstr("merges.txt:2: expected pieces of the vocabulary; found"));  // cut at a piece
  folder.write("merges.txt", "#version: 0.2\n");
  folder.write("vocab.json", "{\"a\": 0}");
  EXPECT_THAT(load_error(folder),
              HasSubstr("expected a piece for each of the 256 bytes; found none for byte 0"));
  folder.write("vocab.json", "{\"\xE6\x9D\xB1\": 0}");
  EXPECT_THAT(
      load_error(folder),
      HasSubstr("expected pieces of the 256 characters that stand for bytes; found '\xE6\x9D\xB1', id 0"));
  folder.write("vocab.json", R"({"a\"\\\u00e9\ud83d\ude00": 0})");  // escapes are read
  EXPECT_THAT(load_error(folder), HasSubstr("found 'a\"\\\u00e9\U0001F600', id 0"));
}

TEST(Tokenizers, DamagedMergesAreExplained) {
  const ScratchFolder folder;
  folder.write("vocab.json", golden_text("vocab.json"));
  const auto with = [&](const std::string& merges) {
    folder.write("merges.txt", merges);
    return load_error(folder);
  };
  const std::string good = golden_text("merges.txt");
  EXPECT_EQ(with(good), "no error");
  EXPECT_EQ(with("#version: 0.2\r\nh e\r\n"), "no error");
  const size_t first = good.find('\n') + 1, second = good.find('\n', first) + 1;
  EXPECT_THAT(with(good.substr(0, first) + good.substr(second)),
              HasSubstr("expected parts that are single characters or made by a line above"));
  EXPECT_THAT(
      with("#version: 0.2\nhe a\nh ea\n"),
      HasSubstr(
          "merges.txt:2: expected parts that are single characters or made by a line above; found 'he'"));
  EXPECT_THAT(with("h e\nt h\nh e\n"),
              HasSubstr("merges.txt:3: expected a new pair; found 'h e', which line 1 has"));
  EXPECT_THAT(with("h e\n\nt h\n"),
              HasSubstr("merges.txt:2: expected two symbols with a blank between them; found ''"));
  for (const std::string bad : {"he", "h e t", " h e", "h e ", "h  e", "h\te"})
    EXPECT_THAT(with("#version: 0.2\n" + bad), HasSubstr("merges.txt:2: expected two symbols"));
  EXPECT_THAT(with("q j\n"), HasSubstr("merges.txt:1: expected pieces of the vocabulary; found 'qj'"));
  EXPECT_THAT(with(std::string("h \0\n", 4)), HasSubstr("merges.txt:1: expected parts"));
}

TEST(Tokenizers, DamagedSubwordFilesAreExplained) {
  const ScratchFolder folder;
  const auto with = [&](const std::string& codes, const std::string& vocabulary) {
    folder.write("codes.txt", codes);
    folder.write("vocabulary.txt", vocabulary);
    return load_error(folder);
  };
  const std::string codes = "#version: 0.2\nl o\nlo w</w>\n";
  EXPECT_EQ(with(codes, "low 5\nlo@@ 2\n"), "no error");
  EXPECT_THAT(with("l o\n", "low 5\n"), HasSubstr("codes.txt:1: expected '#version: 0.2'; found none"));
  EXPECT_THAT(with("#version: 0.1\nl o\n", "low 5\n"), HasSubstr("found '0.1'"));
  EXPECT_THAT(with("#version: 0.2\nlo w</w>\nl o\n", "low 5\n"), HasSubstr("codes.txt:2: expected parts"));
  EXPECT_THAT(with("#version: 0.2\nl o\nl o\n", "low 5\n"), HasSubstr("codes.txt:3: expected a new pair"));
  for (const std::string bad :
       {"low", "low x", "low 5x", "low -5", " 5", "low ", "low 99999999999999999999", ""})
    EXPECT_THAT(with(codes, "a 1\n" + bad + "\n"),
                HasSubstr("vocabulary.txt:2: expected a piece, a blank and its count"));
  EXPECT_THAT(with(codes, "a b 1\n"), HasSubstr("vocabulary.txt:1: expected a piece without blanks"));
  EXPECT_THAT(with(codes, "a 1\nb 1\na 1\n"),
              HasSubstr("vocabulary.txt:3: expected a new piece; found 'a', which line 1 has"));
  EXPECT_THAT(with(codes, "<unk> 1\n"), HasSubstr("vocabulary.txt:1: expected no special piece"));
  SubwordBpeTrainer trainer;
  trainer.add("low low");
  trainer.train().save(folder.path());
  folder.write("vocabulary.txt", "");
  EXPECT_THAT(load_error(folder),
              HasSubstr("expected 5 ids in the files beside it; found 4. One of them is cut"));
}

TEST(Tokenizers, FilesWithChangedBytesAreReadOrRefusedButNeverTrusted) {
  std::mt19937_64 random(14);
  SubwordBpeTrainer trainer;
  trainer.add("low low lower lower newest newest widest widest");
  const ScratchFolder bytes, subword;
  ByteLevelBpe({golden_path("vocab.json"), golden_path("merges.txt"), {}}).save(bytes.path());
  trainer.train().save(subword.path());
  int read = 0, refused = 0;
  for (const auto& [folder, names] :
       {std::pair{&bytes, std::vector<std::string>{"vocab.json", "merges.txt", "edgewise_tokenizer.json"}},
        {&subword, std::vector<std::string>{"codes.txt", "vocabulary.txt", "edgewise_tokenizer.json"}}})
    for (const std::string& name : names) {
      const std::string good = folder->read(name);
      for (int i = 0; i < 120; ++i) {
        std::string text = good;
        for (size_t change = 1 + random() % 3; change > 0; --change) {
          const size_t at = random() % text.size();
          switch (random() % 4) {
            case 0:
              text[at] = static_cast<char>(static_cast<uint8_t>(random()));
              break;
            case 1:
              text.erase(at, 1 + random() % 20);
              break;
            case 2:
              text.insert(at, text.substr(random() % text.size(), random() % 20));
              break;
            default:
              text[at] = "{}[]\":, \n0"[random() % 10];
          }
          if (text.empty()) text = " ";
        }
        folder->write(name, text);
        std::unique_ptr<Tokenizer> tokenizer;
        const std::string error =
            error_of([&, where = folder] { tokenizer = load_tokenizer(where->path()); });
        if (tokenizer == nullptr) {
          EXPECT_NE(error, "no error");
          ++refused;
          continue;
        }
        ++read;
        const std::string sample = random_text(random, 80);
        const std::vector<int32_t> ids = tokenizer->encode(sample);
        for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < tokenizer->size());
        const std::string back = tokenizer->decode(ids);
        if (tokenizer->kind() == "byte-bpe") {
          ASSERT_EQ(back, sample) << text;
        }
      }
      folder->write(name, good);
    }
  EXPECT_GT(read, 20);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace edgewise::data
