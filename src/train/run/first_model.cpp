#include "train/run/first_model.h"

#include <filesystem>

#include <torch/types.h>

#include <edgewise/data/examples/text_reader.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>

#include "train/run/run_folder.h"
#include "train/run/run_lines.h"

namespace edgewise::train {
namespace {

// Weights of a run on texts say something to texts in the same tokens alone.
void check_same_words(const std::string& weights, const data::Dataset& dataset) {
  const RunFolder run{.root = std::filesystem::path(weights).parent_path().parent_path()};
  if (!dataset.reader() || !data::TextReader::is_in(run.reader())) return;
  TORCH_CHECK_VALUE(data::TextReader::load(run.reader()).reads_like(*dataset.reader()),
                    "train.weights: expected texts in the tokens of ", run.root.string(),
                    "; those of the data come from another tokeniser. Make the data again with --tokenizer ",
                    (run.root / "reader" / "tokenizer").string());
}

}  // namespace

ModelPtr first_model(const Recipe& recipe, const tasks::Task& task, bool has_weights, std::string& told) {
  ModelPtr model = build_model(recipe, task);
  if (recipe.train.weights.empty() || has_weights) return model;
  const std::string file = weights_of(recipe.train.weights);
  const Recipe theirs = parse_recipe(read_checkpoint_info(file).recipe, file);
  TORCH_CHECK_VALUE(theirs.model.heads == recipe.model.heads,
                    "train.weights: expected model.heads = ", theirs.model.heads, ", as ", file, " has; got ",
                    recipe.model.heads, ". The same numbers would mean other heads.");
  check_same_words(file, task.data());
  told = adopted_line(file, load_weights(file, *model));
  task.check_model(*model);
  return model;
}

}  // namespace edgewise::train
