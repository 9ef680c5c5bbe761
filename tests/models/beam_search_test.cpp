// Beam search: against an exhaustive search, and every way of running it against every other.
#include <gtest/gtest.h>

#include <edgewise/models/beam_search.h>

#include "translation_kit.h"

namespace edgewise {
namespace {

using namespace testing_kit;

BeamSearchOptions tiny_search(int64_t beam, int64_t longest) {
  BeamSearchOptions options;
  options.beam = beam;
  options.length_extra = longest;
  options.end = 0;
  options.never = {1};
  return options;
}

// Words spread out, so that translations differ.
EncoderDecoder sharp_translator(const EdgeSourceFactory& edges = {}) {
  EncoderDecoder model = tiny_translator(tiny_translator_options(edges));
  torch::NoGradGuard no_grad;
  model->token_embedding->weight.mul_(3);
  return model;
}

// log p of a translation as the model reads it whole; minus infinity for what is not allowed.
double log_probability(EncoderDecoder& model, const Tower& source, const std::vector<int32_t>& tokens,
                       int64_t item) {
  std::vector<int64_t> read = {0}, next(tokens.begin(), tokens.end());
  read.insert(read.end(), tokens.begin(), tokens.end());
  next.push_back(0);
  Batch batch;
  batch.towers = {source, {.tokens = torch::tensor(read, torch::kLong).unsqueeze(0)}};
  ModelInput input{.batch = batch};
  input.random.first_item = item;
  torch::NoGradGuard no_grad;
  return model->forward(input)
      .logits[0]
      .log_softmax(-1)
      .gather(1, torch::tensor(next, torch::kLong).unsqueeze(1))
      .sum()
      .item<double>();
}

void each_translation(int64_t longest, std::vector<int32_t>& tokens,
                      const std::function<void(const std::vector<int32_t>&)>& use) {
  if (!tokens.empty()) use(tokens);
  if (std::ssize(tokens) == longest) return;
  for (int32_t word = 2; word < kWords; ++word) {
    tokens.push_back(word);
    each_translation(longest, tokens, use);
    tokens.pop_back();
  }
}

TEST(BeamSearchTest, PenaltiesAreFairseqsAndGnmts) {
  EXPECT_NEAR(length_penalty_score(-6, 12, LengthPenalty::kLength, .6), -1.350960, 1e-6);
  EXPECT_NEAR(length_penalty_score(-6, 12, LengthPenalty::kGnmt, .6), -3.211979, 1e-6);
  EXPECT_EQ(parse_length_penalty("gnmt"), LengthPenalty::kGnmt);
  EXPECT_THROW(parse_length_penalty("none"), c10::Error);
}

class ExhaustiveSearch : public ::testing::TestWithParam<std::tuple<LengthPenalty, double>> {};

// 7 words, up to 3 of them: 399 translations. A beam that holds them all finds the best.
TEST_P(ExhaustiveSearch, AWideBeamFindsTheBestOfAll) {
  EncoderDecoder model = sharp_translator();
  const Tower source = translation_batch({5, 3}, {1, 1}).towers[0];
  BeamSearchOptions options = tiny_search(400, 3);
  std::tie(options.kind, options.penalty) = GetParam();
  const auto found = beam_search(*model, source, options);
  ASSERT_EQ(found.size(), 2u);
  for (int64_t item = 0; item < 2; ++item) {
    const int64_t length = source.mask[item].sum().item<int64_t>();
    const Tower alone{.tokens = source.tokens.slice(0, item, item + 1).slice(1, 0, length)};
    Hypothesis best{.tokens = {}, .score = -1e9};
    int64_t all = 0;
    std::vector<int32_t> tokens;
    each_translation(3, tokens, [&](const std::vector<int32_t>& each) {
      ++all;
      const double sum = log_probability(model, alone, each, item);
      const double score = length_penalty_score(sum, std::ssize(each) + 1, options.kind, options.penalty);
      if (score > best.score) best = {each, score, sum};
    });
    EXPECT_EQ(all, 399);
    const std::vector<Hypothesis>& translations = found[static_cast<size_t>(item)];
    EXPECT_EQ(translations.size(), 399u);
    EXPECT_EQ(translations.front().tokens, best.tokens);
    EXPECT_NEAR(translations.front().score, best.score, 1e-9);
    EXPECT_NEAR(translations.front().log_probability, best.log_probability, 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Penalties, ExhaustiveSearch,
                         ::testing::Values(std::tuple{LengthPenalty::kLength, 1.0},
                                           std::tuple{LengthPenalty::kLength, 0.0},
                                           std::tuple{LengthPenalty::kGnmt, 0.6}));

TEST(BeamSearchTest, ABeamOfOneTakesTheLikeliestWord) {
  EncoderDecoder model = sharp_translator();
  const Tower source = translation_batch({5}, {1}).towers[0];
  const auto found = beam_search(*model, source, tiny_search(1, 8));
  const EncodedSource encoded = model->encode(source, {});
  std::vector<int64_t> read = {0};
  std::vector<int32_t> wanted;
  while (std::ssize(wanted) < 8) {
    at::Tensor logits = model->read(torch::tensor(read, torch::kLong).unsqueeze(0), encoded, {})[0].clone();
    logits[1] = -1e9;
    if (wanted.empty()) logits[0] = -1e9;
    const auto next = logits.argmax().item<int64_t>();
    if (next == 0) break;
    read.push_back(next);
    wanted.push_back(static_cast<int32_t>(next));
  }
  ASSERT_EQ(found[0].size(), 1u);
  EXPECT_EQ(found[0][0].tokens, wanted);
}

class SearchOverEdges : public ::testing::TestWithParam<const char*> {};

void expect_same(const std::vector<Hypothesis>& a, const std::vector<Hypothesis>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t n = 0; n < a.size(); ++n) {
    EXPECT_EQ(a[n].tokens, b[n].tokens);
    EXPECT_NEAR(a[n].score, b[n].score, 1e-9);
  }
}

// Alone, beside others, with and without a cache: the same translations, and their score is that of the model
// that reads them whole.
TEST_P(SearchOverEdges, NothingBesideASentenceChangesItsTranslation) {
  EncoderDecoder model =
      sharp_translator(GetParam() == std::string("dense") ? EdgeSourceFactory() : edges_named(GetParam()));
  const Tower source = translation_batch({5, 9, 3, 7}, {1, 1, 1, 1}).towers[0];
  BeamSearchOptions options = tiny_search(3, 2);
  options.length_factor = 0.5;
  const auto together = beam_search(*model, source, options);
  options.cached = false;
  const auto uncached = beam_search(*model, source, options);
  options.cached = true;
  ASSERT_EQ(together.size(), 4u);
  for (int64_t item = 0; item < 4; ++item) {
    const auto n = static_cast<size_t>(item);
    const int64_t length = source.mask[item].sum().item<int64_t>();
    const Tower alone{.tokens = source.tokens.slice(0, item, item + 1).slice(1, 0, length)};
    RandomStream random;
    random.first_item = item;
    expect_same(together[n], uncached[n]);
    expect_same(together[n], beam_search(*model, alone, options, random)[0]);
    ASSERT_FALSE(together[n].empty());
    for (const Hypothesis& each : together[n])
      EXPECT_NEAR(log_probability(model, alone, each.tokens, item), each.log_probability, 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, SearchOverEdges, ::testing::Values("dense", "window", "random", "sbm"));

TEST(BeamSearchTest, EndsWhenItIsStopped) {
  EncoderDecoder model = sharp_translator();
  const Tower source = translation_batch({5}, {1}).towers[0];
  BeamSearchOptions options = tiny_search(2, 8);
  options.stop = [] { return true; };
  EXPECT_TRUE(beam_search(*model, source, options)[0].empty());
}

TEST(BeamSearchTest, RefusesWhatMakesNoSense) {
  EncoderDecoder model = sharp_translator();
  const Tower source = translation_batch({5}, {1}).towers[0];
  EXPECT_THROW(beam_search(*model, source, tiny_search(0, 8)), c10::Error);
  BeamSearchOptions options = tiny_search(2, 8);
  options.end = 99;
  EXPECT_THROW(beam_search(*model, source, options), c10::Error);
}

}  // namespace
}  // namespace edgewise
