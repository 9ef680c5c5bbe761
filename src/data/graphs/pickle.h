// A reader of Python's pickles, of what numpy and scipy write into them. Nothing is executed: a call of a
// Python class becomes a value that names it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace edgewise::data {

// The values of a pickle belong to it, as they may hold each other in circles and to any depth.
struct PickleValue;
using PicklePtr = PickleValue*;

struct PickleValue {
  enum class Kind { kNone, kNumber, kReal, kBytes, kList, kDict, kClass, kObject };
  Kind kind = Kind::kNone;
  int64_t number = 0;                                    // kNumber, with booleans
  double real = 0;                                       // kReal
  std::string bytes;                                     // kBytes; kClass: "module name"
  std::vector<PicklePtr> items;                          // kList, with tuples; kObject: its class, arguments
  std::vector<std::pair<PicklePtr, PicklePtr>> entries;  // kDict, and what is set in an object
  PicklePtr state = nullptr;                             // kObject: what BUILD gave it

  // The value of a key; throws where there is none.
  const PickleValue& at(std::string_view key, const std::string& origin) const;
};

// `origin` stands for the file in messages. All values live as long as what is returned.
std::shared_ptr<const PickleValue> read_pickle(std::span<const uint8_t> bytes, const std::string& origin);

// A numpy array of at most two dimensions, in fp64.
struct PickledArray {
  std::vector<int64_t> shape;
  std::vector<double> values;
};
PickledArray pickled_array(const PickleValue& value, const std::string& origin);

// A matrix in scipy's form of compressed rows.
struct PickledMatrix {
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> offsets;  // [rows + 1]
  std::vector<int64_t> indices;
  std::vector<double> values;
};
PickledMatrix pickled_matrix(const PickleValue& value, const std::string& origin);

}  // namespace edgewise::data
