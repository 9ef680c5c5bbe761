// Translation: sentences in another language (edgewise/data/examples/translation_pairs.h), by an
// EncoderDecoder. Validation judges the tokens that follow right ones; tests translate by beam search and
// count BLEU.
#pragma once

#include <edgewise/data/examples/translation_pairs.h>
#include <edgewise/models/beam_search.h>
#include <edgewise/tasks/task.h>

namespace edgewise::tasks {

struct TranslationOptions {
  int64_t decoder_layers = 0;  // 0: as many as the encoder has
  bool shared_embedding = true;
  BeamSearchOptions search = {};  // without ids, which are the data's
  int64_t bootstrap = 1000;       // draws for the intervals of BLEU; 0: none
};

// The options with the ids of `reader`.
BeamSearchOptions search_of(const BeamSearchOptions& options, const data::TextReader& reader);

// Translations of sources (edgewise/data/examples/translation_pairs.h) on the device of the model, as text.
std::vector<std::string> translate(EncoderDecoderImpl& model, const Tower& sources,
                                   const data::TextReader& reader, const BeamSearchOptions& search,
                                   const RandomStream& random);

class Translation : public Task {
 public:
  Translation(std::shared_ptr<const data::Dataset> data, TranslationOptions options);

  std::unique_ptr<data::Order> training_order_by_tokens(int64_t tokens, uint64_t seed) const override;
  ModelPtr make_model(const ModelPlan& plan) const override;
  int64_t towers() const override { return 2; }
  Operations head_operations(double n, double width) const override;
  // The loss of a right token behind right ones, in nats.
  const Metric& metric() const override;
  bool writes() const override { return true; }
  // For every test set NAME of the split: bleu_NAME, its 95 % interval bleu_NAME_low and bleu_NAME_high, and
  // brevity_NAME, words over words of the reference; `bleu` is that of the first set. Shares of 1.
  std::optional<Writing> write(Model& model, data::Split split, const WritingOptions& options) const override;

  const TranslationOptions& options() const { return options_; }

 private:
  const data::TranslationPairs& pairs_;
  TranslationOptions options_;
};

}  // namespace edgewise::tasks
