#include <edgewise/tasks/translation.h>

#include <algorithm>
#include <numeric>

#include <torch/types.h>

namespace edgewise::tasks {
namespace {

const data::TranslationPairs& pairs_of(const data::Dataset& data) {
  const auto* const pairs = dynamic_cast<const data::TranslationPairs*>(&data);
  TORCH_CHECK_VALUE(pairs, "translation: expected TranslationPairs; got the data ", data.name());
  return *pairs;
}

const Metric& bleu_metric() {
  static const Metric metric = {
      .name = "bleu", .words = "BLEU", .brief = "BLEU", .is_share = true, .of = nullptr};
  return metric;
}

}  // namespace

BeamSearchOptions search_of(const BeamSearchOptions& options, const data::TextReader& reader) {
  BeamSearchOptions result = options;
  result.end = reader.stop();
  result.never = {reader.padding(), reader.mask()};
  if (const auto begin = reader.begin()) result.never.push_back(*begin);
  return result;
}

std::vector<std::string> translate(EncoderDecoderImpl& model, const Tower& sources,
                                   const data::TextReader& reader, const BeamSearchOptions& search,
                                   const RandomStream& random) {
  std::vector<std::string> lines;
  for (const std::vector<Hypothesis>& found :
       beam_search(model, sources, search_of(search, reader), random)) {
    // A search that was stopped may have none yet.
    std::string text =
        found.empty() ? "" : reader.tokenizer().decode(found.front().tokens, /*leave_out_special=*/true);
    std::ranges::replace(text, '\n', ' ');  // a line stays one
    lines.push_back(std::move(text));
  }
  return lines;
}

Translation::Translation(std::shared_ptr<const data::Dataset> data, TranslationOptions options)
    : Task(std::move(data)), pairs_(pairs_of(this->data())), options_(std::move(options)) {}

std::unique_ptr<data::Order> Translation::training_order_by_tokens(int64_t tokens, uint64_t seed) const {
  return std::make_unique<data::TokenBatchOrder>(pairs_, tokens, seed);
}

ModelPtr Translation::make_model(const ModelPlan& plan) const {
  EncoderDecoderOptions options{.encoder = plan.encoder,
                                .decoder_layers = options_.decoder_layers,
                                .decoder_edges = plan.decoder_edges,
                                .cross_edges = plan.cross_edges,
                                .shared_embedding = options_.shared_embedding,
                                .tied = plan.tied,
                                .padding = pairs_.reader()->padding()};
  options.encoder.vocabulary = data().vocabulary();
  TORCH_CHECK_VALUE(options.encoder.max_length == 0 || options.encoder.max_length >= data().max_length(),
                    "translation: expected model.max_length of at least ", data().max_length(),
                    ", the data's; got ", options.encoder.max_length, ". Leave it out to take the data's.");
  if (options.encoder.max_length == 0) options.encoder.max_length = data().max_length();
  return EncoderDecoder(options).ptr();
}

Operations Translation::head_operations(double n, double width) const {
  return {{"output layer", "n e v", n * width * static_cast<double>(data().vocabulary())}};
}

const Metric& Translation::metric() const {
  return token_loss();
}

std::optional<Writing> Translation::write(Model& model, data::Split split,
                                          const WritingOptions& options) const {
  auto* const translator = dynamic_cast<EncoderDecoderImpl*>(&model);
  TORCH_CHECK_VALUE(translator, "translation: expected an EncoderDecoder; got another model");
  const std::vector<data::TestSet> sets = pairs_.sets(split);
  TORCH_CHECK_VALUE(!sets.empty(),
                    "translation: expected the validation or test split, which have references; "
                    "got ",
                    data::to_string(split));
  const int64_t size = data().size(split);
  std::vector<std::string> lines;
  BeamSearchOptions search = options_.search;
  search.stop = options.stop;
  for (int64_t first = 0; first < size; first += options.batch_size) {
    if (options.progress) options.progress(first, size);
    if (options.stop && options.stop()) return std::nullopt;
    std::vector<int64_t> indices(static_cast<size_t>(std::min(options.batch_size, size - first)));
    std::iota(indices.begin(), indices.end(), first);
    Batch sources = data().batch(split, indices);
    sources.towers.resize(1);
    RandomStream random = options.random;
    random.first_item += first;
    for (std::string& line : translate(*translator, to_device(sources, options.device).towers[0],
                                       *pairs_.reader(), search, random))
      lines.push_back(std::move(line));
  }
  if (options.stop && options.stop()) return std::nullopt;
  if (options.progress) options.progress(size, size);

  Writing writing{.texts = {}, .figures = {}, .metric = &bleu_metric()};
  const data::BleuOptions bleu = pairs_.bleu();
  size_t first = 0;
  for (const data::TestSet& set : sets) {
    const auto count = static_cast<size_t>(set.pairs);
    WrittenText text{.name = set.name, .lines = {}};
    std::vector<std::vector<std::string>> references;
    for (size_t n = 0; n < count; ++n) {
      text.lines.push_back(lines[first + n]);
      references.push_back({set.references[n]});
    }
    first += count;
    const std::vector<data::BleuCounts> counts = data::corpus_counts(text.lines, references, bleu);
    data::BleuCounts all;
    for (const data::BleuCounts& each : counts) all += each;
    const data::BleuScore score = data::bleu_of_counts(all, bleu);
    constexpr double kPercent = 100;
    if (writing.texts.empty()) writing.figures.push_back({"bleu", score.score / kPercent});
    writing.figures.push_back({"bleu_" + set.name, score.score / kPercent});
    if (options_.bootstrap > 0) {
      const data::BleuInterval interval =
          data::bootstrap_bleu(counts, bleu, {.draws = options_.bootstrap, .seed = 0});
      writing.figures.push_back({"bleu_" + set.name + "_low", interval.low / kPercent});
      writing.figures.push_back({"bleu_" + set.name + "_high", interval.high / kPercent});
    }
    writing.figures.push_back(
        {"brevity_" + set.name, static_cast<double>(score.hypothesis_length) /
                                    static_cast<double>(std::max<int64_t>(score.reference_length, 1))});
    writing.texts.push_back(std::move(text));
  }
  return writing;
}

}  // namespace edgewise::tasks
