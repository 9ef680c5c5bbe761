#include <edgewise/train/new_inputs.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <edgewise/data/byte_dataset.h>
#include <edgewise/data/examples/labelled_text.h>
#include <edgewise/data/examples/masked_text.h>
#include <edgewise/data/examples/translation_pairs.h>
#include <edgewise/data/listops_dataset.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/translator.h>

#include "data/readers/png.h"
#include "train/run/run_folder.h"

namespace edgewise::train {
namespace {

using Read = std::function<Batch(const NewInput&)>;

// A trained model, and how its task reads inputs.
struct Opened {
  ModelPtr model = {};
  SnapshotTask task = {};
  Read read = {};
  std::string reads = {};                               // "--text, --file": what `read` takes
  std::shared_ptr<const data::TextReader> reader = {};  // that `task` names
  DatasetPtr data = {};
};

struct RunPlace {
  std::filesystem::path run;
  std::string checkpoint;
  Recipe recipe;
};

at::Tensor row_of(const std::vector<int64_t>& ids) {
  return at::tensor(ids, at::kLong).unsqueeze(0);
}

const std::string& text_of(const NewInput& input) {
  TORCH_CHECK_VALUE(!input.text->empty(), "explore: expected a text; ", input.name, " is empty");
  return *input.text;
}

void expect_no_pair(const NewInput& input, const std::string& task) {
  TORCH_CHECK_VALUE(!input.pair, "explore: expected one text an input; the task ", task,
                    " reads no pairs. Leave --pair out");
}

void check_ids(const NewInput& input, int64_t vocabulary, int64_t most) {
  TORCH_CHECK_VALUE(std::ssize(input.tokens) <= most, "explore: expected at most ", most,
                    " tokens, as this run was trained on; ", input.name, " has ", input.tokens.size());
  for (const int64_t id : input.tokens)
    TORCH_CHECK_VALUE(id >= 0 && id < vocabulary, "explore: expected ids from 0 to ", vocabulary - 1, "; ",
                      input.name, " has ", id);
}

ModelPtr load_model(const RunPlace& place, const tasks::Task& task) {
  ModelPtr model = build_model(place.recipe, task);
  load_checkpoint(place.checkpoint, *model);
  return model;
}

// A batch of ids, without an answer.
Read reads_ids(int64_t vocabulary, int64_t most) {
  return [=](const NewInput& input) {
    check_ids(input, vocabulary, most);
    return Batch{.towers = {{.tokens = row_of(input.tokens)}}};
  };
}

// ---- language models ----

// Of a text its labels are the tokens one further on.
Batch causal_batch(const NewInput& input, const std::vector<int64_t>& ids, int64_t most) {
  TORCH_CHECK_VALUE(std::ssize(ids) >= 2 && std::ssize(ids) <= most, "explore: expected 2 to ", most,
                    " tokens, the context of this run; ", input.name, " has ", ids.size(),
                    ids.size() > 1 ? ". Take a part of it" : "");
  std::vector<int64_t> next(ids.begin() + 1, ids.end());
  next.push_back(-1);
  return {.towers = {{.tokens = row_of(ids)}}, .labels = row_of(next)};
}

std::vector<int64_t> ids_of_bytes(const NewInput& input, const std::vector<uint8_t>& known) {
  std::vector<int64_t> ids;
  for (const char c : text_of(input)) {
    const auto found = std::ranges::find(known, static_cast<uint8_t>(c));
    TORCH_CHECK_VALUE(found != known.end(), "explore: expected characters that the run was trained on; ",
                      data::byte_name(static_cast<uint8_t>(c)), " in ", input.name, " is none of the ",
                      known.size());
    ids.push_back(found - known.begin());
  }
  return ids;
}

Opened open_language_model(const RunPlace& place, std::shared_ptr<const data::TextReader> reader) {
  const LanguageModel model = load_language_model(place.recipe, place.checkpoint);
  const int64_t most = place.recipe.data.length;
  const std::vector<uint8_t> bytes = model->options.bytes;
  Opened opened{.model = model.ptr(), .task = {.name = place.recipe.data.name}, .reads = "--text or --file"};
  for (const uint8_t byte : bytes) opened.task.view.names.push_back(data::byte_name(byte));
  const int64_t vocabulary = reader ? reader->vocabulary() : std::ssize(bytes);
  opened.reader = reader;
  opened.read = [=](const NewInput& input) {
    expect_no_pair(input, "of a language model");
    check_ids(input, vocabulary, most);
    if (!input.text) return causal_batch(input, input.tokens, most);
    if (!reader) return causal_batch(input, ids_of_bytes(input, bytes), most);
    const std::vector<int32_t> ids = reader->tokenizer().encode(text_of(input));
    return causal_batch(input, {ids.begin(), ids.end()}, most);
  };
  return opened;
}

// ---- texts by a reader ----

Opened open_labelled_text(const RunPlace& place, std::shared_ptr<const data::TextReader> reader) {
  Opened opened{.task = {.name = place.recipe.data.name}};
  if (reader->options().answer == data::AnswerKind::kNone) {
    data::TokenExamples examples;  // data for masked words has some; what they are is not looked at
    for (data::TokenExamples::Part& part : examples.parts)
      part.add(std::vector<int32_t>(static_cast<size_t>(place.recipe.data.length), reader->padding()), 1);
    opened.data =
        std::make_shared<data::MaskedText>(*reader, std::move(examples),
                                           data::MaskedTextOptions{.length = place.recipe.data.length,
                                                                   .mask_rate = place.recipe.data.mask_rate});
  } else {
    opened.data = std::make_shared<data::LabelledText>(*reader);
  }
  opened.model = load_model(place, *task_over(place.recipe, opened.data));
  opened.reader = reader;
  opened.reads = reader->options().reads_pairs() ? "--text with --pair" : "--text or --file";
  const int64_t most = opened.data->max_length();
  opened.read = [reader, most, name = place.recipe.data.name](const NewInput& input) {
    std::vector<int32_t> ids(input.tokens.begin(), input.tokens.end());
    check_ids(input, reader->vocabulary(), most);
    TORCH_CHECK_VALUE(!input.text || input.pair.has_value() == reader->options().reads_pairs(),
                      "explore: expected ",
                      reader->options().reads_pairs() ? "--pair beside" : "no --pair beside",
                      " --text: this run was trained on ",
                      reader->options().reads_pairs() ? "pairs of texts" : "single texts");
    if (input.text) {
      std::optional<std::string_view> pair;
      if (input.pair) pair = *input.pair;
      reader->read(text_of(input), pair, ids);
    }
    return data::text_batch({std::span<const int32_t>(ids)}, *reader);
  };
  return opened;
}

Opened open_translation(const RunPlace& place, std::shared_ptr<const data::TextReader> reader) {
  Opened opened{.task = {.name = place.recipe.data.name},
                .reads = "--text, with the translation in --pair or without"};
  opened.data = std::make_shared<data::TranslationPairs>(*reader);
  opened.model = load_model(place, *task_over(place.recipe, opened.data));
  opened.reader = reader;
  const auto translator = std::make_shared<const Translator>(
      place.run, TranslatorOptions{.checkpoint = place.checkpoint, .device = "cpu", .overrides = {}});
  opened.read = [reader, translator](const NewInput& input) {
    TORCH_CHECK_VALUE(input.text, "explore: expected --text for a translation; ", input.name, " has none");
    const std::vector<int32_t> source = translator->read(text_of(input));
    const std::string target = input.pair ? *input.pair : translator->translate({source}, 0).at(0);
    data::TokenExamples examples;
    data::TokenExamples::Part& part = examples.part(data::Split::kValidation);
    part.add(source, 1);
    part.add(translator->read(target), 1);
    data::TranslationSets sets;
    sets.validation.pairs = 1;
    const int64_t only = 0;
    return data::TranslationPairs(*reader, std::move(examples), std::move(sets))
        .batch(data::Split::kValidation, std::span(&only, 1));
  };
  return opened;
}

// ---- the Long Range Arena ----

// What people write: [MAX 2 [MIN 1 3 ] ], with X for ] too, and the blanks left out or not.
std::vector<uint8_t> listops_tokens(const NewInput& input) {
  std::string spaced;
  for (const char c : text_of(input)) {
    if (c == '(' || c == ')') continue;  // some write them around everything
    spaced += c == ']' ? std::string(" X ") : std::string(1, c);
  }
  std::vector<uint8_t> tokens;
  std::istringstream words(spaced);
  for (std::string word; words >> word;) {
    uint8_t token = 1;
    while (token < data::kListOpsTokens && data::listops_token_name(token) != word) ++token;
    TORCH_CHECK_VALUE(token < data::kListOpsTokens,
                      "explore: expected an expression of [MIN, [MAX, [MED, [SM, digits and ], such as "
                      "\"[MAX 2 [MIN 1 3 ] ]\"; ",
                      input.name, " has '", word, "'");
    tokens.push_back(token);
  }
  const data::ListOpsValue value = data::evaluate_listops(tokens);
  TORCH_CHECK_VALUE(value.problem.empty(), "explore: expected a whole expression; in ", input.name, " ",
                    value.problem, ", at token ", value.position);
  return tokens;
}

Opened open_listops(const RunPlace& place) {
  const data::ListOpsDatasetOptions options{.fixed_length = place.recipe.data.fixed_length};
  Opened opened{.reads = "--text with an expression, such as \"[MAX 2 [MIN 1 3 ] ]\""};
  opened.data = std::make_shared<data::ListOpsDataset>(data::ListOpsData(), options);
  opened.task = {.name = opened.data->name(), .view = opened.data->token_view()};
  opened.model = load_model(place, *task_over(place.recipe, opened.data));
  opened.read = [options, ids = reads_ids(data::kListOpsTokens, options.max_length)](const NewInput& input) {
    if (!input.text) return ids(input);
    expect_no_pair(input, "listops");
    const std::vector<uint8_t> tokens = listops_tokens(input);
    data::ListOpsData one;
    one.validation.add(tokens, data::evaluate_listops(tokens).value);
    const int64_t only = 0;
    return data::ListOpsDataset(std::move(one), options).batch(data::Split::kValidation, std::span(&only, 1));
  };
  return opened;
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Opened open_bytes(const RunPlace& place) {
  const DataRecipe& wanted = place.recipe.data;
  data::ByteDatasetOptions options = data::lra_options(wanted.name);
  options.fixed_length = wanted.fixed_length;
  options.mask_zero = wanted.mask_zero;
  options.drop_masked = wanted.drop_masked;
  const int64_t towers = task_kind(place.recipe).noise(place.recipe).towers;
  Opened opened;
  opened.data = std::make_shared<data::ByteDataset>(data::ByteExamples(wanted.name, towers), options);
  opened.task = {.name = wanted.name, .view = opened.data->token_view()};
  opened.model = load_model(place, *task_over(place.recipe, opened.data));
  const int64_t side = opened.task.view.picture_width;
  const bool is_picture = side > 0;
  opened.reads = is_picture ? "--image with a grey PNG file of " + std::to_string(side) + " x " +
                                  std::to_string(side) + " pixels"
                 : towers == 2 ? "--text with --pair"
                               : "--text or --file";
  opened.read = [=, name = wanted.name](const NewInput& input) {
    data::ByteExamples one(name, towers);
    std::vector<int32_t> sequences;
    if (is_picture) {
      const std::vector<uint8_t> pixels = data::read_grey_png(*input.picture, side, side);
      sequences.push_back(one.add_sequence(pixels));
    } else {
      TORCH_CHECK_VALUE(input.pair.has_value() == (towers == 2), "explore: expected ",
                        towers == 2 ? "--pair beside" : "no --pair beside", " --text: the task ", name,
                        " reads ", towers == 2 ? "pairs of texts" : "single texts");
      sequences.push_back(one.add_sequence(bytes_of(text_of(input))));
      if (input.pair) sequences.push_back(one.add_sequence(bytes_of(*input.pair)));
    }
    one.add_example(data::Split::kValidation, sequences, 0);
    const int64_t only = 0;
    Batch batch =
        data::ByteDataset(std::move(one), options).batch(data::Split::kValidation, std::span(&only, 1));
    batch.labels = at::Tensor();  // which nobody knows
    return batch;
  };
  return opened;
}

// ---- all others ----

// Generators, and tasks that programs add: their data say sizes, and inputs are ids.
Opened open_data(const RunPlace& place) {
  Opened opened;
  opened.data = task_kind(place.recipe).open(place.recipe);
  TORCH_CHECK_VALUE(
      opened.data->features() == 0 && opened.data->vocabulary() > 0 && !task_kind(place.recipe).is_graph,
      "explore: expected a task whose inputs are texts, pictures or tokens; ", place.recipe.data.name,
      " has none that could be given here. edgewise explore ", place.run.string(),
      " shows the examples of its snapshots");
  opened.task = {
      .name = opened.data->name(), .view = opened.data->token_view(), .reader = opened.data->reader()};
  opened.model = load_model(place, *task_over(place.recipe, opened.data));
  opened.reads = "--input with token ids";
  opened.read = [data = opened.data](const NewInput& input) {
    return reads_ids(data->vocabulary(), data->max_length())(input);
  };
  return opened;
}

Opened open_run(const RunPlace& place) {
  const RunFolder folder{.root = place.run};
  const TaskKind& kind = task_kind(place.recipe);
  std::shared_ptr<const data::TextReader> reader;
  if (data::TextReader::is_in(folder.reader()))
    reader = std::make_shared<const data::TextReader>(data::TextReader::load(folder.reader()));
  if (kind.is_causal) return open_language_model(place, reader);
  if (reader) return kind.has_decoder ? open_translation(place, reader) : open_labelled_text(place, reader);
  if (data::is_byte_task(kind.name)) return open_bytes(place);
  if (kind.name == "listops") return open_listops(place);
  return open_data(place);
}

// Whether the run reads what is given; `reads` says what it does read.
void check_kind(const Opened& opened, const RunPlace& place, const NewInput& input) {
  const bool is_picture = opened.task.view.picture_width > 0;
  const bool reads_text = opened.reads.starts_with("--text");
  const bool fits = input.picture ? is_picture : input.text ? reads_text : !is_picture;
  TORCH_CHECK_VALUE(fits, "explore: expected inputs that the run reads, ", opened.reads, "; ", input.name,
                    " is ",
                    input.picture ? "a picture"
                    : input.text  ? "a text"
                                  : "a list of token ids",
                    ", and ", place.run.string(), " was trained on ", place.recipe.data.name);
}

}  // namespace

Snapshot snapshot_of_inputs(const std::filesystem::path& run, const std::string& checkpoint,
                            const std::vector<NewInput>& inputs) {
  const RunFolder folder{.root = run};
  RunPlace place{.run = run, .checkpoint = checkpoint, .recipe = load_recipe(folder.config())};
  const Recipe& recipe = place.recipe;
  Opened opened = open_run(place);
  if (opened.reader) opened.task.reader = opened.reader.get();
  std::vector<SnapshotItem> items;
  for (const NewInput& input : inputs) {
    check_kind(opened, place, input);
    SnapshotItem item{.example = std::ssize(items), .name = input.name};
    try {
      item.batch = opened.read(input);
    } catch (const std::invalid_argument& error) {  // of readers of texts
      TORCH_CHECK_VALUE(false, "explore: ", input.name, ": ", error.what());
    }
    items.push_back(std::move(item));
  }
  Snapshot snapshot = take_snapshot(*opened.model, opened.task, items,
                                    {.step = read_checkpoint_info(checkpoint).step,
                                     .seed = static_cast<uint64_t>(recipe.train.seed),
                                     .precision = parse_precision(recipe.train.precision),
                                     .is_causal = task_kind(recipe).is_causal});
  for (const InputSnapshot& input : snapshot.inputs)
    TORCH_CHECK_VALUE(!input.layers.empty(),
                      "explore: expected attention over edges, or dense attention; attention.kind = ",
                      recipe.attention.kind, " has no graph to show");
  return snapshot;
}

}  // namespace edgewise::train
