#include <edgewise/train/predictor.h>

#include <torch/types.h>
#include <torch/utils.h>

#include <edgewise/data/examples/labelled_text.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/precision.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include "train/run/run_folder.h"

namespace edgewise::train {

Predictor::Predictor(const std::filesystem::path& run, const PredictorOptions& options) {
  const RunFolder folder{.root = run};
  recipe_ = load_recipe(folder.config());
  TORCH_CHECK_VALUE(data::TextReader::is_in(folder.reader()),
                    "predict: expected a run on texts of your own (data.name = labelled_text); ",
                    run.string(), " was trained on ", recipe_.data.name,
                    " and does not know how to read a text");
  reader_ = std::make_shared<data::TextReader>(data::TextReader::load(folder.reader()));
  const std::string& learned = recipe_.data.name;
  TORCH_CHECK_VALUE(
      reader_->options().answer != data::AnswerKind::kNone, "predict: expected a run that learned labels; ",
      run.string(),
      learned == "translation" ? " learned to translate. Use edgewise translate"
      : learned == "next_tokens"
          ? " learned to continue texts. Use edgewise generate"
          : " learned to fill in masked words. Train its weights on labels first, with train.weights");
  const tasks::TaskPtr task = task_over(recipe_, std::make_shared<data::LabelledText>(*reader_));
  model_ = build_model(recipe_, *task);
  load_checkpoint(options.checkpoint, *model_);
  device_ = parse_device(options.device.empty() ? recipe_.train.device : options.device, "--device cpu");
  model_->to(device_);
  model_->eval();
  draws_ = options.draws > 0 ? options.draws : recipe_.train.eval_draws;
}

at::Tensor Predictor::answer(const std::vector<std::vector<int32_t>>& texts, int64_t first) const {
  torch::NoGradGuard no_grad;
  const PrecisionGuard guard(parse_precision(recipe_.train.precision), device_);
  const std::vector<std::span<const int32_t>> rows(texts.begin(), texts.end());
  const Batch batch = to_device(data::text_batch(rows, *reader_), device_);
  at::Tensor sum;
  for (int64_t draw = 0; draw < draws_; ++draw) {
    const at::Tensor logits =
        model_
            ->forward({.batch = batch,
                       .random = evaluation_stream(static_cast<uint64_t>(recipe_.train.seed), draw, first)})
            .logits.to(at::kCPU, at::kDouble);
    sum = sum.defined() ? sum + logits : logits;
  }
  sum = sum / static_cast<double>(draws_);
  const data::TextReaderOptions& options = reader_->options();
  return options.answer == data::AnswerKind::kNumber ? sum * options.scale + options.mean : sum;
}

}  // namespace edgewise::train
