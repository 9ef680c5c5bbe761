// Compressed bytes: xz through liblzma, on several threads, and files that may lie compressed beside their
// name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

// In blocks of 8 MiB, so that reading can use several threads too.
std::vector<uint8_t> xz_compress(std::span<const uint8_t> bytes);

// How much a file may become: 64 MiB, or 200 times its size, whichever is more. Data sets shrink to a tenth;
// what unfolds further was made to fill the memory.
uint64_t xz_limit(uint64_t compressed);

// `name` stands for the origin in messages. Never more than `limit` bytes, of which as many are reserved at a
// time as there are; a stream that is damaged, cut or longer than that is an error.
std::vector<uint8_t> xz_decompress(std::span<const uint8_t> compressed, const std::string& name,
                                   uint64_t limit);
std::vector<uint8_t> xz_decompress(std::span<const uint8_t> compressed, const std::string& name);

// `path` itself or, where there is none, `path`.xz; nothing where there is neither.
std::optional<std::filesystem::path> find_plain_or_xz(const std::filesystem::path& path);
// The contents, decompressed when the name ends in .xz.
std::vector<uint8_t> read_plain_or_xz(const std::filesystem::path& found);

inline std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// zlib's CRC-32, as eight hexadecimal digits.
std::string crc32_text(std::span<const uint8_t> bytes);

}  // namespace edgewise::data
