// AssociativeRecall: each sequence holds N / 2 facts, then N / 2 questions. A fact is one token that stands
// for a key and a value, all keys of a sequence distinct; a question is the token of one of these keys, and
// its label is the value that went with it. Every question has exactly one right edge: to the fact with its
// key.
//
// Examples are made on the fly from (seed, split, index), so a split costs no memory and never changes.
#pragma once

#include <edgewise/data/dataset.h>

namespace edgewise::data {

struct AssociativeRecallOptions {
  int64_t length = 64;  // N, even
  int64_t keys = 0;     // distinct keys, at least N / 2; 0 = N / 2
  int64_t values = 8;   // V
  int64_t train_size = 1'000'000;
  int64_t validation_size = 1024;
  int64_t test_size = 1024;
  uint64_t seed = 0;
};

class AssociativeRecall : public Dataset {
 public:
  explicit AssociativeRecall(const AssociativeRecallOptions& options = {});

  std::string name() const override { return "associative_recall"; }
  int64_t size(Split split) const override;
  // 0 is padding; a fact is 1 + key * V + value, a question 1 + keys * V + key.
  int64_t vocabulary() const override { return 1 + options_.keys * (options_.values + 1); }
  int64_t classes() const override { return options_.values; }
  int64_t max_length() const override { return options_.length; }
  Batch batch(Split split,
              std::span<const int64_t> indices) const override;  // facts have no target: label -1
  at::Tensor right_edges(const Batch& batch) const override;
  std::vector<Baseline> baselines(Split) const override {
    return {{"a guess", 1 / static_cast<double>(options_.values)}};
  }

 private:
  AssociativeRecallOptions options_;
};

}  // namespace edgewise::data
