#include "data/graphs/npy.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "data/readers/compressed.h"
#include "data/readers/table_lines.h"

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

// What stands behind 'key': in a header, which is a dictionary of Python, between `open` and `close`; with no
// `open` all up to `close`.
std::string_view entry(std::string_view header, std::string_view key, std::string_view open, char close,
                       const std::string& origin) {
  const auto skip_blanks = [&](size_t at) {
    return std::min(header.find_first_not_of(' ', at), header.size());
  };
  const std::string quoted = "'" + std::string(key) + "':";
  size_t at = header.find(quoted);
  bool good = at != std::string_view::npos;
  if (good) at = skip_blanks(at + quoted.size());
  good = good && header.substr(at, open.size()) == open;
  const size_t end = good ? header.find(close, at + open.size()) : std::string_view::npos;
  TORCH_CHECK_VALUE(end != std::string_view::npos, origin,
                    ": expected a header of numpy with descr, fortran_order and shape; found ",
                    shown(header));
  return header.substr(at + open.size(), end - at - open.size());
}

// "4, 2" as numbers of at most 2^31 - 1.
std::vector<int64_t> sizes_of(std::string_view text, const std::string& origin) {
  std::vector<int64_t> sizes;
  for (size_t at = 0; (at = text.find_first_not_of(" ,", at)) != std::string_view::npos;) {
    int32_t size = -1;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), size);
    TORCH_CHECK_VALUE(error == std::errc() && size >= 0 && sizes.size() < 2, origin,
                      ": expected at most two dimensions, each below 2^31; found (",
                      std::string(text.substr(0, 80)), ")");
    sizes.push_back(size);
    at = static_cast<size_t>(end - text.data());
  }
  return sizes;
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
  TORCH_CHECK_VALUE(length <= kLongestHeader, origin, ": expected a header of at most ", kLongestHeader,
                    " bytes, as arrays of numbers have; found ", length);
  const std::string_view header = as_text(bytes.subspan(begin, length));
  const std::string_view kind = entry(header, "descr", "'", '\'', origin),
                         order = entry(header, "fortran_order", "", ',', origin);
  TORCH_CHECK_VALUE(order == "False", origin, ": expected an array in C order; found Fortran's");
  NpyArray result;
  result.shape = sizes_of(entry(header, "shape", "(", ')', origin), origin);
  int64_t count = 1;
  for (const int64_t size : result.shape) count *= size;  // below 2^62
  const bool is_known = kind == "<f8" || kind == "<f4" || kind == "<i8" || kind == "<i4";
  TORCH_CHECK_VALUE(is_known, origin, ": expected int32, int64, float32 or float64; found ", shown(kind));
  const auto data = bytes.subspan(begin + length);
  TORCH_CHECK_VALUE(data.size() % static_cast<size_t>(kind[2] - '0') == 0 &&
                        static_cast<int64_t>(data.size()) / (kind[2] - '0') == count,
                    origin, ": expected ", count, " numbers of ", kind[2], " bytes; found ", data.size(),
                    " bytes");
  result.values.resize(static_cast<size_t>(count));
  if (kind == "<f8") widen<double>(data.data(), result.values);
  if (kind == "<f4") widen<float>(data.data(), result.values);
  if (kind == "<i8") widen<int64_t>(data.data(), result.values);
  if (kind == "<i4") widen<int32_t>(data.data(), result.values);
  return result;
}

}  // namespace edgewise::data
