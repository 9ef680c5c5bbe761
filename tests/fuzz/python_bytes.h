// Files that Python 2 and numpy write, byte for byte small: the seeds of their readers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace edgewise::fuzz {

inline std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int n = 0; n < bytes; ++n) text += static_cast<char>(value >> (8 * n));
  return text;
}

inline std::string npy_bytes(const std::string& kind, const std::string& shape, const std::string& data) {
  std::string header = "{'descr': '" + kind + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((header.size() + 10) / 16 * 16 + 5, ' ');
  header += '\n';
  return "\x93NUMPY\x01" + std::string(1, '\0') + little_endian(header.size(), 2) + header + data;
}

// The instructions of pickle protocol 2 for one value.
inline std::string pickled_number(int64_t value) {
  return "J" + little_endian(static_cast<uint64_t>(value), 4);
}
inline std::string pickled_text(const std::string& text) {
  return "U" + little_endian(text.size(), 1) + text;
}
inline std::string pickled_array_bytes(const std::vector<int64_t>& shape, const std::string& kind,
                                       const std::string& data) {
  const std::string zero("K\0", 2);
  std::string sizes = "(";
  for (const int64_t size : shape) sizes += pickled_number(size);
  return "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + zero + "\x85" + pickled_text("b") +
         "\x87R(K\x01" + sizes + "tcnumpy\ndtype\n" + pickled_text(kind) + zero + "K\x01\x87R(K\x03" +
         pickled_text("<") + "NNN" + pickled_number(-1) + pickled_number(-1) + zero + "tb\x89T" +
         little_endian(data.size(), 4) + data + "tb";
}
inline std::string pickled_indices(const std::vector<int64_t>& values) {
  std::string data;
  for (const int64_t value : values) data += little_endian(static_cast<uint64_t>(value), 4);
  return pickled_array_bytes({static_cast<int64_t>(values.size())}, "i4", data);
}
// Of one 1 in each row, in column 0.
inline std::string pickled_matrix_bytes(int64_t rows, int64_t columns) {
  std::vector<int64_t> offsets, indices;
  std::string ones;
  for (int64_t row = 0; row <= rows; ++row) offsets.push_back(row);
  for (int64_t row = 0; row < rows; ++row) indices.push_back(0), ones += std::string("\0\0\x80\x3f", 4);
  return "cscipy.sparse.csr\ncsr_matrix\n)\x81}(" + pickled_text("_shape") + pickled_number(rows) +
         pickled_number(columns) + "\x86" + pickled_text("indptr") + pickled_indices(offsets) +
         pickled_text("indices") + pickled_indices(indices) + pickled_text("data") +
         pickled_array_bytes({rows}, "f4", ones) + "ub";
}
// A ring.
inline std::string pickled_neighbours(int64_t nodes) {
  std::string text = "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(";
  for (int64_t node = 0; node < nodes; ++node)
    text += pickled_number(node) + "](" + pickled_number((node + 1) % nodes) + "e";
  return text + "u";
}
inline std::string pickled(const std::string& value) {
  return "\x80\x02" + value + ".";
}

}  // namespace edgewise::fuzz
