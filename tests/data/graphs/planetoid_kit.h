// Pickles as Python 2 writes them, for small graphs in Planetoid's layout.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace edgewise::data {

template <typename Number>
std::string raw(const std::vector<Number>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Number)};
}
inline std::string number(int64_t value) {  // BININT
  return "J" + raw(std::vector<int32_t>{static_cast<int32_t>(value)});
}
inline std::string text(const std::string& value) {  // BINSTRING
  return "T" + raw(std::vector<int32_t>{static_cast<int32_t>(value.size())}) + value;
}

// numpy.ndarray of `dtype`, such as "f4".
inline std::string array(const std::vector<int64_t>& shape, const std::string& dtype,
                         const std::string& bytes) {
  std::string sizes = "(";
  for (const int64_t size : shape) sizes += number(size);
  const std::string zero = std::string("K") + '\0';
  return "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + zero + "tU\x01" + "btR" + "(K\x01" +
         sizes + "tcnumpy\ndtype\n(" + text(dtype) + zero + "K\x01tR(K\x03" + text("<") + "NNN" + number(-1) +
         number(-1) + zero + "tb\x89" + text(bytes) + "tb";
}

struct SmallMatrix {
  int64_t columns;
  std::vector<std::map<int, float>> rows;
};
inline std::string matrix(const SmallMatrix& given) {
  std::vector<int32_t> offsets = {0}, indices;
  std::vector<float> values;
  for (const auto& row : given.rows) {
    for (const auto& [column, value] : row) indices.push_back(column), values.push_back(value);
    offsets.push_back(static_cast<int32_t>(indices.size()));
  }
  const auto count = static_cast<int64_t>(indices.size());
  return "\x80\x02"
         "cscipy.sparse.csr\ncsr_matrix\n)\x81}(" +
         text("_shape") + number(static_cast<int64_t>(given.rows.size())) + number(given.columns) + "\x86" +
         text("indptr") + array({static_cast<int64_t>(offsets.size())}, "i4", raw(offsets)) +
         text("indices") + array({count}, "i4", raw(indices)) + text("data") +
         array({count}, "f4", raw(values)) + "ub.";
}
// One-hot rows; a class of -1 has none.
inline std::string one_hot(const std::vector<int>& classes, int64_t count) {
  std::vector<int32_t> values;
  for (const int each : classes)
    for (int64_t n = 0; n < count; ++n) values.push_back(n == each);
  return "\x80\x02" + array({static_cast<int64_t>(classes.size()), count}, "i4", raw(values)) + ".";
}
inline std::string neighbours(const std::map<int, std::vector<int>>& lists) {
  std::string all =
      "\x80\x02"
      "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(";
  for (const auto& [node, list] : lists) {
    all += number(node) + "](";
    for (const int each : list) all += number(each);
    all += "e";
  }
  return all + "u.";
}

}  // namespace edgewise::data
