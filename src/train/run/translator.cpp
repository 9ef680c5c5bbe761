#include <edgewise/data/examples/import_translation.h>
#include <edgewise/train/translator.h>

#include <stdexcept>

#include <torch/types.h>
#include <torch/utils.h>

#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/precision.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include "train/run/run_folder.h"

namespace edgewise::train {

Translator::Translator(const std::filesystem::path& run, const TranslatorOptions& options) {
  const RunFolder folder{.root = run};
  recipe_ = load_recipe(folder.config(), options.overrides);
  TORCH_CHECK_VALUE(task_kind(recipe_).has_decoder && data::TextReader::is_in(folder.reader()),
                    "translate: expected a run on translations (data.name = translation); ", run.string(),
                    " was trained on ", recipe_.data.name);
  reader_ = std::make_shared<data::TextReader>(data::TextReader::load(folder.reader()));
  const tasks::TaskPtr task = task_over(recipe_, std::make_shared<data::TranslationPairs>(*reader_));
  search_ = std::static_pointer_cast<const tasks::Translation>(task)->options().search;
  const ModelPtr model = build_model(recipe_, *task);
  load_checkpoint(options.checkpoint, *model);
  model_ = std::dynamic_pointer_cast<EncoderDecoderImpl>(model);
  TORCH_CHECK_VALUE(model_, "translate: expected an encoder-decoder of the task ", recipe_.data.name);
  device_ = parse_device(options.device.empty() ? recipe_.train.device : options.device, "--device cpu");
  model_->to(device_);
  model_->eval();
}

std::vector<int32_t> Translator::read(const std::string& text) const {
  std::vector<int32_t> ids;
  const data::Tokenizer& tokenizer = reader_->tokenizer();
  tokenizer.encode(data::reads_words(tokenizer) ? data::as_words(text) : text, ids);
  if (ids.empty()) throw std::invalid_argument("expected a text; it is empty");
  const int64_t most = reader_->options().max_length - 1;
  if (std::ssize(ids) > most)
    throw std::invalid_argument("expected at most " + std::to_string(most) + " tokens; found " +
                                std::to_string(ids.size()) + ". Divide it into sentences");
  return ids;
}

std::vector<std::string> Translator::translate(const std::vector<std::vector<int32_t>>& texts,
                                               int64_t first) const {
  const PrecisionGuard guard(parse_precision(recipe_.train.precision), device_);
  const std::vector<std::span<const int32_t>> rows(texts.begin(), texts.end());
  Batch batch;
  batch.towers = {data::source_tower(rows, *reader_)};
  return tasks::translate(*model_, to_device(batch, device_).towers[0], *reader_, search_,
                          evaluation_stream(static_cast<uint64_t>(recipe_.train.seed), 0, first));
}

}  // namespace edgewise::train
