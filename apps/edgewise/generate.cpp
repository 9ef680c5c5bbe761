// edgewise generate: text from a trained language model, as it is made.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <edgewise/data/examples/text_reader.h>
#include <edgewise/models/generator.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/stop_signal.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>

#include "command.h"
#include "folders.h"
#include "runs.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct GenerateArguments {
  std::string run, prompt = "\n", checkpoint, device;
  int64_t length = 500, seed = 0;
  SamplingOptions sampling;
  bool no_cache = false;
};

std::string shown(uint8_t byte) {
  if (byte >= 0x20 && byte < 0x7f) return std::string("'") + static_cast<char>(byte) + "'";
  char text[16];
  std::snprintf(text, sizeof(text), "byte 0x%02x", byte);
  return text;
}

std::vector<int64_t> encode(const std::string& text, const std::vector<uint8_t>& bytes) {
  std::vector<int64_t> tokens;
  for (const char c : text) {
    const auto found = std::ranges::find(bytes, static_cast<uint8_t>(c));
    TORCH_CHECK_VALUE(found != bytes.end(),
                      "generate: expected a prompt of characters that the model has seen; ",
                      shown(static_cast<uint8_t>(c)), " is none of the ", bytes.size(),
                      ". Leave it out, or train on a text that has it.");
    tokens.push_back(found - bytes.begin());
  }
  return tokens;
}

// A text that grows piece by piece: what a piece adds may depend on those before it.
class Pieces {
 public:
  explicit Pieces(data::TextReader reader) : reader_(std::move(reader)) {}

  std::vector<int64_t> encode(const std::string& text) {
    ids_ = reader_.tokenizer().encode(text);
    TORCH_CHECK_VALUE(!ids_.empty(), "generate: expected a prompt of at least one token; got none");
    told_ = reader_.tokenizer().decode(ids_);
    return {ids_.begin(), ids_.end()};
  }

  // What the next token adds to the text.
  std::string take(int64_t token) {
    if (token >= reader_.tokenizer().size()) return {};  // padding and the like, which stand for no text
    ids_.push_back(static_cast<int32_t>(token));
    const std::string whole = reader_.tokenizer().decode(ids_);
    const std::string added = whole.size() > told_.size() ? whole.substr(told_.size()) : "";
    told_ = whole;
    return added;
  }

 private:
  data::TextReader reader_;
  std::vector<int32_t> ids_;
  std::string told_;
};

int run(const GenerateArguments& arguments) {
  const std::filesystem::path folder(arguments.run);
  expect_run_folder(folder, "config.toml", "generate");
  const train::Recipe recipe = train::load_recipe((folder / "config.toml").string());
  TORCH_CHECK_VALUE(train::task_kind(recipe).is_causal, "generate: expected the run of a language model; ",
                    folder.string(), " was trained on ", recipe.data.name,
                    ". Train one with: edgewise train recipes/lm/tiny.toml");
  if (recipe.train.threads > 0) at::set_num_threads(static_cast<int>(recipe.train.threads));
  LanguageModel model =
      train::load_language_model(recipe, checkpoint_file(folder, arguments.checkpoint, "generate"));
  model->to(
      train::parse_device(arguments.device.empty() ? recipe.train.device : arguments.device, "--device cpu"));
  const std::vector<uint8_t> bytes = model->options.bytes;
  const std::string reader = (folder / "reader").string();
  std::optional<Pieces> pieces;  // of a tokeniser; none: bytes
  if (bytes.empty()) pieces.emplace(data::TextReader::load(reader));
  const std::vector<int64_t> prompt =
      pieces ? pieces->encode(arguments.prompt) : encode(arguments.prompt, bytes);
  std::string refusal = model->cache_refusal();
  if (arguments.no_cache) refusal = "--no-cache";
  if (!refusal.empty())
    std::cerr << "every character costs a pass over the whole window: " << refusal << "\n";
  Generator generator(model, arguments.sampling, static_cast<uint64_t>(arguments.seed),
                      train::evaluation_stream(static_cast<uint64_t>(recipe.train.seed), 0, 0),
                      arguments.no_cache ? GeneratorCache::kNever : GeneratorCache::kWhereExact);
  const train::StopSignal signal;  // Ctrl-C ends the text, not the line
  std::cout << arguments.prompt << std::flush;
  generator.read(prompt);
  const auto start = std::chrono::steady_clock::now();
  int64_t made = 0;
  for (; made < arguments.length && !train::StopSignal::requested(); ++made) {
    const int64_t token = generator.next();
    if (pieces)
      std::cout << pieces->take(token) << std::flush;
    else
      std::cout << static_cast<char>(bytes[static_cast<size_t>(token)]) << std::flush;
  }
  std::cout << "\n";
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cerr << made << (pieces ? " tokens, " : " characters, ")
            << fixed(static_cast<double>(made) / std::max(seconds, 1e-9), 0) << " a second\n";
  return train::StopSignal::requested() ? 130 : 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "Let a trained language model go on with a text");
  command->add_option("run", arguments->run, "run folder of a recipe in recipes/lm")->required();
  command->add_option("--prompt", arguments->prompt,
                      "the text to go on with; default: the beginning of a line");
  command->add_option("--length", arguments->length, "characters, or tokens of a tokeniser, to make")
      ->capture_default_str()
      ->check(whole_number(0));
  command
      ->add_option(
          "--temperature", arguments->sampling.temperature,
          "below 1: likelier characters become likelier still; above 1: less so; for the likeliest: --greedy")
      ->capture_default_str()
      ->check(number_above(0));
  command->add_option("--top-k", arguments->sampling.top_k, "only among the k likeliest; 0 = all")
      ->capture_default_str()
      ->check(whole_number(0));
  command
      ->add_option("--top-p", arguments->sampling.top_p,
                   "only among the likeliest that together have this probability")
      ->capture_default_str()
      ->check(number_between(1e-9, 1));
  command->add_option("--seed", arguments->seed, "the same seed gives the same text")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_flag("--greedy", arguments->sampling.greedy, "always the likeliest character");
  command->add_option("--checkpoint", arguments->checkpoint, "best or last; default: best")
      ->check(one_of({"best", "last"}));
  command->add_option("--device", arguments->device, "cpu or cuda; default: the recipe's")
      ->check(one_of({"cpu", "cuda"}));
  command->add_flag("--no-cache", arguments->no_cache,
                    "compute every character from the last window of text alone, to compare with; attention "
                    "with a memory then sees less");
  command->callback([&action, arguments] {
    if (arguments->prompt.empty())
      throw CLI::ValidationError("--prompt: expected at least one character; got none");
    action = [arguments] { return run(*arguments); };
  });
}

}  // namespace edgewise::app
