// ByteDataset: ByteExamples as a dataset. The four byte-valued tasks of the Long Range Arena differ only in
// numbers: classes, lengths, whether token ids are shifted by one, and what counts as padding.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <edgewise/data/byte_examples.h>

namespace edgewise::data {

struct ByteDatasetOptions {
  int64_t classes = 2;
  int64_t vocabulary = 512;   // as published; ids 0..256 occur
  int64_t max_length = 1024;  // bytes of a sequence that are read; the rest is cut
  int64_t pad_to = 1024;      // the longest padded length
  int64_t first_id = 1;       // token id of byte 0. 1: texts, where id 0 is padding; 0: pixels
  // Pixels: id 0, i.e. black, is masked like padding, as the published code does; else black is a token.
  bool mask_zero = false;
  // With mask_zero: what is masked is left out of the batch, whose positions say where the rest stands. A
  // model that takes tokens as a set with positions computes the same from fewer of them (a third, in
  // Pathfinder).
  bool drop_masked = false;
  // Square pictures: so many training examples are made of each, itself first. 2: and mirrored left to right;
  // 8: and turned by quarters. Validation and test stay as they are.
  int64_t symmetries = 1;
  // Pad every batch to pad_to, as the published code; else to a multiple of 64.
  bool fixed_length = false;
  // The published Text: train on train and validation, validate on test. Nothing is then left to report
  // honestly.
  bool validation_is_test = false;
};

// "image", "text", "pathfinder" or "retrieval", with the numbers of the published recipe.
ByteDatasetOptions lra_options(std::string_view task);
bool is_byte_task(std::string_view task);

class ByteDataset : public Dataset {
 public:
  ByteDataset(ByteExamples examples, const ByteDatasetOptions& options);

  std::string name() const override { return examples_.task; }
  int64_t size(Split split) const override;
  int64_t vocabulary() const override { return options_.vocabulary; }
  int64_t classes() const override { return options_.classes; }
  int64_t max_length() const override { return options_.pad_to; }
  TokenView token_view() const override;
  int64_t length(Split split, int64_t index) const override;
  Batch batch(Split split, std::span<const int64_t> indices) const override;
  std::vector<Baseline> baselines(Split split) const override {
    return {{"most frequent label of train", majority_accuracy(split)}};
  }

  // The bytes an example is made of, e.g. the pixels of an image, before symmetries.
  std::span<const uint8_t> sequence(Split split, int64_t index, int64_t tower = 0) const;
  // Accuracy on `split` of the label most frequent in train.
  double majority_accuracy(Split split) const;

 private:
  const ByteExamples::Part& part(Split split) const { return parts_[static_cast<size_t>(split)]; }
  // Examples that are made of each one in the file.
  int64_t copies(Split split) const { return split == Split::kTrain ? options_.symmetries : 1; }
  int64_t kept_length(int64_t sequence) const;  // tokens of a sequence in a batch, before padding
  void arrange();
  void prepare_symmetries();
  void order_by_length(ByteExamples::Part& part) const;

  ByteExamples examples_;
  ByteDatasetOptions options_;
  // The splits as they are served. Validation and test lie in blocks of similar length, so that evaluation
  // pads little; blocks are in random order, so that the first examples are a fair sample.
  std::array<ByteExamples::Part, 3> parts_;
  std::vector<int32_t>
      places_;  // [symmetries, max_length] where a pixel comes from; empty without symmetries
};

}  // namespace edgewise::data
