#include <edgewise/data/dataset.h>

#include <c10/util/Exception.h>

namespace edgewise::data {

Split parse_split(std::string_view name) {
  if (name == "train") return Split::kTrain;
  if (name == "validation") return Split::kValidation;
  if (name == "test") return Split::kTest;
  TORCH_CHECK_VALUE(false, "split: expected train, validation or test; got '", name, "'");
}

std::string_view to_string(Split split) {
  switch (split) {
    case Split::kTrain:
      return "train";
    case Split::kValidation:
      return "validation";
    case Split::kTest:
      return "test";
  }
  TORCH_INTERNAL_ASSERT(false);
}

const std::vector<uint8_t>& Dataset::bytes() const {
  static const std::vector<uint8_t> none;
  return none;
}

TokenView Dataset::token_view() const {
  TokenView view;
  for (const uint8_t byte : bytes()) view.names.push_back(byte_name(byte));
  return view;
}

std::string byte_name(uint8_t byte) {
  if (byte >= 0x20 && byte < 0x7F) return {static_cast<char>(byte)};
  if (byte == '\n') return "\\n";
  if (byte == '\t') return "\\t";
  constexpr const char* kDigits = "0123456789ABCDEF";
  return std::string("\\x") + kDigits[byte >> 4] + kDigits[byte & 15];
}

at::Tensor Dataset::right_edges(const Batch&) const {
  return {};
}

}  // namespace edgewise::data
