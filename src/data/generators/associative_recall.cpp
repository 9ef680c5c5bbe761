// The associative-recall generator: one Philox stream per (seed, split, index).
#include <edgewise/data/associative_recall.h>

#include <numeric>
#include <utility>

#include <ATen/Functions.h>

#include "data/check_indices.h"
#include "data/generators/uniform_below.h"
#include "kernels/philox.h"

namespace edgewise::data {

AssociativeRecall::AssociativeRecall(const AssociativeRecallOptions& options) : options_(options) {
  TORCH_CHECK_VALUE(options.length >= 2 && options.length % 2 == 0,
                    "associative_recall: expected an even length of at least 2; got ", options.length);
  if (options_.keys == 0) options_.keys = options.length / 2;
  TORCH_CHECK_VALUE(options_.keys >= options.length / 2 && options.values >= 1,
                    "associative_recall: expected at least length / 2 = ", options.length / 2,
                    " keys and at least 1 value; got ", options_.keys, " and ", options.values);
  TORCH_CHECK_VALUE(options.train_size >= 1 && options.validation_size >= 1 && options.test_size >= 1,
                    "associative_recall: expected every split to have at least 1 example; got train_size ",
                    options.train_size, ", validation_size ", options.validation_size, ", test_size ",
                    options.test_size);
}

int64_t AssociativeRecall::size(Split split) const {
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

Batch AssociativeRecall::batch(Split split, std::span<const int64_t> indices) const {
  check_indices(*this, split, indices);
  const auto items = static_cast<int64_t>(indices.size());
  const int64_t length = options_.length, facts = length / 2, values = options_.values;
  const at::Tensor tokens = at::empty({items, length}, at::kLong);
  const at::Tensor labels = at::empty({items, length}, at::kLong);
  auto* token = tokens.mutable_data_ptr<int64_t>();
  auto* label = labels.mutable_data_ptr<int64_t>();
  std::vector<int64_t> keys(static_cast<size_t>(options_.keys));
  for (const int64_t index : indices) {
    const uint64_t key = kernels::stream_key(options_.seed, 0, static_cast<uint32_t>(split), index, 0,
                                             kernels::Purpose::kData);
    kernels::RowStream stream(key, 0);
    const auto below = [&](int64_t bound) {
      return static_cast<int64_t>(uniform_below(stream, static_cast<uint64_t>(bound)));
    };
    std::iota(keys.begin(), keys.end(), 0);
    for (int64_t i = 0; i < facts; ++i) {  // the first draws of a shuffle
      std::swap(keys[static_cast<size_t>(i)], keys[static_cast<size_t>(i + below(options_.keys - i))]);
      token[i] = 1 + keys[static_cast<size_t>(i)] * values + below(values);
      label[i] = -1;
    }
    for (int64_t i = facts; i < length; ++i) {
      const int64_t fact = token[below(facts)] - 1;
      token[i] = 1 + options_.keys * values + fact / values;
      label[i] = fact % values;
    }
    token += length;
    label += length;
  }
  return {.towers = {{.tokens = tokens, .mask = at::ones({items, length}, at::kBool)}}, .labels = labels};
}

at::Tensor AssociativeRecall::right_edges(const Batch& batch) const {
  const at::Tensor& tokens = batch.towers.at(0).tokens;
  const int64_t first_question = 1 + options_.keys * options_.values;
  const at::Tensor is_fact = tokens.ge(1).logical_and(tokens.lt(first_question));
  const at::Tensor is_question = tokens.ge(first_question);
  // -1 and -2 for tokens that are neither: they match nothing.
  const at::Tensor asked = at::where(is_question, tokens.sub(first_question), at::full_like(tokens, -1));
  const at::Tensor told =
      at::where(is_fact, tokens.sub(1).div(options_.values, "floor"), at::full_like(tokens, -2));
  return asked.unsqueeze(2).eq(told.unsqueeze(1));
}

}  // namespace edgewise::data
