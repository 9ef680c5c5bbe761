#include <edgewise/data/examples/import_translation.h>

#include <edgewise/data/examples/table_rows.h>
#include <edgewise/data/train_tokenizer.h>

#include <limits>
#include <set>
#include <stdexcept>

#include "data/text/each_line.h"
#include "data/text/failure.h"
#include "data/tokenizers/subword_words.h"

namespace edgewise::data {
namespace {

constexpr int64_t kPieceMinCount = 2;

// The lines of both files, side by side.
struct ParallelLines {
  std::vector<std::string> source, target;
  std::vector<int64_t> places;  // in the files, from 1

  int64_t size() const { return static_cast<int64_t>(source.size()); }
};

class Importer {
 public:
  explicit Importer(const TranslationImportOptions& options) : options_(options) {}

  ImportedTranslation run() {
    if (options_.tests.empty()) fail("data translation: expected at least one test set; got none");
    if (options_.max_length < 8)
      fail("data translation: expected a max_length of at least 8; got ", options_.max_length);
    std::set<std::string> names = {"validation"};
    for (const ParallelFiles& test : options_.tests)
      if (test.name.empty() || test.name.find('/') != std::string::npos || !names.insert(test.name).second)
        fail("data translation: expected test sets with names of their own, other than 'validation'; got ",
             in_quotes(test.name));
    const ParallelLines train = read(options_.train, options_.skip_empty),
                        validation = read(options_.validation, false);
    TextReaderOptions kept{.answer = AnswerKind::kNone,
                           .max_length = options_.max_length,
                           .text_column = options_.source_language,
                           .label_column = options_.target_language,
                           .metric = words() ? "bleu-none" : "bleu-13a"};
    ImportedTranslation result{.reader = TextReader(tokenizer_of(train), kept), .examples = {}, .sets = {}};
    const Tokenizer& tokenizer = result.reader.tokenizer();
    result.examples.source = options_.train.source.filename().string();
    result.sets.source = options_.source_language;
    result.sets.target = options_.target_language;
    result.empty = empty_;
    add(result, train, Split::kTrain, tokenizer);
    if (result.examples.part(Split::kTrain).size() == 0)
      fail("data translation: expected training pairs of at most ", options_.max_length, " tokens in ",
           options_.train.source.string(), "; found none");
    add(result, validation, Split::kValidation, tokenizer);
    result.sets.validation.pairs = validation.size();
    result.sets.validation.references = validation.target;
    for (const ParallelFiles& test : options_.tests) {
      const ParallelLines lines = read(test, false);
      add(result, lines, Split::kTest, tokenizer);
      result.sets.tests.push_back({.name = test.name, .pairs = lines.size(), .references = lines.target});
    }
    return result;
  }

 private:
  bool words() const {
    return options_.subword_merges > 0 || (options_.tokenizer && reads_words(*options_.tokenizer));
  }

  void tell(const std::string& doing, int64_t lines) const {
    if (options_.progress) options_.progress(doing, lines);
  }

  std::vector<std::string> read_side(const std::filesystem::path& file) const {
    std::vector<std::string> lines;
    each_line(
        file,
        [&](std::string_view line) {
          try {
            check_line_length(line);
            if (!options_.any_bytes) check_utf8(line);
          } catch (const std::invalid_argument& error) {
            fail(file.string(), ":", lines.size() + 1, ": ", error.what());
          }
          if (line.ends_with('\n')) line.remove_suffix(1);
          if (line.ends_with('\r')) line.remove_suffix(1);
          if (lines.empty() && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
          lines.push_back(words() ? as_words(line) : std::string(line));
          if (lines.size() % 4096 == 0) tell("reading", std::ssize(lines));
        },
        kLongestLine + 1);
    if (lines.empty()) fail("data translation: expected sentences in ", file.string(), "; it is empty");
    return lines;
  }

  ParallelLines read(const ParallelFiles& files, bool skip_empty) {
    ParallelLines lines{read_side(files.source), read_side(files.target), {}};
    if (lines.source.size() != lines.target.size())
      fail("data translation: expected as many lines in ", files.target.string(), " as in ",
           files.source.string(), ", ", lines.source.size(), "; found ", lines.target.size(), ". Line ",
           std::min(lines.source.size(), lines.target.size()) + 1, " of the longer file has no partner");
    ParallelLines kept;
    for (size_t n = 0; n < lines.source.size(); ++n) {
      const bool blank_source = is_blank(lines.source[n]), blank_target = is_blank(lines.target[n]);
      if ((blank_source || blank_target) && !skip_empty)
        fail((blank_source ? files.source : files.target).string(), ":", n + 1,
             ": expected a sentence; the line is empty",
             &files == &options_.train ? ". --skip-empty leaves such pairs out of training"
                                       : "; take the pair out of both files");
      if (blank_source || blank_target) {
        ++empty_;
        continue;
      }
      kept.source.push_back(std::move(lines.source[n]));
      kept.target.push_back(std::move(lines.target[n]));
      kept.places.push_back(static_cast<int64_t>(n) + 1);
    }
    return kept;
  }

  static bool is_blank(std::string_view text) {
    return text.find_first_not_of(" \t\v\f") == std::string_view::npos;
  }

  std::shared_ptr<const Tokenizer> tokenizer_of(const ParallelLines& train) const {
    if (options_.tokenizer) return options_.tokenizer;
    const auto learn = [&](auto trainer, int64_t vocabulary) -> std::shared_ptr<const Tokenizer> {
      for (const std::vector<std::string>* side : {&train.source, &train.target})
        for (const std::string& line : *side) trainer->add(line);
      auto trained = trainer->train({.vocabulary = vocabulary,
                                     .min_count = kPieceMinCount,
                                     .progress = [&](int64_t merges) { tell("learning pieces", merges); }});
      return std::make_shared<decltype(trained)>(std::move(trained));
    };
    if (words()) return learn(std::make_unique<SubwordBpeTrainer>(), options_.subword_merges);
    return learn(std::make_unique<ByteLevelBpeTrainer>(), options_.vocabulary);
  }

  void add(ImportedTranslation& result, const ParallelLines& lines, Split split,
           const Tokenizer& tokenizer) const {
    TokenExamples::Part& part = result.examples.part(split);
    const auto room = static_cast<size_t>(options_.max_length) - 1;  // and a mark
    std::vector<int32_t> source, target;
    for (int64_t n = 0; n < lines.size(); ++n) {
      const auto place = static_cast<size_t>(n);
      source.clear();
      target.clear();
      tokenizer.encode(lines.source[place], source);
      tokenizer.encode(lines.target[place], target);
      if (split == Split::kTrain && (source.size() > room || target.size() > room)) {
        ++result.too_long;
        continue;
      }
      for (std::vector<int32_t>* side : {&source, &target})
        if (side->size() > room) {
          side->resize(room);
          ++result.cut;
        }
      part.add(source, lines.places[place]);
      part.add(target, lines.places[place]);
      part.bytes += std::ssize(lines.source[place]) + std::ssize(lines.target[place]);
      if (n % 4096 == 0) tell("encoding", n);
    }
    constexpr size_t kMost = std::numeric_limits<int32_t>::max();
    if (part.tokens.size() > kMost)
      fail("data translation: expected at most ", kMost, " tokens a split; found ", part.tokens.size());
  }

  const TranslationImportOptions& options_;
  int64_t empty_ = 0;
};

}  // namespace

bool reads_words(const Tokenizer& tokenizer) {
  return tokenizer.kind() == "subword-bpe";
}

std::string as_words(std::string_view line) {
  std::string text;
  each_word(join_subwords(line), [&](std::string_view word) {
    if (!text.empty()) text += ' ';
    text += word;
  });
  return text;
}

ImportedTranslation import_translation(const TranslationImportOptions& options) {
  return Importer(options).run();
}

}  // namespace edgewise::data
