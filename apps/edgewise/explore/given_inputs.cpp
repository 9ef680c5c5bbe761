#include "explore/given_inputs.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <filesystem>
#include <sstream>

#include <edgewise/io/atomic_file.h>

namespace edgewise::app {
namespace {

constexpr uint64_t kLargestText = uint64_t{4} << 20;
constexpr size_t kMostInputs = 64;

std::string short_name(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return name.substr(0, 100);
}

// A text without the end of its last line.
std::string text_in(const std::string& path) {
  std::string text = io::read_text(path, kLargestText);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// "3 17 4" or "[3, 17, 4]".
std::vector<int64_t> ids_of(std::string line, const std::string& where) {
  for (char& c : line)
    if (c == ',' || c == '[' || c == ']' || c == '\t' || c == '\r') c = ' ';
  std::vector<int64_t> ids;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    TORCH_CHECK_VALUE(error == std::errc() && end == word.data() + word.size() && id >= 0, where,
                      ": expected token ids, whole numbers such as \"3 17 4\"; found '", word.substr(0, 40),
                      "'");
    ids.push_back(id);
  }
  return ids;
}

void add_token_file(const std::string& path, std::vector<train::NewInput>& inputs) {
  std::istringstream lines(io::read_text(path, kLargestText));
  int64_t number = 0;
  const size_t before = inputs.size();
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string where = path + ":" + std::to_string(number);
    std::vector<int64_t> ids = ids_of(line, where);
    if (!ids.empty())
      inputs.push_back(
          {.name = short_name(path) + " line " + std::to_string(number), .tokens = std::move(ids)});
  }
  TORCH_CHECK_VALUE(inputs.size() > before, "explore: expected token ids in ", path,
                    ", an input a line; it has none");
}

}  // namespace

void add_given_inputs(CLI::App& command, GivenInputs& given) {
  const auto several = [&](const char* name, std::vector<std::string>& into, const char* meaning) {
    command.add_option(name, into, meaning)->allow_extra_args(false)->group("New inputs");
  };
  several("--text", given.texts, "show this text to the trained run, on the CPU; may be given again");
  several("--pair", given.pairs,
          "the second text of a run on pairs, or the translation of --text; without one the run translates");
  several("--file", given.files, "the text of a file");
  several("--image", given.pictures, "a grey PNG file of as many pixels as the run's pictures have");
  several("--input", given.token_files, "a file of token ids, an input a line, for any run over tokens");
}

std::vector<train::NewInput> read_given_inputs(const GivenInputs& given) {
  std::vector<train::NewInput> inputs;
  for (const std::string& text : given.texts)
    inputs.push_back({.name = "text " + std::to_string(inputs.size() + 1), .text = text});
  for (const std::string& path : given.files)
    inputs.push_back({.name = short_name(path), .text = text_in(path)});
  const size_t texts = inputs.size();
  TORCH_CHECK_VALUE(given.pairs.size() <= texts,
                    "explore: expected a --text or --file for every --pair; found ", given.pairs.size(),
                    " pairs and ", texts, " texts");
  for (size_t n = 0; n < given.pairs.size(); ++n) inputs[n].pair = given.pairs[n];
  for (const std::string& path : given.pictures)
    inputs.push_back({.name = short_name(path), .picture = path});
  for (const std::string& path : given.token_files) add_token_file(path, inputs);
  TORCH_CHECK_VALUE(inputs.size() <= kMostInputs, "explore: expected at most ", kMostInputs,
                    " new inputs; found ", inputs.size());
  return inputs;
}

}  // namespace edgewise::app
