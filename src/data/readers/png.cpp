// PNG: a signature, then chunks of length, name, data and CRC-32; the data of all IDAT chunks is one zlib
// stream of rows, each led by the number of the filter that predicts its bytes from those to the left and
// above.
#include "data/readers/png.h"

#include <cstdlib>
#include <string_view>

#include <c10/util/Exception.h>
#include <zlib.h>

#include <edgewise/io/atomic_file.h>

namespace edgewise::data {

namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
constexpr int64_t kLargestSide = 1 << 14;

uint32_t big_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (const char c : bytes.substr(0, 4)) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

std::string to_big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

std::string chunk(const std::string& kind, const std::string& data) {
  const std::string body = kind + data;
  const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return to_big_endian(static_cast<uint32_t>(data.size())) + body + to_big_endian(static_cast<uint32_t>(sum));
}

uint8_t paeth(int left, int above, int corner) {
  const int guess = left + above - corner;
  const int to_left = std::abs(guess - left), to_above = std::abs(guess - above),
            to_corner = std::abs(guess - corner);
  if (to_left <= to_above && to_left <= to_corner) return static_cast<uint8_t>(left);
  return static_cast<uint8_t>(to_above <= to_corner ? above : corner);
}

class PngReader {
 public:
  explicit PngReader(const std::filesystem::path& path) : name_(path.string()), file_(io::read_file(path)) {}

  GreyImage read() {
    std::string_view rest = file_;
    check(rest.starts_with(kSignature), "expected a PNG file; its signature is missing");
    rest.remove_prefix(kSignature.size());
    for (bool ended = false; !ended;) {
      check(rest.size() >= 12, "expected another chunk; the file ends too early");
      const uint32_t size = big_endian(rest);
      check(size <= rest.size() - 12,
            "expected a chunk within the file; it claims " + std::to_string(size) + " bytes");
      const std::string_view kind = rest.substr(4, 4), data = rest.substr(8, size);
      const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(kind.data()), size + 4);
      check(static_cast<uint32_t>(sum) == big_endian(rest.substr(8 + size)),
            "expected an intact chunk; its CRC-32 does not fit");
      if (kind == "IHDR") header(data);
      if (kind == "IDAT") packed_ += data;
      ended = kind == "IEND";
      rest.remove_prefix(12 + size);
    }
    check(image_.width > 0, "expected an IHDR chunk; found none");
    unfilter(unpack());
    return std::move(image_);
  }

 private:
  void header(std::string_view data) {
    check(data.size() == 13, "expected an IHDR chunk of 13 bytes");
    image_.width = big_endian(data);
    image_.height = big_endian(data.substr(4));
    check(image_.width > 0 && image_.width <= kLargestSide && image_.height > 0 &&
              image_.height <= kLargestSide,
          "expected sides of 1 to " + std::to_string(kLargestSide) + " pixels");
    const int depth = data[8], colour = data[9], interlacing = data[12];
    check(depth == 8 && (colour == 0 || colour == 2 || colour == 4 || colour == 6) && interlacing == 0,
          "expected 8 bits per channel, grey or true colour, not interlaced; found depth " +
              std::to_string(depth) + ", colour type " + std::to_string(colour) + ", interlacing " +
              std::to_string(interlacing));
    channels_ = colour == 0 ? 1 : colour == 4 ? 2 : colour == 2 ? 3 : 4;
  }

  std::vector<uint8_t> unpack() const {
    std::vector<uint8_t> rows(static_cast<size_t>((image_.width * channels_ + 1) * image_.height));
    uLongf size = rows.size();
    const int code =
        uncompress(rows.data(), &size, reinterpret_cast<const Bytef*>(packed_.data()), packed_.size());
    check(code == Z_OK && size == rows.size(), "expected " + std::to_string(rows.size()) +
                                                   " bytes of packed rows; found " +
                                                   (code == Z_OK ? std::to_string(size) : "damaged data"));
    return rows;
  }

  void unfilter(std::vector<uint8_t> rows) {
    const auto step = static_cast<size_t>(channels_), width = static_cast<size_t>(image_.width * channels_);
    const std::vector<uint8_t> nothing(width);
    const uint8_t* above = nothing.data();
    for (int64_t y = 0; y < image_.height; ++y) {
      uint8_t* row = rows.data() + static_cast<size_t>(y) * (width + 1) + 1;
      const int filter = row[-1];
      check(filter <= 4,
            "expected a filter in 0..4; found " + std::to_string(filter) + " in row " + std::to_string(y));
      for (size_t i = 0; i < width; ++i) {
        const int left = i >= step ? row[i - step] : 0, corner = i >= step ? above[i - step] : 0;
        const int guess = filter == 0   ? 0
                          : filter == 1 ? left
                          : filter == 2 ? above[i]
                          : filter == 3 ? (left + above[i]) / 2
                                        : paeth(left, above[i], corner);
        row[i] = static_cast<uint8_t>(row[i] + guess);
      }
      for (size_t i = 0; i < width; i += step) image_.pixels.push_back(pixel(row + i));
      above = row;
    }
  }

  uint8_t pixel(const uint8_t* bytes) const {
    check(channels_ < 3 || (bytes[0] == bytes[1] && bytes[1] == bytes[2]),
          "expected a grey picture; found a coloured pixel");
    return bytes[0];
  }

  void check(bool holds, const std::string& what) const { TORCH_CHECK_VALUE(holds, name_, ": ", what); }

  std::string name_, file_, packed_;
  GreyImage image_;
  int64_t channels_ = 1;
};

}  // namespace

std::string encode_png(int64_t width, int64_t height, int64_t channels, std::span<const uint8_t> pixels) {
  TORCH_CHECK_VALUE(width > 0 && height > 0 && (channels == 1 || channels == 3) &&
                        static_cast<int64_t>(pixels.size()) == width * height * channels,
                    "encode_png: expected width * height * channels bytes and 1 or 3 channels; got ", width,
                    " * ", height, " * ", channels, " and ", pixels.size(), " bytes");
  const auto line = static_cast<size_t>(width * channels);
  std::string rows;
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    rows += '\0';  // no filter
    rows.append(reinterpret_cast<const char*>(pixels.data()) + y * line, line);
  }
  std::string packed(compressBound(rows.size()), '\0');
  uLongf size = packed.size();
  const int code = compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                            reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  TORCH_CHECK(code == Z_OK, "encode_png: zlib could not compress ", rows.size(), " bytes");
  packed.resize(size);
  const char colour = channels == 1 ? 0 : 2;
  const std::string header = to_big_endian(static_cast<uint32_t>(width)) +
                             to_big_endian(static_cast<uint32_t>(height)) + std::string({8, colour, 0, 0, 0});
  return std::string(kSignature) + chunk("IHDR", header) + chunk("IDAT", packed) + chunk("IEND", "");
}

GreyImage read_png(const std::filesystem::path& path) {
  return PngReader(path).read();
}

}  // namespace edgewise::data
