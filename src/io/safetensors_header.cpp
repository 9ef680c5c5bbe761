// A SAX handler instead of a DOM: it sees duplicate keys, tells 1 from 1.0, stops at the first token out of
// place, and needs neither stack nor memory for nesting that the format does not have.
#include "io/safetensors_header.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "io/safetensors_dtype.h"

namespace edgewise::io {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostDimensions = 64;  // what torch's kernels can iterate over

// Quotes come from the file: cut long ones, and keep the message one line of printable text.
std::string in_quotes(std::string_view text) {
  std::string safe = "'";
  for (const char c : text.substr(0, 80)) safe += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return safe + (text.size() > 80 ? "...'" : "'");
}

class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  SafetensorsHeader header;
  std::string problem;  // set when a callback returns false

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart:
        return go(Place::kTop);
      case Place::kTopValue:
        if (key_ == "__metadata__") return go(Place::kMetadata);
        entry_ = {};
        has_dtype_ = has_shape_ = has_offsets_ = false;
        return go(Place::kEntry);
      default:
        return unexpected("an object");
    }
  }

  bool key(std::string& name) override {
    field_ = name;
    switch (place_) {
      case Place::kTop: {
        const bool is_new =
            name == "__metadata__" ? !std::exchange(has_metadata_, true) : !header.tensors.contains(name);
        if (!is_new) return fail("key ", in_quotes(name), " appears twice");
        key_ = name;
        return go(Place::kTopValue);
      }
      case Place::kMetadata:
        if (header.metadata.contains(name)) return fail("metadata key ", in_quotes(name), " appears twice");
        return go(Place::kMetadataValue);
      case Place::kEntry:
        if (name == "dtype") return once(has_dtype_, Place::kDtype);
        if (name == "shape") return once(has_shape_, Place::kShape);
        if (name == "data_offsets") return once(has_offsets_, Place::kOffsets);
        return fail("tensor ", in_quotes(key_), " has an unknown field ", in_quotes(name));
      default:
        return unexpected("a key");
    }
  }

  bool end_object() override {
    switch (place_) {
      case Place::kTop:
        return go(Place::kEnd);
      case Place::kMetadata:
        return go(Place::kTop);
      case Place::kEntry:
        if (!has_dtype_ || !has_shape_ || !has_offsets_) {
          return fail("tensor ", in_quotes(key_), " lacks dtype, shape or data_offsets");
        }
        header.tensors.emplace(key_, std::move(entry_));
        return go(Place::kTop);
      default:
        return unexpected("the end of an object");
    }
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kShape) return go(Place::kShapeItem);
    if (place_ == Place::kOffsets) {
      offsets_seen_ = 0;
      return go(Place::kOffsetItem);
    }
    return unexpected("an array");
  }

  bool end_array() override {
    if (place_ == Place::kOffsetItem && offsets_seen_ != 2) {
      return fail("tensor ", in_quotes(key_), ": data_offsets needs two numbers");
    }
    return go(Place::kEntry);
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadataValue) {
      header.metadata.emplace(field_, text);
      return go(Place::kMetadata);
    }
    if (place_ != Place::kDtype) return unexpected("a string");
    const auto dtype = parse_safetensors_dtype(text);
    if (!dtype)
      return fail("tensor ", in_quotes(key_), " has dtype ", in_quotes(text), ", which torch does not have");
    entry_.dtype = *dtype;
    return go(Place::kEntry);
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::kShapeItem) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return fail("tensor ", in_quotes(key_), " has a dimension of ", value);
      }
      if (entry_.shape.size() == kMostDimensions) {
        return fail("tensor ", in_quotes(key_), " has more than ", kMostDimensions, " dimensions");
      }
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ != Place::kOffsetItem) return unexpected("a number");
    if (offsets_seen_ == 2) return fail("tensor ", in_quotes(key_), ": data_offsets needs two numbers");
    (offsets_seen_++ == 0 ? entry_.begin : entry_.end) = value;
    return true;
  }

  bool number_integer(int64_t) override { return unexpected("a negative number"); }
  bool number_float(double, const std::string&) override {
    return unexpected("a fraction or a number too large");
  }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool null() override { return unexpected("null"); }
  bool binary(Json::binary_t&) override { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    return fail("not valid JSON at byte ", position);
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kTopValue,
    kMetadata,
    kMetadataValue,
    kEntry,
    kDtype,
    kShape,
    kShapeItem,
    kOffsets,
    kOffsetItem,
    kEnd
  };

  bool go(Place place) {
    place_ = place;
    return true;
  }
  bool once(bool& seen, Place place) {
    if (std::exchange(seen, true))
      return fail("tensor ", in_quotes(key_), " states ", in_quotes(field_), " twice");
    return go(place);
  }
  template <typename... Parts>
  bool fail(const Parts&... parts) {
    problem = c10::str(parts...);
    return false;
  }
  bool unexpected(const char* what) {
    if (place_ == Place::kMetadataValue)
      return fail("metadata ", in_quotes(field_), " is ", what, ", not a string");
    if (place_ == Place::kTopValue) return fail(in_quotes(key_), " is ", what, ", not an object");
    return fail("tensor ", in_quotes(key_), ", field ", in_quotes(field_), ": ", what,
                " does not belong there");
  }

  Place place_ = Place::kStart;
  std::string key_;    // current top-level key
  std::string field_;  // last key at any level
  TensorEntry entry_;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int offsets_seen_ = 0;
};

// Bytes a tensor of this dtype and shape takes; nothing if that overflows.
std::optional<uint64_t> byte_count(const TensorEntry& entry) {
  // Torch multiplies the dimensions without looking at zeros first, so an overflow counts even in an empty
  // tensor.
  uint64_t product = c10::elementSize(entry.dtype);
  bool empty = false;
  for (const int64_t size : entry.shape) {
    empty |= size == 0;
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(std::max<int64_t>(size, 1)), &product))
      return std::nullopt;
  }
  if (product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return empty ? 0 : product;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size() && i < 16; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() > 16 ? ", ...]" : "]");
}

void check_entry(const std::string& file, const std::string& name, const TensorEntry& entry) {
  const auto bytes = byte_count(entry);
  TORCH_CHECK_VALUE(bytes, "load_safetensors: '", file, "': tensor ", in_quotes(name), " of shape ",
                    shape_text(entry.shape), " is too large for any memory; the file is damaged");
  TORCH_CHECK_VALUE(entry.begin <= entry.end && entry.end - entry.begin == *bytes, "load_safetensors: '",
                    file, "': tensor ", in_quotes(name), " of shape ", shape_text(entry.shape), " needs ",
                    *bytes, " bytes but its data_offsets are [", entry.begin, ", ", entry.end,
                    "]; the file is damaged");
}

// The tensors must tile the data: no hole where something could hide, no overlap, nothing after the last.
void check_tiling(const std::string& file, const SafetensorsHeader& header, uint64_t data_size) {
  std::vector<const std::pair<const std::string, TensorEntry>*> order;
  order.reserve(header.tensors.size());
  for (const auto& item : header.tensors) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t position = 0;
  for (const auto* item : order) {
    const auto& [name, entry] = *item;
    TORCH_CHECK_VALUE(entry.begin == position, "load_safetensors: '", file, "': tensor ", in_quotes(name),
                      " starts at byte ", entry.begin, " of the data, expected ", position,
                      entry.begin < position ? " (overlap)" : " (hole)", "; the file is damaged");
    position = entry.end;
  }
  TORCH_CHECK_VALUE(position == data_size, "load_safetensors: '", file, "': the header describes ", position,
                    " bytes of data but the file holds ", data_size, "; it is truncated or damaged");
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& file, std::string_view json,
                                           uint64_t data_size) {
  TORCH_CHECK_VALUE(json.starts_with('{'), "load_safetensors: '", file,
                    "': the header does not start with '{'; this is not a safetensors file");
  // The JSON parser takes a NUL for the end of the text and would not look at what follows.
  TORCH_CHECK_VALUE(json.find('\0') == std::string_view::npos, "load_safetensors: '", file,
                    "': the header holds a zero byte; the file is damaged");
  HeaderReader reader;
  const bool parsed = Json::sax_parse(json.begin(), json.end(), &reader);
  TORCH_CHECK_VALUE(parsed, "load_safetensors: '", file, "': bad header: ", reader.problem);
  for (const auto& [name, entry] : reader.header.tensors) check_entry(file, name, entry);
  check_tiling(file, reader.header, data_size);
  return std::move(reader.header);
}

}  // namespace edgewise::io
