#include <edgewise/data/examples/text_reader.h>
#include <edgewise/io/atomic_file.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "data/text/failure.h"

namespace edgewise::data {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "edgewise.text_reader.1";
constexpr const char* kFile = "reader.json";
constexpr const char* kTokenizer = "tokenizer";

// One value of reader.json.
template <typename Value>
Value value_of(const ordered_json& data, const char* key, const std::string& file, const char* type) {
  const auto found = data.find(key);
  if (found == data.end()) fail(file, ": expected the key '", key, "'; found none. The file is damaged.");
  try {
    return found->get<Value>();
  } catch (const nlohmann::json::exception&) {
    fail(file, ": expected ", type, " as '", key, "'; found ", in_quotes(found->dump()));
  }
}

}  // namespace

AnswerKind parse_answer_kind(std::string_view name) {
  if (name == "class") return AnswerKind::kClass;
  if (name == "number") return AnswerKind::kNumber;
  if (name == "none") return AnswerKind::kNone;
  fail("answer: expected class, number or none; got ", in_quotes(name));
}

std::string_view to_string(AnswerKind kind) {
  return kind == AnswerKind::kClass ? "class" : kind == AnswerKind::kNumber ? "number" : "none";
}

TextReader::TextReader(std::shared_ptr<const Tokenizer> tokenizer, TextReaderOptions options)
    : tokenizer_(std::move(tokenizer)), options_(std::move(options)), vocabulary_(tokenizer_->size()) {
  const SpecialIds& special = tokenizer_->special();
  const auto own = [&](const std::optional<int32_t>& id) {
    return id ? *id : static_cast<int32_t>(vocabulary_++);
  };
  padding_ = own(special.pad);
  separator_ = own(special.end);
  mask_ = own(special.mask);
  if (options_.max_length < 8)
    fail("texts: expected at least 8 tokens of an example to be read; got ", options_.max_length);
  if (options_.answer == AnswerKind::kClass && options_.classes.size() < 2)
    fail("texts: expected at least two classes; found ", options_.classes.size(),
         options_.classes.empty() ? "" : ", " + in_quotes(options_.classes.front()));
  if (!std::isfinite(options_.mean) || !(options_.scale > 0) || !std::isfinite(options_.scale))
    fail("texts: expected a finite mean and a scale above 0; got ", options_.mean, " and ", options_.scale);
}

bool TextReader::read(std::string_view text, const std::optional<std::string_view>& pair,
                      std::vector<int32_t>& ids) const {
  if (pair.has_value() != options_.reads_pairs())
    fail("expected ", options_.reads_pairs() ? "a pair of texts" : "one text", "; got ",
         pair ? "a pair" : "one");
  std::vector<int32_t> first, second;
  tokenizer_->encode(text, first);
  if (first.empty()) fail("expected a text; it is empty");
  if (pair) {
    tokenizer_->encode(*pair, second);
    if (second.empty()) fail("expected two texts; the second is empty");
  }
  const SpecialIds& special = tokenizer_->special();
  const size_t marks = (special.begin ? 1 : 0) + (special.end ? (pair ? 3 : 1) : (pair ? 1 : 0));
  const size_t room = static_cast<size_t>(options_.max_length) - marks;
  const bool cut = first.size() + second.size() > room;
  if (cut) {
    const size_t half = room / 2;
    if (first.size() <= half || !pair) {
      (pair ? second : first).resize(pair ? room - first.size() : room);
    } else if (second.size() <= room - half) {
      first.resize(room - second.size());
    } else {
      first.resize(half);
      second.resize(room - half);
    }
  }
  if (special.begin) ids.push_back(*special.begin);
  ids.insert(ids.end(), first.begin(), first.end());
  if (special.end) ids.push_back(*special.end);
  if (pair) ids.push_back(separator_);
  ids.insert(ids.end(), second.begin(), second.end());
  if (pair && special.end) ids.push_back(*special.end);
  return cut;
}

int64_t TextReader::class_of(std::string_view name) const {
  const auto found = std::ranges::find(options_.classes, name);
  if (found != options_.classes.end()) return found - options_.classes.begin();
  std::string known;
  constexpr size_t kMost = 10;
  for (size_t n = 0; n < std::min(kMost, options_.classes.size()); ++n)
    known += (n ? ", " : "") + in_quotes(options_.classes[n]);
  if (options_.classes.size() > kMost) known += ", ...";
  fail("expected one of the ", options_.classes.size(), " labels of the training examples, ", known,
       "; found ", in_quotes(name));
}

bool TextReader::reads_like(const TextReader& other) const {
  if (vocabulary_ != other.vocabulary_ || tokenizer_->kind() != other.tokenizer_->kind() ||
      tokenizer_->special() != other.tokenizer_->special())
    return false;
  for (int64_t id = 0; id < tokenizer_->size(); ++id)
    if (tokenizer_->piece(static_cast<int32_t>(id)) != other.tokenizer_->piece(static_cast<int32_t>(id)))
      return false;
  return true;
}

void TextReader::save(const std::filesystem::path& folder) const {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) fail("texts: cannot make the folder '", folder.string(), "': ", failure.message());
  tokenizer_->save(folder / kTokenizer);
  ordered_json data = {
      {"format", kFormat},
      {"answer", to_string(options_.answer)},
      {"metric", options_.metric},
      {"max_length", options_.max_length},
      {"columns",
       {{"text", options_.text_column}, {"pair", options_.pair_column}, {"label", options_.label_column}}}};
  if (options_.answer == AnswerKind::kClass) data["classes"] = options_.classes;
  if (options_.answer == AnswerKind::kNumber) {
    data["mean"] = options_.mean;
    data["scale"] = options_.scale;
  }
  // Names of classes are any bytes where the user allowed them; those that are no UTF-8 are shown as such.
  io::write_file_atomically(folder / kFile,
                            data.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

bool TextReader::is_in(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / kFile);
}

TextReader TextReader::load(const std::filesystem::path& folder) {
  const std::string file = (folder / kFile).string();
  if (!is_in(folder)) fail("texts: expected ", file, "; there is none");
  const ordered_json data = ordered_json::parse(io::read_file(file), nullptr, /*allow_exceptions=*/false);
  if (!data.is_object()) fail(file, ": expected an object of JSON; found something else. It is damaged.");
  const auto format = value_of<std::string>(data, "format", file, "a text");
  if (format != kFormat) fail(file, ": expected the format ", kFormat, "; found ", in_quotes(format));
  TextReaderOptions options;
  options.answer = parse_answer_kind(value_of<std::string>(data, "answer", file, "a text"));
  options.metric = value_of<std::string>(data, "metric", file, "a text");
  options.max_length = value_of<int64_t>(data, "max_length", file, "a whole number");
  const auto columns = value_of<ordered_json>(data, "columns", file, "an object");
  options.text_column = value_of<std::string>(columns, "text", file, "a text");
  options.pair_column = value_of<std::string>(columns, "pair", file, "a text");
  options.label_column = value_of<std::string>(columns, "label", file, "a text");
  if (options.answer == AnswerKind::kClass)
    options.classes = value_of<std::vector<std::string>>(data, "classes", file, "a list of texts");
  if (options.answer == AnswerKind::kNumber) {
    options.mean = value_of<double>(data, "mean", file, "a number");
    options.scale = value_of<double>(data, "scale", file, "a number");
  }
  return {load_tokenizer(folder / kTokenizer), std::move(options)};
}

}  // namespace edgewise::data
