// Sentences with their translations: from files to batches, what may be wrong with the files, and batches by
// tokens.
#include <edgewise/data/examples/import_translation.h>

#include <torch/torch.h>

#include <numeric>
#include <set>

#include "data/examples/examples_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

std::vector<int64_t> row(const at::Tensor& tensor, int64_t item) {
  const at::Tensor flat = tensor[item].to(at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

// Files of three pairs for everything, with pieces of subword-nmt.
TranslationImportOptions small(const ScratchFolder& scratch) {
  scratch.write("all.en", "a man\nthe man@@ ly  dog\na dog\n");
  scratch.write("all.de", "ein mann\nder hund\nein hund .\n");
  const ParallelFiles files{.name = "first", .source = scratch / "all.en", .target = scratch / "all.de"};
  TranslationImportOptions options;
  options.train = options.validation = files;
  options.tests = {files, files};
  options.tests[1].name = "second";
  options.source_language = "en";
  options.target_language = "de";
  options.subword_merges = 100;
  return options;
}

TEST(Translation, FilesBecomeBatches) {
  const ScratchFolder scratch;
  const ImportedTranslation made = import_translation(small(scratch));
  save_translation(scratch / "data", made.examples, made.reader, made.sets);
  const TranslationPairs pairs(scratch / "data");
  EXPECT_EQ(pairs.size(Split::kTrain), 3);
  EXPECT_EQ(pairs.size(Split::kTest), 6);
  EXPECT_EQ(pairs.line(Split::kTrain, 2), 3);
  EXPECT_THAT(pairs.summary(), HasSubstr("en to de"));
  EXPECT_EQ(pairs.bleu().tokens, BleuTokens::kNone);
  const std::vector<TestSet> tests = pairs.sets(Split::kTest);
  ASSERT_EQ(tests.size(), 2u);
  EXPECT_EQ(tests[1].name, "second");
  EXPECT_EQ(tests[0].references, (std::vector<std::string>{"ein mann", "der hund", "ein hund ."}));

  const Tokenizer& tokenizer = pairs.reader()->tokenizer();
  const std::vector<int64_t> indices = {1, 2};
  const Batch batch = pairs.batch(Split::kTrain, indices);
  ASSERT_EQ(batch.towers.size(), 2u);
  const auto ids = [&](const std::string& text) {
    const std::vector<int32_t> found = tokenizer.encode(text);
    return std::vector<int64_t>(found.begin(), found.end());
  };
  std::vector<int64_t> source = ids("the manly dog"), target = ids("ein hund .");
  source.push_back(2);
  EXPECT_EQ(row(batch.towers[0].tokens, 0), source);
  EXPECT_TRUE(batch.towers[0].mask[0].all().item<bool>());
  // The other source is padded behind its mark.
  std::vector<int64_t> shorter = ids("a dog");
  shorter.push_back(2);
  std::vector<int64_t> mask(shorter.size(), 1);
  shorter.resize(source.size(), 1);
  mask.resize(source.size(), 0);
  EXPECT_EQ(row(batch.towers[0].tokens, 1), shorter);
  EXPECT_EQ(row(batch.towers[0].mask, 1), mask);
  std::vector<int64_t> read = target, next = target;
  read.insert(read.begin(), 2);
  next.push_back(2);
  // The first translation is longer by a piece.
  ASSERT_EQ(batch.labels.size(1), std::ssize(next) + 1);
  read.push_back(1);
  next.push_back(-1);
  EXPECT_EQ(row(batch.towers[1].tokens, 1), read);
  EXPECT_EQ(row(batch.labels, 1), next);
  EXPECT_EQ(batch.labels[0][-1].item<int64_t>(), 2);
  EXPECT_EQ(pairs.source_length(Split::kTrain, 1), std::ssize(source));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>(target.begin(), target.end()), true), "ein hund .");
}

TEST(Translation, AnyTextBecomesPiecesThatGiveItBack) {
  const ScratchFolder scratch;
  TranslationImportOptions options = small(scratch);
  options.subword_merges = 0;
  options.vocabulary = 300;
  const ImportedTranslation made = import_translation(options);
  const TranslationPairs pairs(made.reader, made.examples, made.sets);
  EXPECT_EQ(pairs.bleu().tokens, BleuTokens::k13a);
  const Tokenizer& tokenizer = pairs.reader()->tokenizer();
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Käse  & Brot")), "Käse  & Brot");
  EXPECT_EQ(made.sets.tests[0].references[1], "der hund");
}

TEST(Translation, WhatIsWrongHasItsFileAndLine) {
  const ScratchFolder scratch;
  const auto message = [&](auto change) {
    TranslationImportOptions options = small(scratch);
    change(options);
    return complaint([&] { import_translation(options); });
  };
  EXPECT_THAT(message([&](auto&) { scratch.write("all.de", "ein mann\nder hund\n"); }),
              testing::AllOf(HasSubstr("all.en, 3; found 2"), HasSubstr("Line 3 of the longer file")));
  EXPECT_THAT(message([&](auto&) { scratch.write("all.de", "ein mann\n  \nein hund\n"); }),
              testing::AllOf(HasSubstr("all.de:2: expected a sentence"), HasSubstr("--skip-empty")));
  EXPECT_THAT(message([&](auto&) { scratch.write("all.en", "a man\nna\xEFve\na dog\n"); }),
              HasSubstr("all.en:2: expected text in UTF-8"));
  EXPECT_THAT(message([&](auto&) { scratch.write("all.en", "a\n" + std::string(10 << 20, 'x') + "\nb\n"); }),
              HasSubstr("all.en:2: expected lines of at most"));
  EXPECT_THAT(message([&](auto&) { scratch.write("all.en", ""); }), HasSubstr("it is empty"));
  EXPECT_THAT(message([&](auto& options) { options.tests[1].name = "first"; }), HasSubstr("'first'"));
  EXPECT_THAT(message([&](auto& options) { options.tests[1].name = "validation"; }),
              HasSubstr("'validation'"));
  EXPECT_THAT(message([&](auto& options) { options.tests[0].target = scratch / "gone.de"; }),
              HasSubstr("gone.de"));
}

TEST(Translation, EmptyAndLongPairsCanBeLeftOutOfTraining) {
  const ScratchFolder scratch;
  TranslationImportOptions options = small(scratch);
  scratch.write("train.en", "a man\n\n a a a a a a a a a a\nthe dog\n");
  scratch.write("train.de", "ein mann\nder hund\nein hund\nder hund\n");
  options.train = {.name = "train", .source = scratch / "train.en", .target = scratch / "train.de"};
  options.skip_empty = true;
  options.max_length = 8;
  const ImportedTranslation made = import_translation(options);
  EXPECT_EQ(made.empty, 1);
  EXPECT_EQ(made.too_long, 1);
  const TranslationPairs pairs(made.reader, made.examples, made.sets);
  EXPECT_EQ(pairs.size(Split::kTrain), 2);
  EXPECT_EQ(pairs.line(Split::kTrain, 1), 4) << "as the file counts";
}

TEST(Translation, FoldersThatDoNotFitAreRefused) {
  const ScratchFolder scratch;
  EXPECT_THAT(complaint([&] { TranslationPairs(scratch / "none"); }), HasSubstr("edgewise data translation"));
  const ImportedTranslation made = import_translation(small(scratch));
  save_translation(scratch / "data", made.examples, made.reader, made.sets);
  const std::string references = "data/references/second.txt";
  const std::string whole = scratch.read(references);
  scratch.write(references, whole + "more\n");
  EXPECT_THAT(complaint([&] { TranslationPairs(scratch / "data"); }),
              HasSubstr("second.txt: expected 3 lines"));
  scratch.write(references, whole);
  const std::string json = scratch.read("data/translation.json");
  scratch.write("data/translation.json", json.substr(0, json.size() / 2));
  EXPECT_THAT(complaint([&] { TranslationPairs(scratch / "data"); }), HasSubstr("translation.json"));
}

// Pairs whose lengths are known.
TranslationPairs pairs_of_lengths(int64_t count) {
  const ScratchFolder scratch;
  const ImportedTranslation made = import_translation(small(scratch));
  TokenExamples examples = made.examples;
  TokenExamples::Part& train = examples.part(Split::kTrain);
  train = {};
  for (int64_t n = 0; n < count; ++n) {
    train.add(std::vector<int32_t>(static_cast<size_t>(1 + n % 7), 4), n + 1);
    train.add(std::vector<int32_t>(static_cast<size_t>(1 + n % 11), 5), n + 1);
  }
  return {made.reader, examples, made.sets};
}

TEST(TokenBatches, EveryPairOnceAPassWithinItsTokens) {
  const TranslationPairs pairs = pairs_of_lengths(500);
  TokenBatchOrder order(pairs, 64, 3);
  std::vector<std::vector<int64_t>> passes;
  for (int64_t pass = 0; pass < 2; ++pass) {
    std::multiset<int64_t> seen;
    std::vector<int64_t> firsts;
    for (int64_t n = 0; n < order.batches(); ++n) {
      const std::vector<int64_t> indices = order.indices(pass * order.batches() + n);
      int64_t longest = 0;
      for (const int64_t index : indices) longest = std::max(longest, pairs.length(Split::kTrain, index));
      EXPECT_LE(longest * std::ssize(indices), 64);
      seen.insert(indices.begin(), indices.end());
      firsts.push_back(indices.front());
    }
    EXPECT_EQ(seen.size(), 500u);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 500u);
    passes.push_back(firsts);
  }
  EXPECT_NE(passes[0], passes[1]) << "another order in every pass";
  // A step's batch depends on the seed and the step alone.
  TokenBatchOrder again(pairs, 64, 3), other(pairs, 64, 4);
  EXPECT_EQ(again.indices(order.batches() + 2), order.indices(order.batches() + 2));
  EXPECT_NE(other.indices(0), order.indices(0));
  // Similar lengths come together: little is padding.
  double tokens = 0, room = 0;
  for (int64_t n = 0; n < order.batches(); ++n) {
    int64_t longest = 0;
    const std::vector<int64_t> indices = order.indices(n);
    for (const int64_t index : indices) {
      tokens += static_cast<double>(pairs.target_length(Split::kTrain, index));
      longest = std::max(longest, pairs.target_length(Split::kTrain, index));
    }
    room += static_cast<double>(longest * std::ssize(indices));
  }
  EXPECT_GT(tokens / room, 0.85);
  EXPECT_THAT(complaint([&] { TokenBatchOrder(pairs, 5, 0); }), HasSubstr("train.batch_tokens"));
}

}  // namespace
}  // namespace edgewise::data
