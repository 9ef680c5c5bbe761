// CRC-32C (Castagnoli), the checksum of TensorBoard's record framing and of checkpoints.
#pragma once

#include <cstdint>
#include <string_view>

namespace edgewise::io {

uint32_t crc32c(std::string_view bytes);

// The rotated and offset form stored in records, so that a checksum of data that holds checksums stays a good
// one.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace edgewise::io
