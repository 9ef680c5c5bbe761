// ListOps tokens and evaluation.
#include <edgewise/data/listops.h>

#include <array>

#include <c10/util/Exception.h>

namespace edgewise::data {

namespace {

// An operator that still waits for its closing token. Its arguments are digits, so ten counts say everything.
struct OpenOperator {
  uint8_t token;
  int64_t arguments = 0;
  std::array<int64_t, 10> count{};

  void add(int64_t digit) {
    ++arguments;
    ++count[static_cast<size_t>(digit)];
  }

  // The argument at `rank` (from 0) in ascending order.
  int64_t ranked(int64_t rank) const {
    int64_t digit = 0;
    for (; rank >= count[static_cast<size_t>(digit)]; ++digit) rank -= count[static_cast<size_t>(digit)];
    return digit;
  }

  int64_t value() const {
    switch (token) {
      case kListOpsMin:
        return ranked(0);
      case kListOpsMax:
        return ranked(arguments - 1);
      case kListOpsMed:  // an even count gives the mean of the middle two, truncated
        return (ranked((arguments - 1) / 2) + ranked(arguments / 2)) / 2;
      default: {
        int64_t sum = 0;
        for (int64_t digit = 0; digit < 10; ++digit) sum += digit * count[static_cast<size_t>(digit)];
        return sum % 10;
      }
    }
  }
};

}  // namespace

std::string_view listops_token_name(uint8_t token) {
  static constexpr std::array<std::string_view, kListOpsTokens> kNames = {
      "(padding)", "[MIN", "[MAX", "[MED", "[SM", "X", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  TORCH_CHECK_INDEX(token < kNames.size(), "listops_token_name: expected an id in 0..15; got ", int{token});
  return kNames[token];
}

std::span<const uint8_t> ListOpsExamples::tokens(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const int64_t first = index == 0 ? 0 : ends_[i - 1];
  return std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(ends_[i] - first));
}

void ListOpsExamples::add(std::span<const uint8_t> tokens, int64_t label) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(static_cast<int64_t>(tokens_.size()));
  labels_.push_back(static_cast<uint8_t>(label));
}

ListOpsValue evaluate_listops(std::span<const uint8_t> tokens) {
  std::vector<OpenOperator> open;
  int64_t value = -1;  // of the last complete expression
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto position = static_cast<int64_t>(i);
    const uint8_t token = tokens[i];
    if (open.empty() && i > 0) return {-1, "the expression is complete but more tokens follow", position};
    if (token >= kListOpsMin && token <= kListOpsSm) {
      open.push_back({token});
      continue;
    }
    if (token == kListOpsEnd) {
      if (open.empty()) return {-1, "a closing token without an operator", position};
      if (open.back().arguments == 0) return {-1, "an operator without arguments", position};
      value = open.back().value();
      open.pop_back();
    } else if (token >= kListOpsDigit && token < kListOpsTokens) {
      value = token - kListOpsDigit;
    } else {
      return {-1, "token id " + std::to_string(token) + " is not a ListOps token", position};
    }
    if (!open.empty()) open.back().add(value);
  }
  const auto length = static_cast<int64_t>(tokens.size());
  if (tokens.empty()) return {-1, "the expression is empty", 0};
  if (!open.empty()) return {-1, std::to_string(open.size()) + " operators are never closed", length};
  return {value, "", 0};
}

}  // namespace edgewise::data
