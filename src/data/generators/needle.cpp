// The generator of needle retrieval: one Philox stream per (seed, split, index).
#include <edgewise/data/needle.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/Functions.h>

#include "data/check_indices.h"
#include "data/generators/split_sizes.h"
#include "data/generators/uniform_below.h"
#include "kernels/philox.h"

namespace edgewise::data {

Needle::Needle(const NeedleOptions& options) : options_(options) {
  TORCH_CHECK_VALUE(options.pairs >= 1 && options.length >= 2 * options.pairs + 1,
                    "needle: expected at least 1 pair and a length of at least twice their number and 1; got "
                    "length ",
                    options.length, " and pairs ", options.pairs);
  TORCH_CHECK_VALUE(options.vocabulary >= 8 && options.vocabulary / 4 >= options.pairs,
                    "needle: expected a vocabulary of at least 8 and of 4 tokens a pair, a quarter being "
                    "keys; got ",
                    options.vocabulary, " with pairs ", options.pairs);
  check_split_sizes("needle", options);
}

int64_t Needle::size(Split split) const {
  return split_size(options_, split);
}

std::vector<Baseline> Needle::baselines(Split) const {
  return {{"a guess", 1 / static_cast<double>(classes())}};
}

Batch Needle::batch(Split split, std::span<const int64_t> indices) const {
  check_indices(*this, split, indices);
  const auto items = static_cast<int64_t>(indices.size());
  const int64_t length = options_.length, pairs = options_.pairs, kinds = options_.vocabulary / 4;
  const int64_t first_value = 1 + kinds, first_noise = 1 + 2 * kinds;  // keys from 1
  const at::Tensor tokens = at::empty({items, length}, at::kLong);
  const at::Tensor labels = at::empty({items, 1}, at::kLong);
  auto* token = tokens.mutable_data_ptr<int64_t>();
  auto* label = labels.mutable_data_ptr<int64_t>();
  std::vector<int64_t> keys(static_cast<size_t>(kinds));
  for (const int64_t index : indices) {
    const uint64_t key = kernels::stream_key(options_.seed, 0, static_cast<uint32_t>(split), index, 0,
                                             kernels::Purpose::kData);
    kernels::RowStream stream(key, 0);
    const auto below = [&](int64_t bound) {
      return static_cast<int64_t>(uniform_below(stream, static_cast<uint64_t>(bound)));
    };
    for (int64_t i = 0; i < length; ++i) token[i] = first_noise + below(options_.vocabulary - first_noise);
    // Needles of two tokens at distinct places: those of one token in a text that is shorter by their number.
    std::vector<int64_t> places;
    while (static_cast<int64_t>(places.size()) < pairs) {
      const int64_t place = below(length - 1 - pairs);
      if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
    }
    std::sort(places.begin(), places.end());
    std::iota(keys.begin(), keys.end(), 1);
    const int64_t asked = below(pairs);
    for (int64_t i = 0; i < pairs; ++i) {
      std::swap(keys[static_cast<size_t>(i)], keys[static_cast<size_t>(i + below(kinds - i))]);
      const int64_t place = places[static_cast<size_t>(i)] + i, value = below(kinds);
      token[place] = keys[static_cast<size_t>(i)];
      token[place + 1] = first_value + value;
      if (i != asked) continue;
      token[length - 1] = token[place];
      *label++ = value;
    }
    token += length;
  }
  return {.towers = {{.tokens = tokens}},
          .labels = labels,
          .more = {{"places", at::full({items, 1}, length - 1, at::kLong)}}};
}

}  // namespace edgewise::data
