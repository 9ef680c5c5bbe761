// ListOpsDataset: ListOps files as a dataset of ten classes, and the two baselines that say what an accuracy
// is worth.
#pragma once

#include <string>

#include <edgewise/data/dataset.h>
#include <edgewise/data/listops.h>

namespace edgewise::data {

struct ListOpsDatasetOptions {
  int64_t max_length = 2000;  // longer expressions are an error
  int64_t pad_to = 2048;      // the longest padded length
  bool fixed_length = false;  // pad every batch to pad_to, as the published code; else to a multiple of 64
  bool verify = false;        // check every target when reading
};

class ListOpsDataset : public Dataset {
 public:
  explicit ListOpsDataset(const std::string& folder, const ListOpsDatasetOptions& options = {});
  explicit ListOpsDataset(ListOpsData data, const ListOpsDatasetOptions& options = {});

  std::string name() const override { return "listops"; }
  int64_t size(Split split) const override { return examples(split).size(); }
  int64_t vocabulary() const override { return 32; }  // as published; ids 0..15 occur
  int64_t classes() const override { return 10; }
  int64_t max_length() const override { return options_.pad_to; }
  TokenView token_view() const override;
  int64_t length(Split split, int64_t index) const override;
  Batch batch(Split split, std::span<const int64_t> indices) const override;
  std::vector<Baseline> baselines(Split split) const override;

  const ListOpsExamples& examples(Split split) const;

 private:
  ListOpsData data_;
  ListOpsDatasetOptions options_;
};

// Accuracy on `split` of the label most frequent in train: about 17 %.
double prior_baseline(const ListOpsDataset& dataset, Split split);
// The same given the first token, i.e. the root operator: about 36.2 %. What a model has above this, it read
// elsewhere.
double first_token_baseline(const ListOpsDataset& dataset, Split split);

}  // namespace edgewise::data
