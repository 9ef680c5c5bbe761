#include "data/graphs/npy.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <regex>

#include "data/readers/compressed.h"

namespace edgewise::data {
namespace {

constexpr size_t kLongestHeader = 4096;

template <typename Element>
void widen(const uint8_t* from, std::vector<double>& values) {
  for (size_t n = 0; n < values.size(); ++n) {
    Element element;
    std::memcpy(&element, from + n * sizeof(Element), sizeof(Element));
    values[n] = static_cast<double>(element);
  }
}

// The text behind 'key': in the header, which is a dictionary of Python.
std::string entry(const std::string& header, const std::string& pattern, const std::string& origin) {
  std::smatch found;
  TORCH_CHECK_VALUE(std::regex_search(header, found, std::regex(pattern)), origin,
                    ": expected a header of numpy with descr, fortran_order and shape; found ",
                    header.substr(0, 80));
  return found[1];
}

}  // namespace

NpyArray read_npy(std::span<const uint8_t> bytes, const std::string& origin) {
  TORCH_CHECK_VALUE(bytes.size() > 12 && as_text(bytes.first(6)) == "\x93NUMPY", origin,
                    ": expected a file of numpy; found other bytes at its beginning");
  const bool is_old = bytes[6] == 1;  // the length of the header has two bytes, later four
  size_t length = bytes[8] | size_t{bytes[9]} << 8;
  if (!is_old) length |= size_t{bytes[10]} << 16 | size_t{bytes[11]} << 24;
  const size_t begin = is_old ? 10 : 12;
  TORCH_CHECK_VALUE(bytes.size() >= begin + length, origin, ": the file ends in its header");
  // std::regex goes deeper with every character that it repeats.
  TORCH_CHECK_VALUE(length <= kLongestHeader, origin, ": expected a header of at most ", kLongestHeader,
                    " bytes, as arrays of numbers have; found ", length);
  const std::string header(as_text(bytes.subspan(begin, length)));
  const std::string kind = entry(header, "'descr': *'([^']*)'", origin),
                    order = entry(header, "'fortran_order': *(True|False)", origin),
                    sizes = entry(header, "'shape': *\\(([0-9, ]*)\\)", origin);
  TORCH_CHECK_VALUE(order == "False", origin, ": expected an array in C order; found Fortran's");
  NpyArray result;
  int64_t count = 1;
  const std::regex number("[0-9]{1,12}");
  for (std::sregex_iterator it(sizes.begin(), sizes.end(), number), end; it != end; ++it) {
    result.shape.push_back(std::stoll(it->str()));
    TORCH_CHECK_VALUE(
        result.shape.size() <= 2 && !__builtin_mul_overflow(count, result.shape.back(), &count) &&
            count < int64_t{1} << 40,
        origin, ": expected at most two dimensions and 2^40 numbers; found (", sizes.substr(0, 80), ")");
  }
  const bool is_known = kind == "<f8" || kind == "<f4" || kind == "<i8" || kind == "<i4";
  TORCH_CHECK_VALUE(is_known, origin, ": expected int32, int64, float32 or float64; found ",
                    kind.substr(0, 40));
  const auto data = bytes.subspan(begin + length);
  TORCH_CHECK_VALUE(static_cast<int64_t>(data.size()) == count * (kind[2] - '0'), origin, ": expected ",
                    count, " numbers of ", kind[2], " bytes; found ", data.size(), " bytes");
  result.values.resize(static_cast<size_t>(count));
  if (kind == "<f8") widen<double>(data.data(), result.values);
  if (kind == "<f4") widen<float>(data.data(), result.values);
  if (kind == "<i8") widen<int64_t>(data.data(), result.values);
  if (kind == "<i4") widen<int32_t>(data.data(), result.values);
  return result;
}

}  // namespace edgewise::data
