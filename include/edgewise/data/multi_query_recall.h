// MultiQueryRecall: multi-query associative recall (MQAR), the usual test of efficient attention. A sequence
// begins with P pairs, key value key value ..., all keys distinct. Later every key is asked for once; the
// label of that token is the value that went with it. Where: `gap` slots of two tokens after the pairs, gaps
// distinct, with probability proportional to gap^(power - 1), so that most questions come soon and some very
// late. All other tokens are noise that is no key of any sequence.
//
// A query finds its value in two steps: the value's token reads the key before it, and the query finds that.
//
// Examples are made on the fly from (seed, split, index).
#pragma once

#include <edgewise/data/dataset.h>

namespace edgewise::data {

struct MultiQueryRecallOptions {
  int64_t length = 256;       // N, at least 4 P
  int64_t pairs = 64;         // P
  int64_t vocabulary = 8192;  // 0 is padding, the lower half keys, the upper half values and noise
  double power = 0.01;
  int64_t train_size = 1'000'000;
  int64_t validation_size = 1024;
  int64_t test_size = 1024;
  uint64_t seed = 0;
};

class MultiQueryRecall : public Dataset {
 public:
  explicit MultiQueryRecall(const MultiQueryRecallOptions& options = {});

  std::string name() const override { return "multi_query_recall"; }
  int64_t size(Split split) const override;
  int64_t vocabulary() const override { return options_.vocabulary; }
  int64_t classes() const override { return options_.vocabulary; }  // a label is the value's token
  int64_t max_length() const override { return options_.length; }
  Batch batch(Split split, std::span<const int64_t> indices) const override;  // labels and places [B, P]
  std::vector<Baseline> baselines(Split split) const override;

 private:
  int64_t first_value() const { return options_.vocabulary / 2; }

  MultiQueryRecallOptions options_;
};

}  // namespace edgewise::data
