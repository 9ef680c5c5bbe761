// The JSON header of a safetensors file: text to checked entries.
#pragma once

#include <edgewise/io/safetensors.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace edgewise::io {

inline constexpr uint64_t kLargestSafetensorsHeader =
    100'000'000;  // bytes; the limit of the reference reader

// Parses and checks everything: JSON, known dtypes, byte counts, and that the tensors tile exactly
// `data_size` bytes. `file` is named in errors. data_offset is left 0.
SafetensorsHeader parse_safetensors_header(const std::string& file, std::string_view json,
                                           uint64_t data_size);

}  // namespace edgewise::io
