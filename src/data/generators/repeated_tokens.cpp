// The repeated-tokens generator: one Philox stream per (seed, split, index).
#include <edgewise/data/repeated_tokens.h>

#include <algorithm>
#include <cmath>

#include <ATen/Functions.h>

#include "data/check_indices.h"
#include "data/generators/uniform_below.h"
#include "kernels/philox.h"

namespace edgewise::data {

RepeatedTokens::RepeatedTokens(const RepeatedTokensOptions& options) : options_(options) {
  TORCH_CHECK_VALUE(options.length >= 1, "repeated_tokens: expected a length of at least 1; got ",
                    options.length);
  TORCH_CHECK_VALUE(options.train_size >= 1 && options.validation_size >= 1 && options.test_size >= 1,
                    "repeated_tokens: expected every split to have at least 1 example; got train_size ",
                    options.train_size, ", validation_size ", options.validation_size, ", test_size ",
                    options.test_size);
}

int64_t RepeatedTokens::size(Split split) const {
  switch (split) {
    case Split::kTrain:
      return options_.train_size;
    case Split::kValidation:
      return options_.validation_size;
    case Split::kTest:
      return options_.test_size;
  }
  TORCH_INTERNAL_ASSERT(false);
}

Batch RepeatedTokens::batch(Split split, std::span<const int64_t> indices) const {
  check_indices(*this, split, indices);
  const auto items = static_cast<int64_t>(indices.size());
  const int64_t length = options_.length;
  const at::Tensor tokens = at::empty({items, length}, at::kLong);
  const at::Tensor labels = at::empty({items, length}, at::kLong);
  auto* token = tokens.mutable_data_ptr<int64_t>();
  auto* label = labels.mutable_data_ptr<int64_t>();

  std::vector<int64_t> count(static_cast<size_t>(vocabulary()));
  for (const int64_t index : indices) {
    const uint64_t key = kernels::stream_key(options_.seed, 0, static_cast<uint32_t>(split), index, 0,
                                             kernels::Purpose::kData);
    kernels::RowStream stream(key, 0);
    std::fill(count.begin(), count.end(), 0);
    for (int64_t i = 0; i < length; ++i) {
      token[i] = 1 + static_cast<int64_t>(uniform_below(stream, static_cast<uint64_t>(length)));
      ++count[static_cast<size_t>(token[i])];
    }
    for (int64_t i = 0; i < length; ++i) label[i] = count[static_cast<size_t>(token[i])] > 1;
    token += length;
    label += length;
  }
  return {.towers = {{.tokens = tokens, .mask = at::ones({items, length}, at::kBool)}}, .labels = labels};
}

at::Tensor RepeatedTokens::right_edges(const Batch& batch) const {
  const at::Tensor& tokens = batch.towers.at(0).tokens;
  const at::Tensor itself = at::eye(tokens.size(1), tokens.options().dtype(at::kBool));
  return tokens.unsqueeze(2).eq(tokens.unsqueeze(1)).logical_and(itself.logical_not());
}

double RepeatedTokens::majority_accuracy() const {
  const auto n = static_cast<double>(options_.length);
  const double repeated = 1 - std::pow(1 - 1 / n, n - 1);
  return std::max(repeated, 1 - repeated);
}

}  // namespace edgewise::data
