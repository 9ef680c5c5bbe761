// BLEU against sacrebleu 2.6: values of whole corpora, its tokens, and the laws of resampling.
#include <edgewise/data/bleu.h>

#include <cmath>

#include "data/text/text_kit.h"

namespace edgewise::data {
namespace {

using Lines = std::vector<std::string>;

BleuScore score(const Lines& hypotheses, const std::vector<Lines>& references,
                const BleuOptions& options = {}) {
  return corpus_bleu(hypotheses, references, options);
}

void expect_precisions(const BleuScore& score, const std::array<double, 4>& wanted) {
  for (size_t n = 0; n < 4; ++n) EXPECT_NEAR(score.precisions[n], wanted[n], 1e-4) << n;
}

TEST(Bleu, GoldenCorpora) {
  const BleuScore cat = score({"the cat sat on the mat"}, {{"the cat is on the mat"}});
  EXPECT_NEAR(cat.score, 37.991784, 1e-6);
  expect_precisions(cat, {83.3333, 60, 25, 16.6667});
  EXPECT_EQ(
      score({"the cat sat on the mat"}, {{"the cat is on the mat"}}, {.smoothing = BleuSmoothing::kNone})
          .score,
      0);
  const BleuScore guide = score(
      {"It is a guide to action which ensures that the military always obeys the commands of the party."},
      {{"It is a guide to action that ensures that the military will forever heed Party commands."}});
  EXPECT_NEAR(guide.score, 39.670883, 1e-6);
  EXPECT_EQ(guide.hypothesis_length, 19);
  EXPECT_EQ(guide.reference_length, 17);
  const Lines dog = {"The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."};
  const std::vector<Lines> both = {{"The dog bit the man.", "The dog had bit the man."},
                                   {"It was not unexpected.", "No one was surprised."},
                                   {"The man bit him first.", "The man had bitten the dog."}};
  const BleuScore two = score(dog, both);
  EXPECT_NEAR(two.score, 48.530827, 1e-6);
  EXPECT_NEAR(two.brevity_penalty, 0.942873, 1e-6);
  EXPECT_EQ(two.reference_length, 18);
  EXPECT_NEAR(score(dog, {{both[0][0]}, {both[1][0]}, {both[2][0]}}).score, 45.067506, 1e-6);
  const std::vector<Lines> letters = {{"a b x c d y e f z g h"}};
  EXPECT_NEAR(score({"a b c d e f g h"}, letters).score, 15.181939, 1e-6);
  EXPECT_NEAR(score({"a b c d e f g h"}, letters, {.smoothing = BleuSmoothing::kFloor}).score, 8.074204,
              1e-6);
  EXPECT_NEAR(score({"a b c d e f g h"}, letters, {.smoothing = BleuSmoothing::kAddK}).score, 24.004754,
              1e-6);
  EXPECT_NEAR(score({"", "a b c d e"}, {{"x y"}, {"a b c d e"}}).score, 67.032005, 1e-6);
}

TEST(Bleu, ShortSentencesNeedTheEffectiveOrder) {
  EXPECT_EQ(score({"Hund"}, {{"Der Hund"}}).score, 0);
  EXPECT_NEAR(sentence_bleu("Hund", Lines{"Der Hund"}).score, 36.787944, 1e-6);
  EXPECT_EQ(sentence_bleu("", Lines{"Der Hund"}).score, 0);
  EXPECT_EQ(sentence_bleu("", Lines{""}).score, 0);
}

TEST(Bleu, RandomCorporaEqualSacrebleu) {
  const nlohmann::json cases = golden_json("bleu.json");
  ASSERT_EQ(cases.size(), 24u);
  int above_zero = 0;
  for (const nlohmann::json& each : cases) {
    BleuOptions options;
    const std::string tokens = each["tokens"], smoothing = each["smoothing"];
    options.tokens = tokens == "13a"    ? BleuTokens::k13a
                     : tokens == "intl" ? BleuTokens::kInternational
                                        : BleuTokens::kNone;
    options.smoothing = smoothing == "exp"     ? BleuSmoothing::kExp
                        : smoothing == "floor" ? BleuSmoothing::kFloor
                        : smoothing == "add-k" ? BleuSmoothing::kAddK
                                               : BleuSmoothing::kNone;
    options.lower_case = each["lower"];
    options.effective_order = each["effective"];
    const BleuScore got = score(each["hypotheses"], each["references"].get<std::vector<Lines>>(), options);
    EXPECT_NEAR(got.score, each["score"].get<double>(), 1e-6) << each;
    for (size_t n = 0; n < 4; ++n)
      EXPECT_NEAR(got.precisions[n], each["precisions"][n].get<double>(), 1e-6) << each;
    EXPECT_NEAR(got.brevity_penalty, each["brevity"].get<double>(), 1e-9);
    EXPECT_EQ(got.hypothesis_length, each["lengths"][0].get<int64_t>());
    EXPECT_EQ(got.reference_length, each["lengths"][1].get<int64_t>());
    above_zero += got.score > 0;
  }
  EXPECT_GT(above_zero, 12);
}

TEST(Bleu, TokensOf13a) {
  const std::pair<const char*, const char*> cases[] = {
      {"3.5 % of U.S. 1,000-dollar bills; \"quoted\".",
       "3.5 % of U . S . 1,000 - dollar bills ; \" quoted \" ."},
      {"It's 10-20 km/h, isn't it?", "It's 10 - 20 km / h , isn't it ?"},
      {"Café-Liebhaber (z.B. Müller) kaufen 2.000,50 €.",
       "Café-Liebhaber ( z . B . Müller ) kaufen 2.000,50 € ."},
      {"a.b,c 1.2,3 -5 x-5 5-x", "a . b , c 1.2,3 -5 x-5 5 - x"},
      {"&quot;A&amp;B&lt;C&gt; &#39;", "\" A & B < C > & # 39 ;"},
      {"e.g. No.5, v1.0.", "e . g . No . 5 , v1.0 ."},
      {"a<skipped>b  \u00a0c\u2028d\x1c", "ab c d"},
      {"", ""},
      {" \t ", ""}};
  for (const auto& [text, tokens] : cases) EXPECT_EQ(bleu_tokens(text), tokens);
  EXPECT_EQ(bleu_tokens("re-\nlated\nline"), "related line");
}

TEST(Bleu, TokensOfTheOtherKinds) {
  EXPECT_EQ(bleu_tokens(" a,b  1,000 x. ", {.tokens = BleuTokens::kNone}), "a,b 1,000 x.");
  const BleuOptions international{.tokens = BleuTokens::kInternational};
  EXPECT_EQ(bleu_tokens("«Grüße», 1,000 € — x+y 2010. In 2010.", international),
            "« Grüße » , 1,000 € — x + y 2010 . In 2010.");  // the last stop stays, as in the original
  EXPECT_EQ(bleu_tokens("ÄÖ ΑΣ", {.tokens = BleuTokens::kNone, .lower_case = true}), "äö ας");
}

TEST(Bleu, AnyBytesHaveAScore) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 300; ++i) {
    const std::string a = random_text(random, 60), b = random_text(random, 60);
    for (const BleuTokens tokens : {BleuTokens::k13a, BleuTokens::kInternational, BleuTokens::kNone}) {
      const BleuOptions options{.tokens = tokens, .lower_case = i % 2 == 0};
      const BleuScore mixed = sentence_bleu(a, Lines{b}, options);
      ASSERT_TRUE(mixed.score >= 0 && mixed.score <= 100 + 1e-9);
      if (!bleu_tokens(a, options).empty()) {
        ASSERT_NEAR(sentence_bleu(a, Lines{a}, options).score, 100, 1e-9);
      }
    }
  }
  EXPECT_NEAR(sentence_bleu(std::string(1'000'000, '.'), Lines{std::string(1'000'000, '.')}).score, 100,
              1e-9);
}

TEST(Bleu, CountsAddUp) {
  const Lines hypotheses = {"a b c d e", "f g", ""};
  const std::vector<Lines> references = {{"a b c d"}, {"f g h", "f"}, {"x"}};
  BleuCounts sum;
  for (const BleuCounts& each : corpus_counts(hypotheses, references)) sum += each;
  EXPECT_EQ(bleu_of_counts(sum).score, corpus_bleu(hypotheses, references).score);
  EXPECT_EQ(sum.hypothesis_length, 7);
  EXPECT_EQ(sum.reference_length, 4 + 1 + 1);  // of two references as close, the shorter
  EXPECT_EQ(error_of([] { corpus_bleu(Lines{"a"}, std::vector<Lines>{}); }),
            "BLEU: expected as many hypotheses as references; got 1 and 0");
  EXPECT_EQ(error_of([] { corpus_bleu(Lines{"a"}, std::vector<Lines>{{}}); }),
            "BLEU: expected at least one reference for each hypothesis; got none");
}

// Sentences of 12 words of which each is kept with a probability, else replaced.
std::vector<BleuCounts> system_counts(double keeps, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<BleuCounts> counts;
  for (int i = 0; i < 200; ++i) {
    std::string reference, hypothesis;
    for (int w = 0; w < 12; ++w) {
      const std::string word = "w" + std::to_string(i * 12 + w) + " ";
      reference += word;
      hypothesis += std::uniform_real_distribution<>()(random) < keeps ? word : "x ";
    }
    counts.push_back(bleu_counts(hypothesis, Lines{reference}));
  }
  return counts;
}

double total(const std::vector<BleuCounts>& counts) {
  BleuCounts sum;
  for (const BleuCounts& each : counts) sum += each;
  return bleu_of_counts(sum).score;
}

TEST(BleuBootstrap, AnIntervalHoldsTheScoreAndHasTheWidthOfTheSpread) {
  const std::vector<BleuCounts> counts = system_counts(0.9, 1);
  const BleuInterval interval = bootstrap_bleu(counts);
  const double score = total(counts);
  EXPECT_LT(interval.low, score);
  EXPECT_GT(interval.high, score);
  EXPECT_NEAR(interval.mean, score, 0.5);
  // The spread over 40 corpora of the same kind, of which the interval of one is an estimate.
  double sum = 0, squares = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const double other = total(system_counts(0.9, 100 + seed));
    sum += other;
    squares += other * other;
  }
  const double deviation = std::sqrt(squares / 40 - sum / 40 * sum / 40);
  EXPECT_NEAR((interval.high - interval.low) / (2 * 1.96 * deviation), 1, 0.4);
  const BleuInterval again = bootstrap_bleu(counts);
  EXPECT_EQ(again.low, interval.low);
  EXPECT_EQ(again.mean, interval.mean);
  EXPECT_NE(bootstrap_bleu(counts, {}, {.draws = 1000, .seed = 1}).mean, interval.mean);
}

TEST(BleuBootstrap, PairsTellBetterSystemsFromEqualOnes) {
  const std::vector<BleuCounts> good = system_counts(0.92, 1), same = system_counts(0.92, 2),
                                worse = system_counts(0.85, 3);
  const PairedBleu clear = paired_bootstrap_bleu(good, worse);
  EXPECT_LT(clear.p_value, 0.01);
  EXPECT_EQ(clear.wins, 1);
  EXPECT_GT(clear.difference.low, 0);
  const PairedBleu unclear = paired_bootstrap_bleu(good, same);
  EXPECT_GT(unclear.p_value, 0.05);
  EXPECT_TRUE(unclear.difference.low < 0 && unclear.difference.high > 0);
  const PairedBleu itself = paired_bootstrap_bleu(good, good);
  EXPECT_EQ(itself.difference.mean, 0);
  EXPECT_EQ(itself.wins, 0);
  // The draws are the same for both: a system's part of a pair is its own interval.
  const BleuInterval one = bootstrap_bleu(good), other = bootstrap_bleu(worse);
  EXPECT_NEAR(clear.difference.mean, one.mean - other.mean, 1e-9);
}

TEST(BleuBootstrap, WhatCannotBeDrawnIsRefused) {
  EXPECT_THAT(error_of([] { bootstrap_bleu({}); }), testing::HasSubstr("at least one sentence"));
  const std::vector<BleuCounts> one(1), two(2);
  EXPECT_THAT(error_of([&] { paired_bootstrap_bleu(one, two); }), testing::HasSubstr("got 1 and 2"));
  EXPECT_THAT(error_of([&] { bootstrap_bleu(one, {}, {.draws = 0, .seed = 0}); }),
              testing::HasSubstr("at least one draw; got 0"));
}

}  // namespace
}  // namespace edgewise::data
