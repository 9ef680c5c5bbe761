// ListOps (Nangia and Bowman 2018, as in Long Range Arena): nested MIN, MAX, MED and SM (sum modulo 10) over
// digits, and the value of the whole as label. This file: the tokens, evaluation, and the generator of random
// trees.
//
// An expression is its token sequence, e.g. [MIN 2 [SM 5 5 X 4 X; the sequence is the tree.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

// Token ids, fixed here for good (Long Range Arena numbers them in arbitrary order on every run). 0 is
// padding.
enum ListOpsToken : uint8_t {
  kListOpsMin = 1,
  kListOpsMax = 2,
  kListOpsMed = 3,
  kListOpsSm = 4,
  kListOpsEnd = 5,    // written X, and ] in files
  kListOpsDigit = 6,  // digit d has id 6 + d, up to 15
};
inline constexpr int64_t kListOpsTokens = 16;        // padding included
std::string_view listops_token_name(uint8_t token);  // "[MIN", "[MAX", "[MED", "[SM", "X", "0".."9"

// Expressions and labels, one byte per token.
class ListOpsExamples {
 public:
  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  std::span<const uint8_t> tokens(int64_t index) const;
  int64_t label(int64_t index) const { return labels_[static_cast<size_t>(index)]; }
  void add(std::span<const uint8_t> tokens, int64_t label);

 private:
  std::vector<uint8_t> tokens_;
  std::vector<int64_t> ends_;  // where each expression ends in tokens_
  std::vector<uint8_t> labels_;
};

// The value of an expression, or what is wrong with it and at which token.
struct ListOpsValue {
  int64_t value = -1;
  std::string problem;  // empty = well formed
  int64_t position = 0;
};
ListOpsValue evaluate_listops(std::span<const uint8_t> tokens);

struct ListOpsOptions {
  int64_t train_size = 96'000;
  int64_t validation_size = 2'000;
  int64_t test_size = 2'000;
  int64_t min_length = 500;  // kept: min_length < length < max_length
  int64_t max_length = 2000;
  int64_t max_depth = 10;
  int64_t max_arguments = 10;
  double operator_probability = 0.25;
  uint64_t seed = 0;
  int64_t jobs = 1;  // threads; changes the speed, never the result
};

struct ListOpsData {
  ListOpsExamples train, validation, test;
  int64_t attempts = 0;  // trees drawn, up to the last one kept
  int64_t too_long = 0;  // of these, rejected for max_length
};

// Distinct random trees in the order of attempts: train first, then validation, then test. Attempt a is a
// function of (seed, a) only. `progress`, when given, hears the number of trees kept so far and the number
// wanted.
ListOpsData generate_listops(const ListOpsOptions& options = {},
                             const std::function<void(int64_t kept, int64_t wanted)>& progress = {});

}  // namespace edgewise::data
