#include "data/readers/cifar_pickle.h"

#include <c10/util/Exception.h>

#include "data/readers/compressed.h"
#include "data/readers/pickle.h"

namespace edgewise::data {

CifarPickle read_cifar_pickle(const std::filesystem::path& path) {
  constexpr int64_t kColourBytes = 3072;
  const std::string name = path.string();
  const PicklePtr root = read_pickle(read_plain_or_xz(path), name);
  const PickleValue* data = root->find("data");
  const PickleValue* labels = root->find("labels");
  TORCH_CHECK_VALUE(
      data != nullptr && data->kind == PickleKind::kArray && labels != nullptr &&
          labels->kind == PickleKind::kList,
      name, ": expected a pickled dict with an array 'data' and a list 'labels'; found no such thing");
  const auto count = static_cast<int64_t>(labels->items.size());
  TORCH_CHECK_VALUE(data->dtype == "u1" && data->shape == (std::vector<int64_t>{count, kColourBytes}) &&
                        static_cast<int64_t>(data->text.size()) == count * kColourBytes,
                    name, ": expected data of dtype u1 and shape [", count, ", ", kColourBytes, "] for ",
                    count, " labels; found dtype ", data->dtype, ", ", data->shape.size(), " dimensions, ",
                    data->text.size(), " bytes");
  CifarPickle result;
  result.data.assign(data->text.begin(), data->text.end());
  for (const PicklePtr& label : labels->items) {
    TORCH_CHECK_VALUE(label->kind == PickleKind::kNumber && label->number >= 0 && label->number < 10, name,
                      ": expected labels in 0..9; found ", label->number, " as number ",
                      result.labels.size());
    result.labels.push_back(label->number);
  }
  return result;
}

}  // namespace edgewise::data
