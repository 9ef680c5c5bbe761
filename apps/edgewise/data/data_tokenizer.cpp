// edgewise data tokenizer | tokenize: trains a tokeniser on text files; shows the ids and pieces of lines.
#include "data/data_tokenizer.h"

#include <c10/util/Exception.h>
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/tokenizer.h>
#include <edgewise/data/train_tokenizer.h>
#include <edgewise/train/progress.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "data/data_lra.h"
#include "data/text/each_line.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

constexpr int64_t kTimed = 1'000'000;  // bytes; fewer say nothing about the speed

struct TrainArguments {
  std::string kind = "byte-bpe", out;
  std::vector<std::string> from;
  int64_t vocabulary = 8000, min_count = 2;
  bool overwrite = false;
};

struct ShowArguments {
  std::string tokenizer;
  std::vector<std::string> from, texts;
  int64_t lines = 5;
};

// Reads all files; the bytes read so far are shown.
void read_files(const std::vector<std::string>& files, const std::string& label,
                const std::function<void(std::string_view line)>& use) {
  train::ProgressOptions bar;
  bar.label = label;
  bar.unit = "line";
  bar.transient = true;
  train::Progress progress(bar);
  int64_t lines = 0;
  for (const std::string& file : files)
    data::each_line(file, [&](std::string_view line) {
      use(line);
      if (++lines % 1024 == 0) progress.update(lines);
    });
  progress.update(lines);
  progress.finish();
}

template <typename Trainer>
std::unique_ptr<data::Tokenizer> train_bpe(const TrainArguments& arguments, int64_t first_symbols) {
  Trainer trainer;
  read_files(arguments.from, "reading", [&](std::string_view line) { trainer.add(line); });
  std::cerr << counted(trainer.distinct_words(), "distinct word") << "\n";
  train::ProgressOptions bar;
  bar.label = "learning";
  bar.total = arguments.vocabulary - first_symbols;
  bar.unit = "merge";
  bar.transient = true;
  train::Progress progress(bar);
  auto trained = trainer.train({.vocabulary = arguments.vocabulary,
                                .min_count = arguments.min_count,
                                .progress = [&](int64_t merges) { progress.update(merges); }});
  progress.finish();
  return std::make_unique<decltype(trained)>(std::move(trained));
}

std::unique_ptr<data::Tokenizer> characters_of(const TrainArguments& arguments) {
  std::array<bool, 256> occurs{};
  read_files(arguments.from, "reading", [&](std::string_view line) {
    for (const char c : line) occurs[static_cast<uint8_t>(c)] = true;
  });
  std::vector<uint8_t> bytes;
  for (size_t byte = 0; byte < occurs.size(); ++byte)
    if (occurs[byte]) bytes.push_back(static_cast<uint8_t>(byte));
  TORCH_CHECK_VALUE(!bytes.empty(), "data tokenizer: expected text in the files; they are empty");
  return std::make_unique<data::CharactersTokenizer>(std::move(bytes));
}

int run(const TrainArguments& arguments) {
  const std::filesystem::path metadata = std::filesystem::path(arguments.out) / "edgewise_tokenizer.json";
  check_overwrites("tokenizer", metadata, arguments.overwrite);
  TORCH_CHECK_VALUE(arguments.kind == "bytes" || !arguments.from.empty(),
                    "data tokenizer: expected --from FILE... to learn from");
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (arguments.kind == "bytes") {
    tokenizer = std::make_unique<data::BytesTokenizer>();
  } else if (arguments.kind == "characters") {
    tokenizer = characters_of(arguments);
  } else if (arguments.kind == "subword-bpe") {
    tokenizer = train_bpe<data::SubwordBpeTrainer>(arguments, 0);
  } else {
    tokenizer = train_bpe<data::ByteLevelBpeTrainer>(arguments, 5 + 256);
  }
  tokenizer->save(arguments.out);
  const auto saved =
      data::load_tokenizer(arguments.out);  // with all its checks: the figures are those of the files
  std::cout << arguments.out << ": " << saved->kind() << ", " << saved->size() << " ids\n";
  return 0;
}

std::string shown_special(const data::Tokenizer& tokenizer) {
  const data::SpecialIds& special = tokenizer.special();
  std::string text;
  for (const auto& [name, id] : {std::pair{"begin", special.begin},
                                 {"pad", special.pad},
                                 {"end", special.end},
                                 {"unknown", special.unknown},
                                 {"mask", special.mask}})
    if (id) text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(*id);
  return text.empty() ? "none" : text;
}

// One row a token would be long: a line of pieces and a line of ids.
void show_line(const data::Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids) {
  std::cout << text << "\n  pieces:";
  for (const int32_t id : ids) std::cout << " " << tokenizer.piece(id);
  std::cout << "\n  ids:";
  for (const int32_t id : ids) std::cout << " " << id;
  std::cout << "\n";
}

int run(const ShowArguments& arguments) {
  const auto tokenizer = data::load_tokenizer(arguments.tokenizer);
  std::cout << arguments.tokenizer << ": " << tokenizer->kind() << ", " << tokenizer->size()
            << " ids; special: " << shown_special(*tokenizer) << "\n";
  TORCH_CHECK_VALUE(!arguments.from.empty() || !arguments.texts.empty(),
                    "data tokenize: expected --from FILE... or --text TEXT");
  using Clock = std::chrono::steady_clock;
  int64_t lines = 0, size = 0, tokens = 0, unknown = 0;
  double seconds = 0;
  std::vector<int32_t> ids;
  const auto take = [&](std::string_view line) {
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ids.clear();
    const Clock::time_point begin = Clock::now();
    tokenizer->encode(line, ids);
    seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    size += static_cast<int64_t>(line.size());
    tokens += static_cast<int64_t>(ids.size());
    for (const int32_t id : ids) unknown += tokenizer->special().unknown == id;
    if (lines++ < arguments.lines) show_line(*tokenizer, line, ids);
  };
  for (const std::string& text : arguments.texts) take(text);
  if (!arguments.from.empty()) read_files(arguments.from, "encoding", take);
  Table table({"lines", "bytes", "tokens", "bytes a token", "unknown", "MB/s"});
  const auto ratio = [](double a, double b, int digits) { return b > 0 ? fixed(a / b, digits) : "-"; };
  table.add({std::to_string(lines), std::to_string(size), std::to_string(tokens),
             ratio(static_cast<double>(size), static_cast<double>(tokens), 2), std::to_string(unknown),
             size < kTimed ? "-" : ratio(static_cast<double>(size) / 1e6, seconds, 1)});
  table.print(std::cout);
  return 0;
}

}  // namespace

void add_data_tokenizer(CLI::App& data, Action& action) {
  auto train = std::make_shared<TrainArguments>();
  CLI::App* tokenizer = data.add_subcommand("tokenizer", "Train a tokeniser on text files");
  tokenizer
      ->add_option("--kind", train->kind,
                   "byte-bpe (as GPT-2's), subword-bpe (as subword-nmt's), bytes, characters")
      ->capture_default_str()
      ->check(one_of({"byte-bpe", "subword-bpe", "bytes", "characters"}));
  tokenizer->add_option("--from", train->from, "text files, plain or .xz");
  tokenizer
      ->add_option("--vocabulary", train->vocabulary,
                   "byte-bpe: ids altogether, 5 special ones and 256 bytes among them; subword-bpe: merges")
      ->capture_default_str()
      ->check(whole_number(1));
  tokenizer->add_option("--min-count", train->min_count, "pairs that are rarer stay apart")
      ->capture_default_str()
      ->check(whole_number(1));
  tokenizer->add_option("--out", train->out, "folder for the tokeniser")->required();
  tokenizer->add_flag("--overwrite", train->overwrite, "replace a tokeniser that is there already");
  tokenizer->callback([&action, train] { action = [train] { return run(*train); }; });

  auto show = std::make_shared<ShowArguments>();
  CLI::App* tokenize =
      data.add_subcommand("tokenize", "Show the pieces and ids of texts, and how many there are");
  tokenize->add_option("tokenizer", show->tokenizer, "its folder")->required();
  tokenize->add_option("--from", show->from, "text files, plain or .xz");
  tokenize->add_option("--text", show->texts, "a text");
  tokenize->add_option("--lines", show->lines, "lines to show; all are counted")
      ->capture_default_str()
      ->check(whole_number(0));
  tokenize->callback([&action, show] { action = [show] { return run(*show); }; });
}

}  // namespace edgewise::app
