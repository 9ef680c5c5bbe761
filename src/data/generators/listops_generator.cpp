// The ListOps generator. Every attempt has a Philox stream of its own, so attempts can run on any number of
// threads; the trees are then kept in the order of attempts.
#include <algorithm>
#include <future>
#include <string_view>
#include <unordered_map>

#include <c10/util/Exception.h>

#include <edgewise/data/listops.h>

#include "data/generators/uniform_below.h"
#include "kernels/philox.h"

namespace edgewise::data {

namespace {

using Tokens = std::vector<uint8_t>;
constexpr int64_t kAttemptsPerBlock = 4096;
constexpr uint32_t kStreamLayer = 16;  // apart from the splits of other generated datasets

// Appends one random tree. Stops early, with false, once the whole is too long to be kept.
bool draw_tree(const ListOpsOptions& options, kernels::RowStream& stream, int64_t depth, Tokens& tokens) {
  const bool is_leaf = depth >= options.max_depth || stream.next_uniform() > options.operator_probability;
  if (is_leaf) {
    tokens.push_back(static_cast<uint8_t>(kListOpsDigit + uniform_below(stream, 10)));
  } else {
    const size_t place = tokens.size();
    tokens.push_back(0);  // the operator is drawn after its arguments
    const uint64_t arguments = 2 + uniform_below(stream, static_cast<uint64_t>(options.max_arguments - 1));
    for (uint64_t i = 0; i < arguments; ++i) {
      if (!draw_tree(options, stream, depth + 1, tokens)) return false;
    }
    tokens[place] = static_cast<uint8_t>(kListOpsMin + uniform_below(stream, 4));
    tokens.push_back(kListOpsEnd);
  }
  return static_cast<int64_t>(tokens.size()) < options.max_length;
}

// What a run of attempts gave.
struct Block {
  ListOpsExamples examples;
  std::vector<int64_t> attempts;  // of the examples
  std::vector<int64_t> too_long;
};

Block draw_block(const ListOpsOptions& options, int64_t first) {
  Block block;
  Tokens tokens;
  for (int64_t attempt = first; attempt < first + kAttemptsPerBlock; ++attempt) {
    const uint64_t key =
        kernels::stream_key(options.seed, 0, kStreamLayer, attempt, 0, kernels::Purpose::kData);
    kernels::RowStream stream(key, 0);
    tokens.clear();
    if (!draw_tree(options, stream, 1, tokens)) {
      block.too_long.push_back(attempt);
    } else if (static_cast<int64_t>(tokens.size()) > options.min_length) {
      block.examples.add(tokens, evaluate_listops(tokens).value);
      block.attempts.push_back(attempt);
    }
  }
  return block;
}

void check_options(const ListOpsOptions& options) {
  TORCH_CHECK_VALUE(options.train_size >= 0 && options.validation_size >= 0 && options.test_size >= 0,
                    "generate_listops: expected sizes of at least 0; got ", options.train_size, ", ",
                    options.validation_size, ", ", options.test_size);
  TORCH_CHECK_VALUE(
      options.min_length >= 0 && options.max_length > options.min_length + 1,
      "generate_listops: expected 0 <= min_length and max_length > min_length + 1 (both are exclusive); got ",
      options.min_length, " and ", options.max_length);
  TORCH_CHECK_VALUE(options.max_depth >= 1 && options.max_depth <= 100,
                    "generate_listops: expected max_depth in 1..100; got ", options.max_depth);
  TORCH_CHECK_VALUE(options.max_arguments >= 2,
                    "generate_listops: expected max_arguments of at least 2; got ", options.max_arguments);
  TORCH_CHECK_VALUE(options.operator_probability >= 0 && options.operator_probability <= 1,
                    "generate_listops: expected operator_probability in [0, 1]; got ",
                    options.operator_probability);
  TORCH_CHECK_VALUE(options.jobs >= 1, "generate_listops: expected jobs of at least 1; got ", options.jobs);
}

std::string_view as_text(std::span<const uint8_t> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size()};
}

// Keeps distinct trees and deals them to the splits.
class Collector {
 public:
  explicit Collector(const ListOpsOptions& options)
      : train_end_(options.train_size),
        validation_end_(train_end_ + options.validation_size),
        wanted_(validation_end_ + options.test_size) {}

  int64_t wanted() const { return wanted_; }
  int64_t kept() const { return kept_; }

  void add(std::span<const uint8_t> tokens, int64_t label) {
    const size_t hash = std::hash<std::string_view>{}(as_text(tokens));
    const auto [first, last] = seen_.equal_range(hash);
    const bool is_known = std::any_of(first, last, [&](const auto& entry) {
      return std::ranges::equal(split_of(entry.second).tokens(index_in_split(entry.second)), tokens);
    });
    if (is_known) return;
    seen_.emplace(hash, kept_);
    split_of(kept_).add(tokens, label);
    ++kept_;
  }

  ListOpsData data;

 private:
  ListOpsExamples& split_of(int64_t number) {
    if (number < train_end_) return data.train;
    return number < validation_end_ ? data.validation : data.test;
  }
  int64_t index_in_split(int64_t number) const {
    if (number < train_end_) return number;
    return number - (number < validation_end_ ? train_end_ : validation_end_);
  }

  int64_t train_end_, validation_end_, wanted_;
  int64_t kept_ = 0;
  std::unordered_multimap<size_t, int64_t> seen_;  // hash of a kept tree -> its number
};

}  // namespace

ListOpsData generate_listops(const ListOpsOptions& options,
                             const std::function<void(int64_t kept, int64_t wanted)>& progress) {
  check_options(options);
  Collector collector(options);
  ListOpsData& data = collector.data;
  for (int64_t first = 0; collector.kept() < collector.wanted();) {
    std::vector<std::future<Block>> blocks;
    for (int64_t job = 0; job < options.jobs; ++job, first += kAttemptsPerBlock) {
      blocks.push_back(std::async(std::launch::async, draw_block, std::cref(options), first));
    }
    for (auto& future : blocks) {
      const Block block = future.get();
      for (int64_t i = 0; i < block.examples.size() && collector.kept() < collector.wanted(); ++i) {
        collector.add(block.examples.tokens(i), block.examples.label(i));
        data.attempts = block.attempts[static_cast<size_t>(i)] + 1;
      }
      const bool is_full = collector.kept() == collector.wanted();
      data.too_long += std::count_if(block.too_long.begin(), block.too_long.end(),
                                     [&](int64_t attempt) { return !is_full || attempt < data.attempts; });
      if (is_full) break;
    }
    if (progress) progress(collector.kept(), collector.wanted());
    TORCH_CHECK_VALUE(first < 1000 * (collector.kept() + 1000), "generate_listops: expected ",
                      collector.wanted(), " distinct trees; found ", collector.kept(), " in ", first,
                      " attempts; widen min_length and max_length, or ask for fewer");
  }
  return std::move(data);
}

}  // namespace edgewise::data
