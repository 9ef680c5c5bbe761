#include "data/readers/compressed.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include <c10/util/Exception.h>
#include <lzma.h>
#include <zlib.h>

#include <edgewise/io/atomic_file.h>

namespace edgewise::data {

namespace {

constexpr uint64_t kBlockSize = uint64_t{8} << 20;
constexpr size_t kChunk = size_t{1} << 20;  // how much the output grows at a time

// Ends the stream on every way out.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { lzma_end(&stream); }

  lzma_stream stream = LZMA_STREAM_INIT;
};

lzma_mt several_threads() {
  lzma_mt options{};
  options.threads = std::max(1u, std::thread::hardware_concurrency());
  options.block_size = kBlockSize;
  options.check = LZMA_CHECK_CRC64;
  options.preset = 6;
  options.memlimit_threading = uint64_t{4} << 30;
  // Dictionaries: of the strongest preset, 9, 64 MiB.
  options.memlimit_stop = uint64_t{1} << 30;
  return options;
}

const char* what_failed(lzma_ret code) {
  switch (code) {
    case LZMA_FORMAT_ERROR:
      return "this is not xz data";
    case LZMA_DATA_ERROR:
      return "the data is damaged";
    case LZMA_BUF_ERROR:
      return "the data ends too early";
    case LZMA_MEM_ERROR:
    case LZMA_MEMLIMIT_ERROR:
      return "there is not enough memory";
    case LZMA_OPTIONS_ERROR:
      return "liblzma does not know its settings";
    default:
      return "liblzma refuses it";
  }
}

}  // namespace

std::vector<uint8_t> xz_compress(std::span<const uint8_t> bytes) {
  Stream coder;
  const lzma_mt options = several_threads();
  lzma_ret code = lzma_stream_encoder_mt(&coder.stream, &options);
  std::vector<uint8_t> result;
  coder.stream.next_in = bytes.data();
  coder.stream.avail_in = bytes.size();
  while (code == LZMA_OK) {
    const size_t done = result.size();
    result.resize(done + kChunk);
    coder.stream.next_out = result.data() + done;
    coder.stream.avail_out = kChunk;
    code = lzma_code(&coder.stream, LZMA_FINISH);
    result.resize(result.size() - coder.stream.avail_out);
  }
  TORCH_CHECK(code == LZMA_STREAM_END, "xz_compress: could not compress ", bytes.size(),
              " bytes: ", what_failed(code));
  return result;
}

std::vector<uint8_t> xz_decompress(std::span<const uint8_t> compressed, const std::string& name,
                                   uint64_t limit) {
  Stream coder;
  lzma_mt options = several_threads();
  options.flags = LZMA_CONCATENATED;
  // A block says how large it will be, and several of them are made room for: not more than the whole may
  // have.
  options.memlimit_threading = std::min(options.memlimit_threading, 4 * limit);
  lzma_ret code = lzma_stream_decoder_mt(&coder.stream, &options);
  std::vector<uint8_t> result;
  coder.stream.next_in = compressed.data();
  coder.stream.avail_in = compressed.size();
  while (code == LZMA_OK) {
    TORCH_CHECK_VALUE(result.size() <= limit, name, ": expected at most ", limit,
                      " bytes of decompressed data; found more. If it is sound, decompress it first: xz -d");
    const size_t done = result.size();
    result.resize(std::min<uint64_t>(done + std::max(kChunk, done / 2), limit + 1));
    coder.stream.next_out = result.data() + done;
    coder.stream.avail_out = result.size() - done;
    code = lzma_code(&coder.stream, LZMA_FINISH);
    result.resize(result.size() - coder.stream.avail_out);
  }
  TORCH_CHECK_VALUE(code == LZMA_STREAM_END, name, ": expected xz data; ", what_failed(code),
                    ". Fetch or write the file again.");
  TORCH_CHECK_VALUE(result.size() <= limit, name, ": expected at most ", limit,
                    " bytes of decompressed data; found ", result.size());
  return result;
}

uint64_t xz_limit(uint64_t compressed) {
  constexpr uint64_t kSmall = uint64_t{64} << 20, kTimes = 200;
  return std::max(kSmall, compressed * kTimes);
}

std::vector<uint8_t> xz_decompress(std::span<const uint8_t> compressed, const std::string& name) {
  return xz_decompress(compressed, name, xz_limit(compressed.size()));
}

std::optional<std::filesystem::path> find_plain_or_xz(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) return path;
  std::filesystem::path compressed = path;
  compressed += ".xz";
  if (std::filesystem::exists(compressed)) return compressed;
  return std::nullopt;
}

std::vector<uint8_t> read_plain_or_xz(const std::filesystem::path& found) {
  const std::string text = io::read_file(found);
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  if (found.extension() == ".xz") return xz_decompress({bytes, text.size()}, found.string());
  return {bytes, bytes + text.size()};
}

std::string crc32_text(std::span<const uint8_t> bytes) {
  const auto sum = static_cast<unsigned>(crc32_z(crc32_z(0, nullptr, 0), bytes.data(), bytes.size()));
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", sum);
  return text;
}

}  // namespace edgewise::data
