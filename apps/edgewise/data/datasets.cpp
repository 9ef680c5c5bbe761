#include "data/datasets.h"

#include <c10/util/Exception.h>
#include <edgewise/data/associative_recall.h>
#include <edgewise/data/byte_dataset.h>
#include <edgewise/data/characters.h>
#include <edgewise/data/listops_dataset.h>
#include <edgewise/data/listops_file.h>
#include <edgewise/data/repeated_tokens.h>
#include <edgewise/io/atomic_file.h>

#include <filesystem>

#include "train/run/run_folder.h"

namespace edgewise::app {
namespace {

// Made from its seed, and so the same wherever it is opened.
bool is_generated(const train::DataRecipe& data) {
  return data.name == "repeated_tokens" || data.name == "associative_recall";
}

std::string one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::shared_ptr<const data::Dataset> open_dataset(const train::Recipe& recipe) {
  const train::DataRecipe& wanted = recipe.data;
  if (wanted.name == "repeated_tokens") {
    data::RepeatedTokensOptions options;
    options.length = wanted.length;
    options.train_size = wanted.train_size;
    options.validation_size = wanted.validation_size;
    options.test_size = wanted.test_size;
    options.seed = static_cast<uint64_t>(wanted.seed);
    return std::make_shared<data::RepeatedTokens>(options);
  }
  if (wanted.name == "associative_recall") {
    data::AssociativeRecallOptions options;
    options.length = wanted.length;
    options.values = wanted.values;
    options.train_size = wanted.train_size;
    options.validation_size = wanted.validation_size;
    options.test_size = wanted.test_size;
    options.seed = static_cast<uint64_t>(wanted.seed);
    return std::make_shared<data::AssociativeRecall>(options);
  }
  if (wanted.name == "listops") {
    TORCH_CHECK_VALUE(std::filesystem::exists(data::listops_path(wanted.path, data::Split::kTrain)),
                      "no ListOps data in '", wanted.path, "'; make it with: edgewise data listops --out ",
                      wanted.path);
    data::ListOpsDatasetOptions options;
    options.fixed_length = wanted.fixed_length;
    return std::make_shared<data::ListOpsDataset>(wanted.path, options);
  }
  if (wanted.name == "characters") return std::make_shared<data::Characters>(wanted.path, wanted.length);
  if (data::is_byte_task(wanted.name)) {
    TORCH_CHECK_VALUE(std::filesystem::exists(data::byte_examples_path(wanted.path, wanted.name)), "no ",
                      wanted.name, " data in '", wanted.path, "'; make it with: edgewise data ", wanted.name,
                      wanted.name == "pathfinder" ? " --generate --out " : " --from FOLDER --out ",
                      wanted.path);
    data::ByteDatasetOptions options = data::lra_options(wanted.name);
    options.fixed_length = wanted.fixed_length;
    options.mask_zero = wanted.mask_zero;
    options.drop_masked = wanted.drop_masked;
    options.symmetries = wanted.symmetries == "square" ? 8 : wanted.symmetries == "mirror" ? 2 : 1;
    options.validation_is_test = wanted.validation == "test";
    return std::make_shared<data::ByteDataset>(data::load_byte_examples(wanted.path, wanted.name), options);
  }
  TORCH_CHECK_VALUE(false, "data.name: expected a task of edgewise train --help-recipe; got '", wanted.name,
                    "'");
}

std::string noted_data(const std::filesystem::path& run) {
  const train::RunFolder folder{.root = run};
  return train::file_exists(folder.data()) ? one_line(io::read_file(folder.data())) : "";
}

namespace {
std::string other_than(const std::string& had, const std::string& run, const data::Dataset& dataset) {
  const std::string has = one_line(train::describe_data(dataset));
  if (had.empty() || one_line(had) == has) return "";
  return "expected the data of " + run + ", " + had + "; found " + has;
}
}  // namespace

std::string other_data(const std::filesystem::path& run, const data::Dataset& dataset) {
  return other_than(noted_data(run), run.string(), dataset);
}

std::shared_ptr<const data::Dataset> data_of_run(const std::string& noted, const std::string& run,
                                                 const train::Recipe& recipe, std::string& why_not) {
  why_not.clear();
  if (is_generated(recipe.data)) return open_dataset(recipe);
  std::error_code unreadable;
  if (!std::filesystem::exists(recipe.data.path, unreadable)) return nullptr;
  std::shared_ptr<const data::Dataset> found;
  try {
    found = open_dataset(recipe);
    why_not = other_than(noted, run, *found);
  } catch (const c10::Error& error) {
    why_not = error.what_without_backtrace();
    return nullptr;
  } catch (const std::exception& error) {
    why_not = error.what();
    return nullptr;
  }
  if (why_not.empty()) return found;
  why_not = recipe.data.path + ": " + why_not +
            ". A relative data.path is looked for in the folder where edgewise is called.";
  return nullptr;
}

std::vector<Baseline> baselines(const data::Dataset& dataset, data::Split split) {
  if (const auto* repeated = dynamic_cast<const data::RepeatedTokens*>(&dataset))
    return {{"majority class", repeated->majority_accuracy()}};
  if (dynamic_cast<const data::AssociativeRecall*>(&dataset))
    return {{"a guess", 1 / static_cast<double>(dataset.classes())}};
  if (const auto* listops = dynamic_cast<const data::ListOpsDataset*>(&dataset))
    return {{"first token only", data::first_token_baseline(*listops, split)},
            {"most frequent label of train", data::prior_baseline(*listops, split)}};
  if (const auto* bytes = dynamic_cast<const data::ByteDataset*>(&dataset))
    return {{"most frequent label of train", bytes->majority_accuracy(split)}};
  return {};
}

}  // namespace edgewise::app
