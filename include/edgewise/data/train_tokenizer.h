// Training a tokeniser: texts go in, distinct words are counted, merges are learned at the end. The same
// texts give the same tokeniser, in whatever order they come. Memory grows with the distinct words.
#pragma once

#include <edgewise/data/byte_level_bpe.h>
#include <edgewise/data/subword_bpe.h>

#include <functional>

namespace edgewise::data {

struct TrainTokenizerOptions {
  // Byte-level: ids altogether, the five special ones and the 256 bytes among them. Subword: merges. Both may
  // be fewer, when no pair is left that occurs min_count times.
  int64_t vocabulary = 8000;
  int64_t min_count = 2;
  std::function<void(int64_t merges)> progress = nullptr;
};

class ByteLevelBpeTrainer {
 public:
  ByteLevelBpeTrainer();
  ~ByteLevelBpeTrainer();

  void add(
      std::string_view text);  // words do not go on from one text to the next; line ends are part of the text
  int64_t distinct_words() const;
  // <s>, <pad>, </s>, <unk>, <mask>, the bytes in the order of their characters in the files, the merges.
  ByteLevelBpe train(const TrainTokenizerOptions& options = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class SubwordBpeTrainer {
 public:
  SubwordBpeTrainer();
  ~SubwordBpeTrainer();

  void add(std::string_view line);
  int64_t distinct_words() const;
  // <s>, <pad>, </s>, <unk>, then the pieces that the texts are made of, the most frequent first, equally
  // frequent ones in the order of their code points, as fairseq numbers them.
  SubwordBpe train(const TrainTokenizerOptions& options = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace edgewise::data
