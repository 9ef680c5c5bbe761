// The generator of multi-query associative recall: one Philox stream per (seed, split, index).
#include <edgewise/data/multi_query_recall.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <ATen/Functions.h>

#include "data/check_indices.h"
#include "data/generators/split_sizes.h"
#include "data/generators/uniform_below.h"
#include "kernels/philox.h"

namespace edgewise::data {
namespace {

// The first `count` of a race in which gap g arrives at an exponential time of rate g^(power - 1): drawn
// without replacement, each with probability proportional to its rate among those that are left.
std::vector<int64_t> draw_gaps(kernels::RowStream& stream, int64_t slots, int64_t count, double power) {
  std::vector<std::pair<double, int64_t>> arrivals;
  arrivals.reserve(static_cast<size_t>(slots));
  for (int64_t slot = 0; slot < slots; ++slot) {
    const double uniform = (static_cast<double>(stream.next32()) + 0.5) / 4294967296.0;
    const double rate = std::pow(static_cast<double>(slot + 1), power - 1);
    arrivals.emplace_back(-std::log(uniform) / rate, slot);
  }
  std::partial_sort(arrivals.begin(), arrivals.begin() + count, arrivals.end());
  std::vector<int64_t> gaps;
  for (int64_t i = 0; i < count; ++i) gaps.push_back(arrivals[static_cast<size_t>(i)].second);
  return gaps;
}

}  // namespace

MultiQueryRecall::MultiQueryRecall(const MultiQueryRecallOptions& options) : options_(options) {
  TORCH_CHECK_VALUE(options.pairs >= 1 && options.length >= 4 * options.pairs,
                    "multi_query_recall: expected at least 1 pair and a length of at least 4 times their "
                    "number, two tokens a pair and two a question; got length ",
                    options.length, " and pairs ", options.pairs);
  TORCH_CHECK_VALUE(first_value() - 1 >= options.pairs,
                    "multi_query_recall: expected a vocabulary of at least 2 * pairs + 2 = ",
                    2 * options.pairs + 2, ", of which the lower half are keys; got ", options.vocabulary);
  TORCH_CHECK_VALUE(options.power > 0 && options.power <= 1,
                    "multi_query_recall: expected a power in (0, 1], with 1 all gaps alike; got ",
                    options.power);
  check_split_sizes("multi_query_recall", options);
}

int64_t MultiQueryRecall::size(Split split) const {
  return split_size(options_, split);
}

std::vector<Baseline> MultiQueryRecall::baselines(Split) const {
  return {{"a guess among the values of the sequence", 1 / static_cast<double>(options_.pairs)}};
}

Batch MultiQueryRecall::batch(Split split, std::span<const int64_t> indices) const {
  check_indices(*this, split, indices);
  const auto items = static_cast<int64_t>(indices.size());
  const int64_t length = options_.length, pairs = options_.pairs,
                values = options_.vocabulary - first_value();
  const at::Tensor tokens = at::empty({items, length}, at::kLong);
  const at::Tensor labels = at::empty({items, pairs}, at::kLong),
                   places = at::empty({items, pairs}, at::kLong);
  auto* token = tokens.mutable_data_ptr<int64_t>();
  auto* label = labels.mutable_data_ptr<int64_t>();
  auto* place = places.mutable_data_ptr<int64_t>();
  std::vector<int64_t> keys(static_cast<size_t>(first_value() - 1));
  for (const int64_t index : indices) {
    const uint64_t key = kernels::stream_key(options_.seed, 0, static_cast<uint32_t>(split), index, 0,
                                             kernels::Purpose::kData);
    kernels::RowStream stream(key, 0);
    const auto below = [&](int64_t bound) {
      return static_cast<int64_t>(uniform_below(stream, static_cast<uint64_t>(bound)));
    };
    std::iota(keys.begin(), keys.end(), 1);
    for (int64_t i = 0; i < pairs; ++i) {  // the first draws of a shuffle
      std::swap(keys[static_cast<size_t>(i)],
                keys[static_cast<size_t>(i + below(static_cast<int64_t>(keys.size()) - i))]);
      token[2 * i] = keys[static_cast<size_t>(i)];
      token[2 * i + 1] = first_value() + below(values);
    }
    for (int64_t i = 2 * pairs; i < length; ++i) token[i] = first_value() + below(values);
    const std::vector<int64_t> gaps = draw_gaps(stream, (length - 2 * pairs) / 2, pairs, options_.power);
    // The race's winners are the soonest; who asks first must not be who was told first.
    std::vector<int64_t> asked(static_cast<size_t>(pairs));
    std::iota(asked.begin(), asked.end(), 0);
    for (int64_t i = 0; i < pairs; ++i) {
      std::swap(asked[static_cast<size_t>(i)], asked[static_cast<size_t>(i + below(pairs - i))]);
      const int64_t pair = asked[static_cast<size_t>(i)];
      place[i] = 2 * pairs + 2 * gaps[static_cast<size_t>(i)];
      token[place[i]] = token[2 * pair];
      label[i] = token[2 * pair + 1];
    }
    token += length;
    label += pairs;
    place += pairs;
  }
  return {.towers = {{.tokens = tokens}}, .labels = labels, .more = {{"places", places}}};
}

}  // namespace edgewise::data
