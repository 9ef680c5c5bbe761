// ByteExamples on disk, and ByteDataset: token ids, masks, cutting, padding, order of evaluation.
#include <edgewise/data/byte_dataset.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <edgewise/data/batches.h>
#include <edgewise/io/safetensors.h>

#include "data/expect_error.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;

std::vector<uint8_t> repeated(size_t length, uint8_t value) {
  return std::vector<uint8_t>(length, value);
}

ByteExamples texts(const std::vector<size_t>& lengths) {
  ByteExamples examples("text");
  examples.source = "test";
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
      examples.add_example(split, repeated(lengths[i], static_cast<uint8_t>(i % 256)),
                           static_cast<int64_t>(i % 2));
    }
  }
  return examples;
}

ByteExamples picture(uint8_t last) {
  ByteExamples examples("image");
  std::vector<uint8_t> pixels(1024, 0);
  pixels[1] = 255;
  pixels[1023] = last;
  examples.add_example(Split::kTrain, pixels, 9);
  return examples;
}

const std::vector<int64_t> kFirst = {0};

TEST(ByteExamples, FilesReadBackAndAreChecked) {
  const ScratchFolder folder;
  ByteExamples pairs("retrieval", 2);
  pairs.add_sequence(repeated(5, 1));
  pairs.add_sequence(repeated(0, 1));
  pairs.add_sequence(repeated(3, 255));
  pairs.add_example(Split::kTrain, std::vector<int32_t>{2, 0}, 1);
  pairs.add_example(Split::kTest, std::vector<int32_t>{1, 1}, 0);
  for (const bool compress : {false, true}) {
    save_byte_examples(folder.path(), pairs, {.compress = compress});
    const ByteExamples read = load_byte_examples(folder.path(), "retrieval");
    EXPECT_EQ(read.bytes, pairs.bytes);
    EXPECT_EQ(read.ends, pairs.ends);
    EXPECT_EQ(read.towers, 2);
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
      EXPECT_EQ(read.part(split).sequences, pairs.part(split).sequences);
      EXPECT_EQ(read.part(split).labels, pairs.part(split).labels);
    }
  }
  const auto path = byte_examples_path(folder.path(), "retrieval");
  const auto change = [&](auto how) {
    save_byte_examples(folder.path(), pairs);
    io::TensorFile file = io::load_safetensors(path);
    how(file);
    io::save_safetensors(path, file);
  };
  change([](io::TensorFile& file) { file.tensors["bytes"][2] = 77; });
  EXPECT_ERROR(load_byte_examples(folder.path(), "retrieval"), "the file is damaged");
  change([](io::TensorFile& file) { file.tensors["test.sequences"][0][1] = 3; });
  EXPECT_ERROR(load_byte_examples(folder.path(), "retrieval"), "expected test.sequences below 3; found 3");
  change([](io::TensorFile& file) { file.tensors["lengths"][0] = 6; });
  EXPECT_ERROR(load_byte_examples(folder.path(), "retrieval"), "expected lengths that add up to 8; found 9");
  change([](io::TensorFile& file) { file.tensors.erase("train.labels"); });
  EXPECT_ERROR(load_byte_examples(folder.path(), "retrieval"),
               "expected a tensor 'train.labels'; found none");
  change([](io::TensorFile& file) { file.metadata["task"] = "text"; });
  EXPECT_ERROR(load_byte_examples(folder.path(), "retrieval"),
               "expected the data of task retrieval; found 'text'");
}

TEST(ByteDataset, TextIdsAreBytesPlusOne) {
  const ByteDataset dataset(texts({3, 70}), lra_options("text"));
  EXPECT_EQ(dataset.vocabulary(), 512);
  EXPECT_EQ(dataset.max_length(), 3072);
  EXPECT_EQ(dataset.length(Split::kTrain, 1), 70);
  const Batch batch = dataset.batch(Split::kTrain, std::vector<int64_t>{0, 1});
  ASSERT_EQ(batch.towers[0].tokens.sizes(), (std::vector<int64_t>{2, 128}));
  EXPECT_EQ(batch.towers[0].tokens[0][2].item<int64_t>(), 1);  // byte 0 is a token, not padding
  EXPECT_EQ(batch.towers[0].tokens[0][3].item<int64_t>(), 0);
  EXPECT_TRUE(at::equal(batch.towers[0].mask.sum(1), at::tensor({3, 70}, at::kLong)));
  EXPECT_EQ(batch.trim_multiple, 64);
}

TEST(ByteDataset, TextIsCutAndPaddedAsPublished) {
  ByteDatasetOptions options = lra_options("text");
  options.fixed_length = true;
  const ByteDataset dataset(texts({5000, 1}), options);
  const Batch batch = dataset.batch(Split::kTrain, kFirst);
  EXPECT_EQ(batch.towers[0].tokens.size(1), 3072);
  EXPECT_EQ(batch.towers[0].mask.sum().item<int64_t>(), 3000);
  EXPECT_EQ(batch.trim_multiple, 0);
  EXPECT_EQ(dataset.length(Split::kTrain, 1), 3072);  // nothing to sort by
}

TEST(ByteDataset, BlackPixelsAreTokensUnlessAskedOtherwise) {
  const Batch ours = ByteDataset(picture(0), lra_options("image")).batch(Split::kTrain, kFirst);
  EXPECT_EQ(ours.towers[0].tokens.size(1), 1024);
  EXPECT_EQ(ours.towers[0].tokens[0][1].item<int64_t>(), 255);  // the pixel is the id
  EXPECT_TRUE(ours.towers[0].mask.all().item<bool>());
  ByteDatasetOptions published = lra_options("image");
  published.mask_zero = true;
  const Batch masked = ByteDataset(picture(0), published).batch(Split::kTrain, kFirst);
  EXPECT_EQ(masked.towers[0].tokens.size(1), 1024);
  EXPECT_EQ(masked.towers[0].mask.sum().item<int64_t>(), 1);
  EXPECT_TRUE(masked.towers[0].mask[0][1].item<bool>());
  EXPECT_EQ(masked.trim_multiple, 0);  // black at the end is not cut off
}

TEST(ByteDataset, TrainsOnEveryOrientationOfAPicture) {
  ByteExamples examples("pathfinder");
  std::vector<uint8_t> pixels(1024);
  pixels[1] = 10, pixels[32 * 5 + 30] = 20;  // (row 0, column 1) and (5, 30)
  examples.add_example(Split::kTrain, std::vector<uint8_t>(1024, 7), 0);
  examples.add_example(Split::kTrain, pixels, 1);
  examples.add_example(Split::kTest, pixels, 1);
  ByteDatasetOptions options = lra_options("pathfinder");
  options.symmetries = 8;
  const ByteDataset dataset(examples, options);
  EXPECT_EQ(dataset.size(Split::kTrain), 16);
  EXPECT_EQ(dataset.size(Split::kTest), 1);
  const std::vector<int64_t> second = {8, 9, 10, 11, 12, 13, 14, 15};
  const Batch batch = dataset.batch(Split::kTrain, second);
  EXPECT_EQ(batch.labels.sum().item<int64_t>(), 8);
  const at::Tensor picture = batch.towers[0].tokens[0].view({32, 32}),
                   all = batch.towers[0].tokens.view({8, 32, 32});
  EXPECT_EQ(picture[0][1].item<int64_t>(), 10);
  EXPECT_EQ(picture[5][30].item<int64_t>(), 20);
  EXPECT_TRUE(at::equal(all[1], picture.flip(1)));
  // All eight, each once: four quarter turns of the picture and of its mirror image.
  for (int64_t turns = 0; turns < 4; ++turns) {
    for (const at::Tensor& expected : {at::rot90(picture, turns), at::rot90(picture.flip(1), turns)}) {
      int64_t found = 0;
      for (int64_t n = 0; n < 8; ++n) found += at::equal(all[n], expected);
      EXPECT_EQ(found, 1) << turns;
    }
  }
  EXPECT_TRUE(at::equal(dataset.batch(Split::kTest, kFirst).towers[0].tokens[0].view({32, 32}), picture));

  // Lit pixels alone: the same pixels at their new places.
  options.mask_zero = options.drop_masked = true;
  options.symmetries = 2;
  const ByteDataset lit(examples, options);
  const std::vector<int64_t> mirrored = {3};
  EXPECT_EQ(lit.length(Split::kTrain, 3), 2);
  const Batch few = lit.batch(Split::kTrain, mirrored);
  EXPECT_TRUE(at::equal(few.towers[0].positions[0].slice(0, 0, 2), at::tensor({30, 32 * 5 + 1}, at::kLong)));
  EXPECT_TRUE(at::equal(few.towers[0].tokens[0].slice(0, 0, 2), at::tensor({10, 20}, at::kLong)));

  options.symmetries = 4;
  EXPECT_THAT([&] { ByteDataset(examples, options); },
              testing::ThrowsMessage<c10::Error>(testing::HasSubstr("1, 2 (mirrored too) or 8")));
  examples.add_example(Split::kTrain, std::vector<uint8_t>(1000), 0);
  options.symmetries = 8;
  EXPECT_THAT([&] { ByteDataset(examples, options); },
              testing::ThrowsMessage<c10::Error>(testing::HasSubstr("found one of 1000")));
  EXPECT_THAT(
      [&] {
        ByteDatasetOptions texts_turned = lra_options("text");
        texts_turned.symmetries = 2;
        ByteDataset(texts({10}), texts_turned);
      },
      testing::ThrowsMessage<c10::Error>(testing::HasSubstr("square pictures")));
}

TEST(ByteDataset, MaskedPixelsMayBeLeftOut) {
  ByteExamples examples("pathfinder");
  std::vector<uint8_t> pixels(1024);
  for (const size_t lit : {3, 500, 1023}) pixels[lit] = static_cast<uint8_t>(lit % 251);
  examples.add_example(Split::kTrain, pixels, 1);
  examples.add_example(Split::kTrain, std::vector<uint8_t>(1024, 7), 0);
  examples.add_example(Split::kTrain, std::vector<uint8_t>(1024), 0);
  ByteDatasetOptions options = lra_options("pathfinder");
  options.mask_zero = options.drop_masked = true;
  const ByteDataset dataset(examples, options);
  EXPECT_EQ(dataset.length(Split::kTrain, 0), 3);
  EXPECT_EQ(dataset.length(Split::kTrain, 1), 1024);
  const Batch batch = dataset.batch(Split::kTrain, kFirst);
  EXPECT_EQ(batch.towers[0].tokens.sizes(), (std::vector<int64_t>{1, 64}));
  EXPECT_EQ(batch.towers[0].mask.sum().item<int64_t>(), 3);
  EXPECT_TRUE(at::equal(batch.towers[0].positions[0].slice(0, 0, 3), at::tensor({3, 500, 1023}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.towers[0].tokens[0].slice(0, 0, 3), at::tensor({3, 249, 19}, at::kLong)));
  EXPECT_EQ(batch.sequence_length, 1024);
  EXPECT_EQ(batch.trim_multiple, 64);
  const std::vector<int64_t> all = {0, 1, 2};
  const Batch whole = dataset.batch(Split::kTrain, all);
  EXPECT_EQ(whole.towers[0].tokens.size(1), 1024);
  EXPECT_FALSE(whole.towers[0].mask[2].any().item<bool>());  // nothing lit, nothing valid
  options.mask_zero = false;
  EXPECT_THAT([&] { ByteDataset(examples, options); },
              testing::ThrowsMessage<c10::Error>(testing::HasSubstr("drop_masked with mask_zero")));
}

TEST(ByteDataset, ValidationMayBeTheTestSet) {
  ByteExamples examples("text");
  examples.add_example(Split::kTrain, repeated(2, 1), 0);
  examples.add_example(Split::kValidation, repeated(2, 2), 1);
  examples.add_example(Split::kTest, repeated(2, 3), 1);
  examples.add_example(Split::kTest, repeated(2, 4), 0);
  ByteDatasetOptions options = lra_options("text");
  options.validation_is_test = true;
  const ByteDataset published(examples, options);
  EXPECT_EQ(published.size(Split::kTrain), 2);
  EXPECT_EQ(published.size(Split::kValidation), 2);
  EXPECT_EQ(published.sequence(Split::kValidation, 0)[0], 3);
  EXPECT_EQ(ByteDataset(examples, lra_options("text")).size(Split::kTrain), 1);
}

TEST(ByteDataset, EvaluationGoesByLengthInBlocksThatLoseNothing) {
  std::vector<size_t> lengths;
  for (size_t i = 0; i < 1000; ++i) lengths.push_back(1 + i * 37 % 1000);
  const ByteDataset dataset(texts(lengths), lra_options("text"));
  double padded = 0;
  std::vector<int64_t> seen;
  for (int64_t b = 0; b < evaluation_batches(1000, 64); ++b) {
    const Batch batch = dataset.batch(Split::kTest, evaluation_indices(1000, 64, b));
    padded += static_cast<double>(batch.towers[0].tokens.numel());
    for (int64_t i = 0; i < batch.size(); ++i) seen.push_back(batch.towers[0].mask[i].sum().item<int64_t>());
  }
  EXPECT_LT(padded, 1.2 * 500'500);  // the tokens there are
  EXPECT_FALSE(std::ranges::is_sorted(seen));
  std::ranges::sort(seen);
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i + 1);
  // Training keeps the order of the file.
  EXPECT_EQ(dataset.length(Split::kTrain, 1), 38);
}

TEST(ByteDataset, PairsHaveTwoTowers) {
  ByteExamples pairs("retrieval", 2);
  pairs.add_sequence(repeated(10, 'a'));
  pairs.add_sequence(repeated(100, 'b'));
  pairs.add_example(Split::kTrain, std::vector<int32_t>{0, 1}, 1);
  const ByteDataset dataset(std::move(pairs), lra_options("retrieval"));
  EXPECT_EQ(dataset.length(Split::kTrain, 0), 100);
  const Batch batch = dataset.batch(Split::kTrain, kFirst);
  ASSERT_EQ(batch.towers.size(), 2u);
  EXPECT_EQ(batch.towers[0].tokens.size(1), 64);
  EXPECT_EQ(batch.towers[1].tokens.size(1), 128);
  EXPECT_EQ(batch.towers[1].mask.sum().item<int64_t>(), 100);
}

TEST(ByteDataset, MistakesAreExplained) {
  EXPECT_ERROR(ByteDataset(picture(0), lra_options("pathfinder")), "image: expected labels below 2; found 9");
  EXPECT_ERROR(lra_options("images"), "expected image, text, pathfinder or retrieval; got 'images'");
  EXPECT_ERROR(ByteDataset(picture(0), lra_options("image")).majority_accuracy(Split::kTest), "found none");
}

TEST(SortByLength, LongestFirstAndStable) {
  const ByteDataset dataset(texts({5, 9, 5, 7}), lra_options("text"));
  std::vector<int64_t> indices = {2, 0, 3, 1};
  sort_by_length(dataset, Split::kTrain, indices);
  EXPECT_EQ(indices, (std::vector<int64_t>{1, 3, 2, 0}));
}

}  // namespace
}  // namespace edgewise::data
