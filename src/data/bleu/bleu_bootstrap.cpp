// Intervals and comparisons of BLEU by drawing sentences with replacement (Koehn 2004).
#include <edgewise/data/bleu.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/generators/uniform_below.h"
#include "data/text/failure.h"
#include "kernels/philox.h"

namespace edgewise::data {
namespace {

void check(size_t sentences, const BootstrapOptions& options) {
  if (sentences == 0) fail("bootstrap of BLEU: expected at least one sentence; got none");
  if (options.draws < 1) fail("bootstrap of BLEU: expected at least one draw; got ", options.draws);
}

// Calls use(index) for the sentences of draw d, a function of (seed, d, number of sentences) only.
template <typename Use>
void draw_sentences(size_t sentences, uint64_t seed, int64_t draw, const Use& use) {
  kernels::RowStream stream(kernels::stream_key(seed, 0, 0, draw, 0, kernels::Purpose::kData), 0);
  for (size_t i = 0; i < sentences; ++i) use(uniform_below(stream, sentences));
}

BleuInterval interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t outside = values.size() / 40;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / static_cast<double>(values.size()), values[outside], values[values.size() - outside - 1]};
}

}  // namespace

BleuInterval bootstrap_bleu(std::span<const BleuCounts> sentences, const BleuOptions& options,
                            const BootstrapOptions& bootstrap) {
  check(sentences.size(), bootstrap);
  std::vector<double> scores;
  for (int64_t draw = 0; draw < bootstrap.draws; ++draw) {
    BleuCounts sum;
    draw_sentences(sentences.size(), bootstrap.seed, draw, [&](size_t index) { sum += sentences[index]; });
    scores.push_back(bleu_of_counts(sum, options).score);
  }
  return interval(std::move(scores));
}

PairedBleu paired_bootstrap_bleu(std::span<const BleuCounts> first, std::span<const BleuCounts> second,
                                 const BleuOptions& options, const BootstrapOptions& bootstrap) {
  if (first.size() != second.size())
    fail("paired bootstrap of BLEU: expected two systems on the same sentences; got ", first.size(), " and ",
         second.size());
  check(first.size(), bootstrap);
  const auto total = [&](std::span<const BleuCounts> system) {
    BleuCounts sum;
    for (const BleuCounts& each : system) sum += each;
    return bleu_of_counts(sum, options).score;
  };
  const double real = std::abs(total(first) - total(second));
  std::vector<double> differences;
  PairedBleu result;
  double mean = 0;
  for (int64_t draw = 0; draw < bootstrap.draws; ++draw) {
    BleuCounts one, other;
    draw_sentences(first.size(), bootstrap.seed, draw, [&](size_t index) {
      one += first[index];
      other += second[index];
    });
    differences.push_back(bleu_of_counts(one, options).score - bleu_of_counts(other, options).score);
    mean += std::abs(differences.back());
    result.wins += differences.back() > 0;
  }
  const auto draws = static_cast<double>(bootstrap.draws);
  mean /= draws;
  result.wins /= draws;
  const auto beyond = std::count_if(differences.begin(), differences.end(),
                                    [&](double each) { return std::abs(each) - mean > real; });
  result.p_value = (static_cast<double>(beyond) + 1) / (draws + 1);
  result.difference = interval(std::move(differences));
  return result;
}

}  // namespace edgewise::data
