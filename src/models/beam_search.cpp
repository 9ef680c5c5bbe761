#include <edgewise/models/beam_search.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <torch/types.h>
#include <torch/utils.h>

namespace edgewise {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

void check_options(const BeamSearchOptions& options, int64_t vocabulary) {
  TORCH_CHECK_VALUE(options.beam >= 1, "beam_search: expected a beam of at least 1; got ", options.beam);
  TORCH_CHECK_VALUE(options.length_factor >= 0 && options.length_extra >= 1 && options.penalty >= 0,
                    "beam_search: expected length_factor and penalty of at least 0 and length_extra of at "
                    "least 1; got ",
                    options.length_factor, ", ", options.penalty, " and ", options.length_extra);
  TORCH_CHECK_VALUE(options.end >= 0 && options.end < vocabulary, "beam_search: expected the end among the ",
                    vocabulary, " tokens; got ", options.end);
}

at::Tensor ids_on(const std::vector<int64_t>& values, at::Device device) {
  return torch::tensor(values, at::kLong).to(device, /*non_blocking=*/true);
}

// A sentence on its way. Its hypotheses are `beam` neighbouring rows of the batch.
struct Sentence {
  int64_t item = 0;     // of the source
  int64_t longest = 0;  // tokens, the end excluded
  std::vector<std::vector<int32_t>> tokens;
  std::vector<double> sums;  // log-probabilities
  bool done = false;
};

class Search {
 public:
  Search(EncoderDecoderImpl& model, const Tower& source, const BeamSearchOptions& options,
         const RandomStream& random)
      : model_(model),
        options_(options),
        random_(random),
        device_(source.tokens.device()),
        vocabulary_(model.options.encoder.vocabulary),
        cached_(options.cached && model.cache_refusal().empty()),
        found_(static_cast<size_t>(source.items())) {
    check_options(options, vocabulary_);
    const EncodedSource encoded = model.encode(source, random);
    const at::Tensor lengths = source.mask.defined() ? source.mask.sum(1).to(at::kCPU, at::kLong)
                                                     : at::full({source.items()}, source.length(), at::kLong);
    const int64_t most = model.options.encoder.max_length - 1;  // what is read begins with a mark
    for (int64_t item = 0; item < source.items(); ++item) {
      Sentence sentence;
      sentence.item = item;
      const double wanted = options.length_factor * static_cast<double>(lengths[item].item<int64_t>()) +
                            static_cast<double>(options.length_extra);
      sentence.longest = std::min(static_cast<int64_t>(wanted), most);
      sentence.tokens.resize(static_cast<size_t>(options.beam));
      // All begin alike: the first step looks at one of them.
      sentence.sums.assign(static_cast<size_t>(options.beam), kNever);
      sentence.sums.front() = 0;
      sentences_.push_back(std::move(sentence));
    }
    random_.item_rows = options.beam;
    source_.states = encoded.states.repeat_interleave(options.beam, 0);
    if (encoded.mask) source_.mask = encoded.mask->repeat_interleave(options.beam, 0);
    never_ = at::zeros({vocabulary_}, at::kFloat);
    for (const int64_t id : options.never)
      if (id >= 0 && id < vocabulary_) never_[id] = kNever;
    never_first_ = never_.clone();
    never_first_[options.end] = kNever;
    never_ = never_.to(device_);
    never_first_ = never_first_.to(device_);
  }

  std::vector<std::vector<Hypothesis>> run() {
    const torch::NoGradGuard no_grad;
    for (int64_t length = 0; !sentences_.empty(); ++length) {
      if (options_.stop && options_.stop()) break;
      const at::Tensor scores = next_scores(length);
      std::vector<int64_t> rows;  // where each hypothesis comes from
      const bool any_done = advance(scores, length, rows);
      if (any_done && !model_.has_edges()) leave_out_done(rows);
      if (std::ranges::all_of(sentences_, [](const Sentence& sentence) { return sentence.done; })) break;
      follow(rows);
    }
    for (std::vector<Hypothesis>& each : found_)
      std::ranges::stable_sort(each, std::greater<>(), &Hypothesis::score);
    return std::move(found_);
  }

 private:
  // The log-probabilities of all continuations: [sentences, beam * vocabulary], in fp32 or fp64.
  at::Tensor next_scores(int64_t length) {
    const int64_t rows = std::ssize(sentences_) * options_.beam;
    std::vector<int64_t> read;
    std::vector<double> sums;
    for (const Sentence& sentence : sentences_)
      for (size_t n = 0; n < sentence.tokens.size(); ++n) {
        const std::vector<int32_t>& tokens = sentence.tokens[n];
        sums.push_back(sentence.sums[n]);
        if (!cached_ || length == 0) read.push_back(options_.end);
        if (cached_ && length > 0) read.push_back(tokens.back());
        if (!cached_) read.insert(read.end(), tokens.begin(), tokens.end());
      }
    const at::Tensor ids = ids_on(read, device_).view({rows, -1});
    at::Tensor logits =
        cached_ ? model_.read(ids, source_, random_, cache_) : model_.read(ids, source_, random_);
    if (logits.scalar_type() != at::kDouble) logits = logits.to(at::kFloat);
    TORCH_CHECK_VALUE(
        !logits.isnan().any().item<bool>(),
        "beam_search: expected scores that are numbers; the model gives NaN. Look at its weights");
    const at::Tensor before = torch::tensor(sums, at::kDouble).to(logits.scalar_type()).to(device_);
    const at::Tensor all =
        logits.log_softmax(-1) + (length == 0 ? never_first_ : never_) + before.unsqueeze(1);
    return all.view({std::ssize(sentences_), -1});
  }

  // Takes every sentence one token on. Appends to `rows`, for every hypothesis that stays in the batch, the
  // row that it goes on from. Whether a sentence has been done.
  bool advance(const at::Tensor& scores, int64_t length, std::vector<int64_t>& rows) {
    const int64_t width = scores.size(1), kept = std::min(2 * options_.beam, width);
    const auto [best, places] = scores.topk(kept, -1);
    const at::Tensor sums = best.to(at::kCPU, at::kDouble).contiguous(),
                     indices = places.to(at::kCPU).contiguous(),
                     ends = scores.view({std::ssize(sentences_), options_.beam, vocabulary_})
                                .select(2, options_.end)
                                .to(at::kCPU, at::kDouble)
                                .contiguous();
    bool any_done = false;
    for (size_t n = 0; n < sentences_.size(); ++n) {
      Sentence& sentence = sentences_[n];
      const auto first = static_cast<int64_t>(n) * options_.beam;
      if (sentence.done) {  // its rows go with the others
        for (int64_t k = 0; k < options_.beam; ++k) rows.push_back(first + k);
        for (std::vector<int32_t>& tokens : sentence.tokens)
          tokens.push_back(static_cast<int32_t>(options_.end));
        continue;
      }
      const auto row = static_cast<int64_t>(n) * kept;
      if (length == sentence.longest) {
        const double* const end = ends.const_data_ptr<double>() + first;
        std::vector<size_t> ranked(sentence.tokens.size());
        std::iota(ranked.begin(), ranked.end(), size_t{0});
        std::ranges::stable_sort(ranked, std::greater<>(), [&](size_t k) { return end[k]; });
        for (const size_t k : ranked)
          if (end[k] > kNever) finish(sentence, sentence.tokens[k], end[k]);
        sentence.done = true;
      } else {
        extend(sentence, sums.const_data_ptr<double>() + row, indices.const_data_ptr<int64_t>() + row, kept,
               first, rows);
      }
      if (!sentence.done) continue;
      any_done = true;
      rows.resize(static_cast<size_t>(first));
      for (int64_t k = 0; k < options_.beam; ++k) rows.push_back(first + k);
      for (std::vector<int32_t>& tokens : sentence.tokens)
        tokens.resize(static_cast<size_t>(length + 1), static_cast<int32_t>(options_.end));
    }
    return any_done;
  }

  void extend(Sentence& sentence, const double* sums, const int64_t* places, int64_t count, int64_t first,
              std::vector<int64_t>& rows) {
    std::vector<std::vector<int32_t>> tokens;
    std::vector<double> next;
    for (int64_t rank = 0; rank < count; ++rank) {
      if (sums[rank] == kNever) break;
      const int64_t from = places[rank] / vocabulary_, token = places[rank] % vocabulary_;
      const std::vector<int32_t>& before = sentence.tokens[static_cast<size_t>(from)];
      if (token == options_.end) {
        if (rank < options_.beam) finish(sentence, before, sums[rank]);
        continue;
      }
      if (std::ssize(tokens) == options_.beam) continue;
      tokens.push_back(before);
      tokens.back().push_back(static_cast<int32_t>(token));
      next.push_back(sums[rank]);
      rows.push_back(first + from);
    }
    sentence.done = std::ssize(found_[static_cast<size_t>(sentence.item)]) >= options_.beam || tokens.empty();
    if (sentence.done) return;
    while (std::ssize(tokens) < options_.beam) {  // fewer than beam are possible
      tokens.push_back(tokens.front());
      next.push_back(kNever);
      rows.push_back(rows.back());
    }
    sentence.tokens = std::move(tokens);
    sentence.sums = std::move(next);
  }

  void finish(const Sentence& sentence, const std::vector<int32_t>& tokens, double sum) {
    std::vector<Hypothesis>& found = found_[static_cast<size_t>(sentence.item)];
    if (std::ssize(found) >= options_.beam) return;
    found.push_back(
        {.tokens = tokens,
         .score = length_penalty_score(sum, std::ssize(tokens) + 1, options_.kind, options_.penalty),
         .log_probability = sum});
  }

  // The rows of sentences that are done. Without edges nothing depends on a sentence's place in the batch.
  void leave_out_done(std::vector<int64_t>& rows) {
    std::vector<int64_t> left;
    std::vector<Sentence> going;
    for (size_t n = 0; n < sentences_.size(); ++n) {
      if (sentences_[n].done) continue;
      const auto first = static_cast<std::ptrdiff_t>(n) * options_.beam;
      left.insert(left.end(), rows.begin() + first, rows.begin() + first + options_.beam);
      going.push_back(std::move(sentences_[n]));
    }
    rows = std::move(left);
    sentences_ = std::move(going);
  }

  void follow(const std::vector<int64_t>& rows) {
    const bool same = std::ssize(rows) == source_.states.size(0);
    const at::Tensor index = ids_on(rows, device_);
    if (cached_) cache_.select_rows(index);
    if (same) return;  // of one sentence all rows have the same source
    source_.states = source_.states.index_select(0, index);
    if (source_.mask) source_.mask = source_.mask->index_select(0, index);
  }

  EncoderDecoderImpl& model_;
  const BeamSearchOptions& options_;
  RandomStream random_;
  at::Device device_;
  int64_t vocabulary_;
  bool cached_;
  std::vector<std::vector<Hypothesis>> found_;
  std::vector<Sentence> sentences_;
  EncodedSource source_;  // a row for every hypothesis
  TranslationCache cache_;
  at::Tensor never_, never_first_;  // [vocabulary]: 0, or minus infinity for what may not come
};

}  // namespace

LengthPenalty parse_length_penalty(std::string_view name) {
  if (name == "length") return LengthPenalty::kLength;
  if (name == "gnmt") return LengthPenalty::kGnmt;
  TORCH_CHECK_VALUE(false, "length penalty: expected length or gnmt; got '", name, "'");
}

double length_penalty_score(double log_probability, int64_t length, LengthPenalty kind, double penalty) {
  const auto counted = static_cast<double>(length);
  return log_probability / std::pow(kind == LengthPenalty::kLength ? counted : (5 + counted) / 6, penalty);
}

std::vector<std::vector<Hypothesis>> beam_search(EncoderDecoderImpl& model, const Tower& source,
                                                 const BeamSearchOptions& options,
                                                 const RandomStream& random) {
  const torch::NoGradGuard no_grad;
  return Search(model, source, options, random).run();
}

}  // namespace edgewise
