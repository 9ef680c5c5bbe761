// libpng reports an error by a call that must not return. Here it leaves by longjmp, which runs no
// destructor: the functions below that call libpng between setjmp and their end own nothing, and what they
// fill belongs to PngReader.
#include "data/readers/png.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string_view>

#include <c10/util/Exception.h>

#include <edgewise/io/atomic_file.h>

namespace edgewise::data {

namespace {

// What libpng reads from, and what it said last.
struct Source {
  std::string_view rest;
  char problem[256] = "";
};

void next_bytes(png_structp png, png_bytep into, size_t count) {
  auto& source = *static_cast<Source*>(png_get_io_ptr(png));
  if (count > source.rest.size()) png_error(png, "the file ends too early");
  std::memcpy(into, source.rest.data(), count);
  source.rest.remove_prefix(count);
}

[[noreturn]] void fail(png_structp png, png_const_charp problem) {
  auto& source = *static_cast<Source*>(png_get_error_ptr(png));
  std::strncpy(source.problem, problem, sizeof source.problem - 1);
  png_longjmp(png, 1);
}

void ignore(png_structp, png_const_charp) {}

// So that rows come as red, green and blue of 8 bits, whatever the file holds. Gives the number of passes
// over the rows.
bool want_colour(png_structp png, png_infop info, int& passes) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_expand(png);  // palettes, and grey of fewer than 8 bits
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return true;
}

bool read_passes(png_structp png, uint8_t* rows, size_t stride, size_t height, int passes) {
  if (setjmp(png_jmpbuf(png))) return false;
  for (int pass = 0; pass < passes; ++pass)
    for (size_t y = 0; y < height; ++y) png_read_row(png, rows + y * stride, nullptr);
  png_read_end(png, nullptr);
  return true;
}

bool read_header(png_structp png, png_infop info) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_read_info(png, info);
  return true;
}

// rows: [height, stride]
bool read_rows(png_structp png, uint8_t* rows, size_t stride, size_t height) {
  if (setjmp(png_jmpbuf(png))) return false;
  for (size_t y = 0; y < height; ++y) png_read_row(png, rows + y * stride, nullptr);
  png_read_end(png, nullptr);  // so that a damaged or missing end is found
  return true;
}

class PngReader {
 public:
  explicit PngReader(const std::filesystem::path& path) : PngReader(path.string(), io::read_file(path)) {}
  PngReader(std::string name, std::string file) : name_(std::move(name)), file_(std::move(file)) {
    source_.rest = file_;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source_, fail, ignore);
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    if (!info_) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      TORCH_CHECK(false, name_, ": libpng ", PNG_LIBPNG_VER_STRING, " could not be started");
    }
    png_set_read_fn(png_, &source_, next_bytes);
    // Whatever is not as it should be is an error, also in chunks that are skipped: gamma, texts, profiles.
    png_set_benign_errors(png_, 0);
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  PictureSize size(int64_t most) {
    check(read_header(png_, info_));
    const PictureSize found{png_get_image_height(png_, info_), png_get_image_width(png_, info_)};
    TORCH_CHECK_VALUE(found.height * found.width <= most, name_, ": expected at most ", most,
                      " pixels; found ", found.height, " x ", found.width);
    const int depth = png_get_bit_depth(png_, info_);
    TORCH_CHECK_VALUE(depth <= 8, name_, ": expected up to 8 bits per channel; found ", depth,
                      ". Convert it to 8 bits");
    return found;
  }

  Picture read_colour(int64_t most) {
    Picture result{.size = size(most), .pixels = {}};
    int passes = 1;
    check(want_colour(png_, info_, passes));
    const size_t stride = png_get_rowbytes(png_, info_), height = static_cast<size_t>(result.size.height);
    TORCH_CHECK(stride == 3 * static_cast<size_t>(result.size.width), name_, ": expected rows of ",
                3 * result.size.width, " bytes from libpng; got ", stride);
    result.pixels.resize(stride * height);
    check(read_passes(png_, result.pixels.data(), stride, height, passes));
    return result;
  }

  std::vector<uint8_t> read(int64_t width, int64_t height) {
    check(read_header(png_, info_));
    const int64_t found_width = png_get_image_width(png_, info_),
                  found_height = png_get_image_height(png_, info_);
    TORCH_CHECK_VALUE(found_width == width && found_height == height, name_, ": expected ", width, " x ",
                      height, " pixels; found ", found_width, " x ", found_height);
    const int depth = png_get_bit_depth(png_, info_), colour = png_get_color_type(png_, info_),
              interlacing = png_get_interlace_type(png_, info_);
    TORCH_CHECK_VALUE(depth == 8 && colour != PNG_COLOR_TYPE_PALETTE && interlacing == PNG_INTERLACE_NONE,
                      name_,
                      ": expected 8 bits per channel, grey or true colour, not interlaced; found depth ",
                      depth, ", colour type ", colour, ", interlacing ", interlacing);
    const size_t channels = png_get_channels(png_, info_), stride = png_get_rowbytes(png_, info_);
    std::vector<uint8_t> rows(stride * static_cast<size_t>(height));
    check(read_rows(png_, rows.data(), stride, static_cast<size_t>(height)));
    if (channels == 1) return rows;
    std::vector<uint8_t> grey;
    grey.reserve(rows.size() / channels);
    for (size_t i = 0; i < rows.size(); i += channels) {  // the second or fourth channel is opacity
      TORCH_CHECK_VALUE(channels < 3 || (rows[i] == rows[i + 1] && rows[i] == rows[i + 2]), name_,
                        ": expected a grey picture; found a coloured pixel");
      grey.push_back(rows[i]);
    }
    return grey;
  }

 private:
  void check(bool succeeded) const {
    TORCH_CHECK_VALUE(succeeded, name_, ": expected an intact PNG file; libpng found: ", source_.problem);
  }

  std::string name_, file_;
  Source source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

std::string encode_png(int64_t width, int64_t height, int64_t channels, std::span<const uint8_t> pixels) {
  TORCH_CHECK_VALUE(width > 0 && height > 0 && (channels == 1 || channels == 3) &&
                        static_cast<int64_t>(pixels.size()) == width * height * channels,
                    "encode_png: expected width * height * channels bytes and 1 or 3 channels; got ", width,
                    " * ", height, " * ", channels, " and ", pixels.size(), " bytes");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(size, '\0');
  TORCH_CHECK(png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr),
              "encode_png: libpng could not write ", width, " x ", height, " pixels: ", image.message);
  file.resize(size);
  return file;
}

std::vector<uint8_t> read_grey_png(const std::filesystem::path& path, int64_t width, int64_t height) {
  return PngReader(path).read(width, height);
}

bool is_png(std::string_view file) {
  return file.starts_with("\x89PNG\r\n\x1A\n");
}

PictureSize png_size(std::string_view file, const std::string& name, int64_t most) {
  return PngReader(name, std::string(file)).size(most);
}

Picture decode_png(std::string_view file, const std::string& name, int64_t most) {
  return PngReader(name, std::string(file)).read_colour(most);
}

}  // namespace edgewise::data
