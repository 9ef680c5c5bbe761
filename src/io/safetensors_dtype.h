// The dtypes of safetensors that torch has, in the reference writer's order.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <string_view>

namespace edgewise::io {

struct SafetensorsDtype {
  std::string_view name;
  c10::ScalarType dtype;
};

// Files list tensors by dtype from the last of these to the first (that is, by descending alignment), then by
// name.
inline constexpr std::array<SafetensorsDtype, 19> kSafetensorsDtypes = {{
    {"BOOL", c10::ScalarType::Bool},
    {"U8", c10::ScalarType::Byte},
    {"I8", c10::ScalarType::Char},
    {"F8_E5M2", c10::ScalarType::Float8_e5m2},
    {"F8_E4M3", c10::ScalarType::Float8_e4m3fn},
    {"F8_E8M0", c10::ScalarType::Float8_e8m0fnu},
    {"F8_E4M3FNUZ", c10::ScalarType::Float8_e4m3fnuz},
    {"F8_E5M2FNUZ", c10::ScalarType::Float8_e5m2fnuz},
    {"I16", c10::ScalarType::Short},
    {"U16", c10::ScalarType::UInt16},
    {"F16", c10::ScalarType::Half},
    {"BF16", c10::ScalarType::BFloat16},
    {"I32", c10::ScalarType::Int},
    {"U32", c10::ScalarType::UInt32},
    {"F32", c10::ScalarType::Float},
    {"C64", c10::ScalarType::ComplexFloat},
    {"F64", c10::ScalarType::Double},
    {"I64", c10::ScalarType::Long},
    {"U64", c10::ScalarType::UInt64},
}};

// Position in the table, or nothing.
inline std::optional<size_t> safetensors_rank(c10::ScalarType dtype) {
  for (size_t i = 0; i < kSafetensorsDtypes.size(); ++i) {
    if (kSafetensorsDtypes[i].dtype == dtype) return i;
  }
  return std::nullopt;
}

inline std::optional<c10::ScalarType> parse_safetensors_dtype(std::string_view name) {
  for (const auto& entry : kSafetensorsDtypes) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace edgewise::io
