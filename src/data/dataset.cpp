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

at::Tensor Dataset::right_edges(const Batch&) const {
  return {};
}

}  // namespace edgewise::data
