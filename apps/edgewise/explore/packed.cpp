#include "explore/packed.h"

#include <c10/util/Exception.h>

#include <cstring>

namespace edgewise::app {
namespace {

const char* type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kInt:
      return "i32";
    case at::kFloat:
      return "f32";
    case at::kHalf:
      return "f16";
    case at::kBool:
    case at::kByte:
      return "u8";
    default:
      TORCH_INTERNAL_ASSERT(false, "no type of the page for ", dtype);
  }
}

void pad(std::string& bytes, char with) {
  bytes.resize((bytes.size() + 7) / 8 * 8, with);
}

}  // namespace

void Packed::add_part(const char* name, const char* type, int64_t count, std::string_view bytes) {
  parts_.push_back({{"name", name}, {"type", type}, {"count", count}});
  data_ += bytes;
  pad(data_, '\0');
}

void Packed::add(const char* name, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  add_part(name, type_of(tensor.scalar_type()), tensor.numel(),
           {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
}

void Packed::add(const char* name, std::span<const uint8_t> bytes) {
  add_part(name, "u8", static_cast<int64_t>(bytes.size()),
           {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string Packed::finish(Json meta) const {
  std::string json = dump({{"meta", std::move(meta)}, {"parts", parts_}});
  json.insert(0, 4, '\0');
  pad(json, ' ');
  const auto size = static_cast<uint32_t>(json.size() - 4);
  std::memcpy(json.data(), &size, 4);
  return json + data_;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

}  // namespace edgewise::app
