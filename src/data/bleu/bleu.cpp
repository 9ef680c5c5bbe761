#include <edgewise/data/bleu.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "data/text/failure.h"

namespace edgewise::data {
namespace {

using Ngram = std::array<uint32_t, kBleuOrder>;  // words from 1 on, 0 after the last

struct NgramCount {
  Ngram ngram;
  int64_t count;
};

// Words by number, shared by a hypothesis and its references.
class Words {
 public:
  std::vector<uint32_t> numbers(std::string_view tokens) {
    std::vector<uint32_t> result;
    while (!tokens.empty()) {
      const size_t end = tokens.find(' ');
      result.push_back(numbers_.emplace(tokens.substr(0, end), numbers_.size() + 1).first->second);
      tokens.remove_prefix(end == std::string_view::npos ? tokens.size() : end + 1);
    }
    return result;
  }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
};

// All n-grams of a sentence, in order, each once.
std::vector<NgramCount> ngrams(const std::vector<uint32_t>& words) {
  std::vector<Ngram> all;
  for (size_t begin = 0; begin < words.size(); ++begin) {
    Ngram ngram{};
    for (size_t n = 0; n < kBleuOrder && begin + n < words.size(); ++n) {
      ngram[n] = words[begin + n];
      all.push_back(ngram);
    }
  }
  std::sort(all.begin(), all.end());
  std::vector<NgramCount> counts;
  for (const Ngram& each : all) {
    if (counts.empty() || counts.back().ngram != each) counts.push_back({each, 0});
    ++counts.back().count;
  }
  return counts;
}

int64_t count_of(const std::vector<NgramCount>& counts, const Ngram& ngram) {
  const auto found =
      std::lower_bound(counts.begin(), counts.end(), ngram,
                       [](const NgramCount& each, const Ngram& wanted) { return each.ngram < wanted; });
  return found != counts.end() && found->ngram == ngram ? found->count : 0;
}

size_t order_of(const Ngram& ngram) {
  return static_cast<size_t>(std::find(ngram.begin(), ngram.end(), 0u) - ngram.begin());
}

}  // namespace

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  for (size_t n = 0; n < kBleuOrder; ++n) {
    matches[n] += other.matches[n];
    totals[n] += other.totals[n];
  }
  hypothesis_length += other.hypothesis_length;
  reference_length += other.reference_length;
  return *this;
}

BleuCounts bleu_counts(std::string_view hypothesis, std::span<const std::string> references,
                       const BleuOptions& options) {
  if (references.empty()) fail("BLEU: expected at least one reference for each hypothesis; got none");
  Words numbering;
  const std::vector<uint32_t> words = numbering.numbers(bleu_tokens(hypothesis, options));
  BleuCounts counts;
  counts.hypothesis_length = static_cast<int64_t>(words.size());
  std::vector<std::vector<NgramCount>> of_references;
  int64_t closest = -1;
  for (const std::string& reference : references) {
    const std::vector<uint32_t> other = numbering.numbers(bleu_tokens(reference, options));
    of_references.push_back(ngrams(other));
    const auto length = static_cast<int64_t>(other.size());
    const int64_t distance = std::abs(length - counts.hypothesis_length);
    if (closest < 0 || distance < closest || (distance == closest && length < counts.reference_length))
      counts.reference_length = length;
    closest = closest < 0 ? distance : std::min(closest, distance);
  }
  for (const NgramCount& each : ngrams(words)) {
    int64_t most = 0;
    for (const auto& reference : of_references) most = std::max(most, count_of(reference, each.ngram));
    const size_t n = order_of(each.ngram) - 1;
    counts.totals[n] += each.count;
    counts.matches[n] += std::min(each.count, most);
  }
  return counts;
}

BleuScore bleu_of_counts(const BleuCounts& counts, const BleuOptions& options) {
  BleuScore result;
  result.hypothesis_length = counts.hypothesis_length;
  result.reference_length = counts.reference_length;
  if (counts.hypothesis_length < counts.reference_length) {
    const double ratio =
        static_cast<double>(counts.reference_length) / static_cast<double>(counts.hypothesis_length);
    result.brevity_penalty = counts.hypothesis_length > 0 ? std::exp(1 - ratio) : 0;
  }
  if (std::all_of(counts.matches.begin(), counts.matches.end(), [](int64_t each) { return each == 0; }))
    return result;
  const bool adds = options.smoothing == BleuSmoothing::kAddK;
  const double value = options.smoothing_value.value_or(adds ? 1 : 0.1);
  double factor = 1;
  int order = options.effective_order ? 0 : kBleuOrder;
  for (size_t n = 0; n < kBleuOrder; ++n) {
    const double added = adds && n > 0 ? value : 0;
    const double matches = static_cast<double>(counts.matches[n]) + added,
                 total = static_cast<double>(counts.totals[n]) + added;
    if (total == 0) break;
    if (options.effective_order) order = static_cast<int>(n) + 1;
    if (matches > 0) {
      result.precisions[n] = 100 * matches / total;
    } else if (options.smoothing == BleuSmoothing::kExp) {
      factor *= 2;
      result.precisions[n] = 100 / (factor * total);
    } else if (options.smoothing == BleuSmoothing::kFloor) {
      result.precisions[n] = 100 * value / total;
    }
  }
  double sum = 0;
  for (size_t n = 0; n < static_cast<size_t>(order); ++n) {
    if (result.precisions[n] == 0) return result;  // ln 0
    sum += std::log(result.precisions[n]);
  }
  result.score = result.brevity_penalty * std::exp(sum / order);
  return result;
}

std::vector<BleuCounts> corpus_counts(std::span<const std::string> hypotheses, BleuReferences references,
                                      const BleuOptions& options) {
  if (hypotheses.size() != references.size())
    fail("BLEU: expected as many hypotheses as references; got ", hypotheses.size(), " and ",
         references.size());
  std::vector<BleuCounts> counts;
  for (size_t i = 0; i < hypotheses.size(); ++i)
    counts.push_back(bleu_counts(hypotheses[i], references[i], options));
  return counts;
}

BleuScore corpus_bleu(std::span<const std::string> hypotheses, BleuReferences references,
                      const BleuOptions& options) {
  BleuCounts sum;
  for (const BleuCounts& each : corpus_counts(hypotheses, references, options)) sum += each;
  return bleu_of_counts(sum, options);
}

BleuScore sentence_bleu(std::string_view hypothesis, std::span<const std::string> references,
                        BleuOptions options) {
  options.effective_order = true;
  return bleu_of_counts(bleu_counts(hypothesis, references, options), options);
}

}  // namespace edgewise::data
