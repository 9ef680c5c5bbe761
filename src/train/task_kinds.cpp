// The tasks that the library brings, an entry each, and those that programs add.
#include <edgewise/train/task_kinds.h>

#include <edgewise/data/associative_recall.h>
#include <edgewise/data/byte_dataset.h>
#include <edgewise/data/characters.h>
#include <edgewise/data/examples/masked_text.h>
#include <edgewise/data/examples/token_text.h>
#include <edgewise/data/graphs/graph_nodes.h>
#include <edgewise/data/listops_dataset.h>
#include <edgewise/data/listops_file.h>
#include <edgewise/data/multi_query_recall.h>
#include <edgewise/data/needle.h>
#include <edgewise/data/repeated_tokens.h>
#include <edgewise/tasks/masked_tokens.h>
#include <edgewise/tasks/node_labels.h>
#include <edgewise/tasks/text_answers.h>
#include <edgewise/tasks/translation.h>
#include <edgewise/train/attention_kinds.h>

#include <algorithm>
#include <deque>
#include <filesystem>

#include "train/image_task.h"
#include "train/recipe/kind_names.h"
#include "train/recipe/nearest_name.h"
#include "train/recipe/recipe_fields.h"

namespace edgewise::train {
namespace {

template <typename Task>
tasks::TaskPtr make_task(DatasetPtr data) {
  return std::make_shared<Task>(std::move(data));
}

// What generators have in common.
template <typename Options>
Options options_of(const DataRecipe& data) {
  Options options;
  options.length = data.length;
  options.train_size = data.train_size;
  options.validation_size = data.validation_size;
  options.test_size = data.test_size;
  options.seed = static_cast<uint64_t>(data.seed);
  return options;
}

DatasetPtr open_repeated_tokens(const Recipe& recipe) {
  return std::make_shared<data::RepeatedTokens>(options_of<data::RepeatedTokensOptions>(recipe.data));
}

DatasetPtr open_associative_recall(const Recipe& recipe) {
  auto options = options_of<data::AssociativeRecallOptions>(recipe.data);
  options.values = recipe.data.values;
  return std::make_shared<data::AssociativeRecall>(options);
}

// Generators of keys with values.
template <typename Dataset, typename Options>
DatasetPtr open_pairs(const Recipe& recipe) {
  auto options = options_of<Options>(recipe.data);
  options.pairs = recipe.data.pairs;
  options.vocabulary = recipe.data.vocabulary;
  return std::make_shared<Dataset>(options);
}

void check_file(const DataRecipe& wanted, const std::filesystem::path& file, const char* what,
                const char* source) {
  TORCH_CHECK_VALUE(std::filesystem::exists(file), "no ", what, " data in '", wanted.path,
                    "'; make it with: edgewise data ", wanted.name, source, " --out ", wanted.path);
}

DatasetPtr open_listops(const Recipe& recipe) {
  const DataRecipe& wanted = recipe.data;
  check_file(wanted, data::listops_path(wanted.path, data::Split::kTrain), "ListOps", "");
  data::ListOpsDatasetOptions options;
  options.fixed_length = wanted.fixed_length;
  return std::make_shared<data::ListOpsDataset>(wanted.path, options);
}

DatasetPtr open_bytes(const Recipe& recipe) {
  const DataRecipe& wanted = recipe.data;
  check_file(wanted, data::byte_examples_path(wanted.path, wanted.name), wanted.name.c_str(),
             wanted.name == "pathfinder" ? " --generate" : " --from FOLDER");
  data::ByteDatasetOptions options = data::lra_options(wanted.name);
  options.fixed_length = wanted.fixed_length;
  options.mask_zero = wanted.mask_zero;
  options.drop_masked = wanted.drop_masked;
  options.symmetries = wanted.symmetries == "square" ? 8 : wanted.symmetries == "mirror" ? 2 : 1;
  options.validation_is_test = wanted.validation == "test";
  return std::make_shared<data::ByteDataset>(data::load_byte_examples(wanted.path, wanted.name), options);
}

DatasetPtr open_labelled_text(const Recipe& recipe) {
  return std::make_shared<data::LabelledText>(recipe.data.path);
}

DatasetPtr open_masked_text(const Recipe& recipe) {
  const data::MaskedTextOptions options{.length = recipe.data.length, .mask_rate = recipe.data.mask_rate};
  return std::make_shared<data::MaskedText>(recipe.data.path, options);
}

DatasetPtr open_graph(const Recipe& recipe) {
  const DataRecipe& wanted = recipe.data;
  data::GraphData graph = data::load_graph(wanted.path);
  const AttentionKind& attention = attention_kind(recipe);
  const int64_t split = wanted.split >= 0 ? wanted.split : recipe.train.seed % graph.splits();
  TORCH_CHECK_VALUE(!attention.joins_graphs || !attention.joins_graphs(recipe) || graph.graphs() == 1 ||
                        recipe.train.micro_batch == 1,
                    "graph: expected train.micro_batch = 1 with attention.kind = ", attention.name,
                    ", since ", graph.name, " has ", graph.graphs(),
                    " graphs, and edges beside those of a graph would join the graphs of a batch; found ",
                    recipe.train.micro_batch);
  return std::make_shared<data::GraphNodes>(std::move(graph),
                                            data::GraphNodesOptions{.split = split,
                                                                    .normalise = wanted.normalise,
                                                                    .standardise = wanted.standardise,
                                                                    .metric = wanted.metric});
}

DatasetPtr open_token_text(const Recipe& recipe) {
  return std::make_shared<data::TokenText>(recipe.data.path, recipe.data.length);
}

DatasetPtr open_translation(const Recipe& recipe) {
  return std::make_shared<data::TranslationPairs>(recipe.data.path);
}

std::vector<OwnOption> translation_options() {
  return {{.key = "decoder_layers",
           .value = int64_t{0},
           .meaning = "blocks of the decoder; 0 = as many as the encoder has",
           .low = 0},
          {.key = "shared_embedding",
           .value = true,
           .meaning = "encoder and decoder read tokens by the same embedding"},
          {.key = "beam", .value = int64_t{5}, .meaning = "hypotheses of a sentence in tests", .low = 1},
          {.key = "penalty",
           .value = 1.0,
           .meaning = "power of the length, or of (5 + length) / 6, that a score is divided by",
           .low = 0},
          {.key = "penalty_kind",
           .value = std::string("length"),
           .meaning = "what the power is of: the length (fairseq), or (5 + length) / 6",
           .allowed = {"length", "gnmt"}},
          {.key = "length_factor",
           .value = 0.0,
           .meaning = "longest translation: so many times the tokens of the source, plus length_extra",
           .low = 0},
          {.key = "length_extra", .value = int64_t{200}, .meaning = "see length_factor", .low = 1},
          {.key = "bootstrap",
           .value = int64_t{1000},
           .meaning = "draws of sentences for the intervals of BLEU; 0 = none",
           .low = 0}};
}

// A value of [translation], or its default where the recipe was not read from anywhere.
template <typename Value>
Value translation_value(const Recipe& recipe, const std::string& key) {
  if (const auto found = recipe.own.find("translation." + key); found != recipe.own.end())
    return std::get<Value>(found->second);
  const std::vector<OwnOption> options = translation_options();
  return std::get<Value>(std::ranges::find(options, key, &OwnOption::key)->value);
}

tasks::TaskPtr make_translation(DatasetPtr data, const Recipe& recipe) {
  const auto whole = [&](const char* key) { return translation_value<int64_t>(recipe, key); };
  const auto number = [&](const char* key) { return translation_value<double>(recipe, key); };
  tasks::TranslationOptions options{
      .decoder_layers = whole("decoder_layers"),
      .shared_embedding = translation_value<bool>(recipe, "shared_embedding"),
      .search = {.beam = whole("beam"),
                 .kind = parse_length_penalty(translation_value<std::string>(recipe, "penalty_kind")),
                 .penalty = number("penalty"),
                 .length_factor = number("length_factor"),
                 .length_extra = whole("length_extra")},
      .bootstrap = whole("bootstrap")};
  return std::make_shared<tasks::Translation>(std::move(data), std::move(options));
}

DatasetPtr open_characters(const Recipe& recipe) {
  return std::make_shared<data::Characters>(recipe.data.path, recipe.data.length);
}

// The folder of data that `edgewise data NAME` makes.
std::string folder(const std::string& name, const std::string& source) {
  return "the folder of the " + name + " data; found none; make it with 'edgewise data " + name + source +
         " --out DATA' and set data.path=DATA";
}

std::function<NoiseSize(const Recipe&)> noise(const NoiseSize& size) {
  return [size](const Recipe&) { return size; };
}

// One of the byte-valued tasks of the Long Range Arena.
TaskKind byte_kind(const char* name, const char* meaning, const char* source, std::vector<std::string> keys,
                   DataImport import, int64_t towers = 1) {
  const data::ByteDatasetOptions options = data::lra_options(name);
  return {.name = name,
          .meaning = meaning,
          .open = open_bytes,
          .task = towers == 2 ? make_task<tasks::PairLabels> : make_task<tasks::SequenceLabels>,
          .keys = std::move(keys),
          .path = folder(name, source),
          .import = std::move(import),
          .noise = noise({.length = options.pad_to,
                          .vocabulary = options.vocabulary,
                          .classes = options.classes,
                          .towers = towers})};
}

std::vector<TaskKind> builtin_kinds() {
  const std::vector<std::string> sizes = {"length", "train_size", "validation_size", "test_size", "seed"};
  std::vector<std::string> recall = sizes;
  recall.push_back("values");
  std::vector<std::string> pairs = sizes;
  pairs.insert(pairs.end(), {"pairs", "vocabulary"});
  return {
      {.name = "repeated_tokens",
       .meaning = "does a token occur elsewhere in its sequence? (the SBM paper's)",
       .open = open_repeated_tokens,
       .task = make_task<tasks::TokenLabels>,
       .keys = sizes,
       .noise =
           [](const Recipe& recipe) {
             return NoiseSize{.length = recipe.data.length,
                              .vocabulary = recipe.data.length + 1,
                              .classes = 2,
                              .labels_tokens = true};
           }},
      {.name = "associative_recall",
       .meaning = "which value went with this key?",
       .open = open_associative_recall,
       .task = make_task<tasks::TokenLabels>,
       .keys = recall},
      {.name = "multi_query_recall",
       .meaning = "many keys with a value, and later a question about each (MQAR)",
       .open = open_pairs<data::MultiQueryRecall, data::MultiQueryRecallOptions>,
       .task = make_task<tasks::TokenLabels>,
       .keys = pairs},
      {.name = "needle",
       .meaning = "the value of one key anywhere in a long text",
       .open = open_pairs<data::Needle, data::NeedleOptions>,
       .task = make_task<tasks::TokenLabels>,
       .keys = pairs},
      {.name = "listops",
       .meaning = "the value of a nested expression (Long Range Arena)",
       .open = open_listops,
       .task = make_task<tasks::SequenceLabels>,
       .keys = {"fixed_length"},
       .path = folder("listops", ""),
       .noise = noise({.length = 2048, .vocabulary = 32, .classes = 10})},
      byte_kind("image", "CIFAR-10 in grey, pixel by pixel (Long Range Arena)", " --from FOLDER",
                {"fixed_length", "mask_zero", "drop_masked", "symmetries"},
                {"CIFAR-10 in grey (Long Range Arena's Image)",
                 "folder with CIFAR-10's binary version, or images-Nx32x32.u8[.xz]", data::import_image}),
      byte_kind("text", "is a review good or bad? (Long Range Arena)", " --from FOLDER",
                {"fixed_length", "validation"},
                {"text of your own as tokens; or IMDB reviews as bytes (Long Range Arena's Text)",
                 "folder aclImdb, or one with train.tsv[.xz] and test.tsv[.xz]", data::import_text}),
      byte_kind("pathfinder", "does a path join two points? (Long Range Arena)", " --generate",
                {"fixed_length", "mask_zero", "drop_masked", "symmetries"},
                {"Pathfinder, 32 x 32 (Long Range Arena's Pathfinder)",
                 "folder of the official release (metadata/, imgs/), or one with images-Nx32x32.u8[.xz]",
                 data::import_pathfinder}),
      byte_kind("retrieval", "does one document cite the other? (Long Range Arena)", " --from FOLDER",
                {"fixed_length"},
                {"pairs of documents (Long Range Arena's Retrieval)",
                 "folder with new_aan_pairs.{train,eval,test}.tsv, or docs.tsv[.xz] and pairs.tsv[.xz]",
                 data::import_retrieval},
                /*towers=*/2),
      {.name = "labelled_text",
       .meaning = "a class, or a number, of a text or a pair of texts: your own",
       .open = open_labelled_text,
       .task = make_task<tasks::TextAnswers>,
       .path = "the folder that 'edgewise data tsv' or 'edgewise data jsonl' filled; found none; set it "
               "with --set data.path=DATA"},
      {.name = "masked_text",
       .meaning = "hidden tokens of a text, from those around them: pre-training",
       .open = open_masked_text,
       .task = make_task<tasks::MaskedTokens>,
       .keys = {"length", "mask_rate"},
       .path =
           "the folder that 'edgewise data text FILE' filled; found none; set it with --set data.path=DATA"},
      {.name = "graph",
       .meaning = "the labels of a graph's nodes: Cora, Citeseer, your own",
       .open = open_graph,
       .task = make_task<tasks::NodeLabels>,
       .keys = {"split", "normalise", "standardise", "metric"},
       .path = "the folder that 'edgewise data graph' filled, or a graph in safetensors; found none; set it "
               "with --set data.path=DATA",
       .is_graph = true},
      image_kind(),
      {.name = "translation",
       .meaning = "sentences in another language, by an encoder and a decoder",
       .open = open_translation,
       .options = translation_options(),
       .path = "the folder that 'edgewise data translation' filled; found none; set it with --set "
               "data.path=DATA",
       .has_decoder = true,
       .task_of = make_translation},
      {.name = "next_tokens",
       .meaning = "the next token of a text, in the pieces of a tokeniser",
       .open = open_token_text,
       .task = make_task<tasks::NextTokens>,
       .keys = {"length"},
       .path =
           "the folder that 'edgewise data text FILE' filled; found none; set it with --set data.path=DATA",
       .is_causal = true},
      {.name = "characters",
       .meaning = "the next character of a text, any file",
       .open = open_characters,
       .task = make_task<tasks::NextCharacters>,
       .keys = {"length"},
       .path = "a text file of any kind; found none; set it with --set data.path=FILE",
       .is_causal = true}};
}

std::deque<TaskKind>& all_tasks() {  // whose elements stay where they are
  static std::deque<TaskKind> kinds = [] {
    std::deque<TaskKind> all;
    for (TaskKind& kind : builtin_kinds()) all.push_back(std::move(kind));
    return all;
  }();
  return kinds;
}

const TaskKind* find_task(const std::string& name) {
  const auto found = std::ranges::find(all_tasks(), name, &TaskKind::name);
  return found == all_tasks().end() ? nullptr : &*found;
}

std::string listed_tasks() {
  std::string text;
  for (const std::string& name : task_names()) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

bool TaskKind::reads(const std::string& key) const {
  return std::ranges::find(keys, key) != keys.end();
}

void register_task(TaskKind kind) {
  TORCH_CHECK_VALUE(!kind.name.empty() && kind.open && (kind.task || kind.task_of),
                    "register_task: expected a task with a name and the functions open and task; got '",
                    kind.name, "'", kind.open && (kind.task || kind.task_of) ? "" : " without one");
  TORCH_CHECK_VALUE(!find_task(kind.name), "register_task: expected a new name; '", kind.name,
                    "' is taken. Taken are ", listed_tasks());
  add_own_fields("data.name", kind.name, kind.options);
  all_tasks().push_back(std::move(kind));
}

const TaskKind& task_kind(const std::string& name) {
  const TaskKind* const kind = find_task(name);
  const std::string nearest = kind ? "" : nearest_name(name, task_names());
  TORCH_CHECK_VALUE(kind, "expected data.name to be one of ", listed_tasks(), "; got '", name, "'",
                    nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
  return *kind;
}

const TaskKind& task_kind(const Recipe& recipe) {
  return task_kind(recipe.data.name);
}

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const TaskKind& kind : all_tasks()) names.push_back(kind.name);
  return names;
}

const std::vector<OwnOption>& task_options(const std::string& task) {
  return task_kind(task).options;
}

bool task_has_decoder(const Recipe& recipe) {
  return task_kind(recipe).has_decoder;
}

std::string task_meaning(const std::string& name) {
  return task_kind(name).meaning;
}

tasks::TaskPtr open_task(const Recipe& recipe) {
  return task_over(recipe, task_kind(recipe).open(recipe));
}

tasks::TaskPtr task_over(const Recipe& recipe, DatasetPtr data) {
  const TaskKind& kind = task_kind(recipe);
  return kind.task_of ? kind.task_of(std::move(data), recipe) : kind.task(std::move(data));
}

}  // namespace edgewise::train
