#include <edgewise/data/examples/import_plain_text.h>

#include <edgewise/data/examples/table_rows.h>
#include <edgewise/data/train_tokenizer.h>

#include <limits>
#include <stdexcept>

#include "data/text/each_line.h"
#include "data/text/failure.h"

namespace edgewise::data {
namespace {

constexpr int64_t kTextMinCount = 2;

class PlainText {
 public:
  explicit PlainText(const PlainTextOptions& options) : options_(options) {}

  // Calls use(line, offset) for the lines of all files, offset: bytes before it. Returns the bytes of all.
  int64_t each(const std::vector<std::filesystem::path>& files, const std::string& doing,
               const std::function<void(std::string_view line, int64_t offset)>& use) const {
    int64_t offset = 0, lines = 0;
    for (const std::filesystem::path& file : files) {
      int64_t line_number = 0;
      each_line(
          file,
          [&](std::string_view line) {
            ++line_number;
            try {
              check_line_length(line);
              if (!options_.any_bytes) check_utf8(line);
            } catch (const std::invalid_argument& error) {
              fail(file.string(), ":", line_number, ": ", error.what());
            }
            if (use) use(line, offset);
            offset += static_cast<int64_t>(line.size());
            if (options_.progress && ++lines % 4096 == 0) options_.progress(doing, lines);
          },
          kLongestLine + 1);
    }
    return offset;
  }

 private:
  const PlainTextOptions& options_;
};

}  // namespace

ImportedText import_plain_text(const PlainTextOptions& options) {
  if (options.train.empty()) fail("data text: expected text files; got none");
  if (options.validation.empty() != options.test.empty())
    fail("data text: expected files for both validation and test, or for neither; got only ",
         options.test.empty() ? "validation" : "test");
  const PlainText text(options);
  const bool cut = options.test.empty();
  const int64_t size = text.each(options.train, "checking", {});
  if (size == 0) fail("data text: expected text in ", options.train.front().string(), "; it is empty");
  // Where the split of a line begins: by the place of its first byte.
  const int64_t end = cut ? size * 18 / 20 : std::numeric_limits<int64_t>::max(),
                middle = cut ? size * 19 / 20 : end;

  std::shared_ptr<const Tokenizer> tokenizer = options.tokenizer;
  if (!tokenizer) {
    ByteLevelBpeTrainer trainer;
    text.each(options.train, "counting words", [&](std::string_view line, int64_t offset) {
      if (offset < end) trainer.add(line);
    });
    tokenizer = std::make_shared<ByteLevelBpe>(trainer.train(
        {.vocabulary = options.vocabulary, .min_count = kTextMinCount, .progress = [&](int64_t merges) {
           if (options.progress) options.progress("learning pieces", merges);
         }}));
  }
  TextReader reader(tokenizer,
                    {.answer = AnswerKind::kNone, .max_length = options.max_length, .metric = "loss"});
  TokenExamples examples;
  examples.source = options.train.front().filename().string();
  const auto encode = [&](std::string_view line, Split split) {
    TokenExamples::Part& part = examples.part(split);
    tokenizer->encode(line, part.tokens);
    part.bytes += static_cast<int64_t>(line.size());
  };
  text.each(options.train, "encoding", [&](std::string_view line, int64_t offset) {
    encode(line, offset < end ? Split::kTrain : offset < middle ? Split::kValidation : Split::kTest);
  });
  for (const Split split : {Split::kValidation, Split::kTest})
    text.each(split == Split::kTest ? options.test : options.validation, "encoding",
              [&](std::string_view line, int64_t) { encode(line, split); });
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    TokenExamples::Part& part = examples.part(split);
    constexpr size_t kMost = std::numeric_limits<int32_t>::max();
    if (part.tokens.size() > kMost)
      fail("data text: expected at most ", kMost, " tokens a split; found ", part.tokens.size(),
           ". Use a part of the text");
    if (part.tokens.empty())
      fail("data text: expected text for every split; ", to_string(split), " has none",
           cut ? ", for the text has too few lines to be cut where one ends" : "");
    part.lengths = {static_cast<int32_t>(part.tokens.size())};
    part.lines = {1};
  }
  return {std::move(reader), std::move(examples)};
}

}  // namespace edgewise::data
