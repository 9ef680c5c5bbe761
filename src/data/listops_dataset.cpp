#include <edgewise/data/listops_dataset.h>

#include <algorithm>
#include <array>

#include <ATen/Functions.h>

#include <edgewise/data/listops_file.h>

#include "data/check_indices.h"
#include "data/padding.h"

namespace edgewise::data {

namespace {

ListOpsData read_folder(const std::string& folder, const ListOpsDatasetOptions& options) {
  const ListOpsReadOptions read{options.max_length, options.verify};
  ListOpsData data;
  data.train = read_listops(listops_path(folder, Split::kTrain), read);
  data.validation = read_listops(listops_path(folder, Split::kValidation), read);
  data.test = read_listops(listops_path(folder, Split::kTest), read);
  return data;
}

// Accuracy of the most frequent label of train within each group of expressions; group(tokens) is in 0..15.
template <typename Group>
double majority_accuracy(const ListOpsDataset& dataset, Split split, Group group) {
  const ListOpsExamples& train = dataset.examples(Split::kTrain);
  std::array<std::array<int64_t, 10>, kListOpsTokens> count{};
  for (int64_t i = 0; i < train.size(); ++i) {
    ++count[group(train.tokens(i))][static_cast<size_t>(train.label(i))];
  }
  const ListOpsExamples& scored = dataset.examples(split);
  TORCH_CHECK_VALUE(scored.size() > 0, "listops baseline: expected examples in split ", to_string(split),
                    "; found none");
  int64_t right = 0;
  for (int64_t i = 0; i < scored.size(); ++i) {
    const auto& labels = count[group(scored.tokens(i))];
    right += std::max_element(labels.begin(), labels.end()) - labels.begin() == scored.label(i);
  }
  return static_cast<double>(right) / static_cast<double>(scored.size());
}

}  // namespace

ListOpsDataset::ListOpsDataset(const std::string& folder, const ListOpsDatasetOptions& options)
    : ListOpsDataset(read_folder(folder, options), options) {}

ListOpsDataset::ListOpsDataset(ListOpsData data, const ListOpsDatasetOptions& options)
    : data_(std::move(data)), options_(options) {
  TORCH_CHECK_VALUE(options.max_length >= 1 && options.pad_to >= options.max_length,
                    "listops: expected 1 <= max_length <= pad_to; got max_length ", options.max_length,
                    " and pad_to ", options.pad_to);
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    for (int64_t i = 0; i < size(split); ++i) {
      TORCH_CHECK_VALUE(static_cast<int64_t>(examples(split).tokens(i).size()) <= options.max_length,
                        "listops: expected at most ", options.max_length, " tokens; found ",
                        examples(split).tokens(i).size(), " in example ", i, " of split ", to_string(split),
                        "; raise max_length");
    }
  }
}

const ListOpsExamples& ListOpsDataset::examples(Split split) const {
  switch (split) {
    case Split::kTrain:
      return data_.train;
    case Split::kValidation:
      return data_.validation;
    case Split::kTest:
      return data_.test;
  }
  TORCH_INTERNAL_ASSERT(false);
}

TokenView ListOpsDataset::token_view() const {
  TokenView view;
  for (uint8_t token = 0; token < kListOpsTokens; ++token) view.names.emplace_back(listops_token_name(token));
  return view;
}

int64_t ListOpsDataset::length(Split split, int64_t index) const {
  return options_.fixed_length ? options_.pad_to : static_cast<int64_t>(examples(split).tokens(index).size());
}

Batch ListOpsDataset::batch(Split split, std::span<const int64_t> indices) const {
  check_indices(*this, split, indices);
  const ListOpsExamples& source = examples(split);
  const auto items = static_cast<int64_t>(indices.size());
  int64_t longest = 1;
  for (const int64_t index : indices) {
    longest = std::max(longest, static_cast<int64_t>(source.tokens(index).size()));
  }
  const int64_t length =
      options_.fixed_length ? options_.pad_to : std::min(padded_length(longest), options_.pad_to);

  const at::Tensor tokens = at::zeros({items, length}, at::kLong);
  const at::Tensor labels = at::empty({items}, at::kLong);
  auto* row = tokens.mutable_data_ptr<int64_t>();
  auto* label = labels.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    std::ranges::copy(source.tokens(index), row);
    *label++ = source.label(index);
    row += length;
  }
  return {.towers = {{.tokens = tokens, .mask = tokens.ne(0)}},
          .labels = labels,
          .trim_multiple = options_.fixed_length ? 0 : kPadMultiple};
}

std::vector<Baseline> ListOpsDataset::baselines(Split split) const {
  return {{"first token only", first_token_baseline(*this, split)},
          {"most frequent label of train", prior_baseline(*this, split)}};
}

double prior_baseline(const ListOpsDataset& dataset, Split split) {
  return majority_accuracy(dataset, split, [](auto) { return size_t{0}; });
}

double first_token_baseline(const ListOpsDataset& dataset, Split split) {
  return majority_accuracy(dataset, split, [](std::span<const uint8_t> tokens) { return size_t{tokens[0]}; });
}

}  // namespace edgewise::data
