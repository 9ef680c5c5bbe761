// Needle: one question about a long text. A sequence is noise but for P needles, each a key and the value
// after it, at places of their own anywhere, all keys distinct; the last token asks for one of the keys, and
// its label is the value that went with it.
//
// Examples are made on the fly from (seed, split, index).
#pragma once

#include <edgewise/data/dataset.h>

namespace edgewise::data {

struct NeedleOptions {
  int64_t length = 1024;     // N, at least 2 P + 1
  int64_t pairs = 1;         // P: the needle, and others to take for it
  int64_t vocabulary = 256;  // 0 is padding; a quarter are keys, a quarter values, the rest noise
  int64_t train_size = 1'000'000;
  int64_t validation_size = 256;
  int64_t test_size = 256;
  uint64_t seed = 0;
};

class Needle : public Dataset {
 public:
  explicit Needle(const NeedleOptions& options = {});

  std::string name() const override { return "needle"; }
  int64_t size(Split split) const override;
  int64_t vocabulary() const override { return options_.vocabulary; }
  int64_t classes() const override { return options_.vocabulary / 4; }
  int64_t max_length() const override { return options_.length; }
  Batch batch(Split split, std::span<const int64_t> indices) const override;  // -1 but for the last token
  std::vector<Baseline> baselines(Split split) const override;

 private:
  NeedleOptions options_;
};

}  // namespace edgewise::data
