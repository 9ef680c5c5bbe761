#include <edgewise/data/images/picture.h>

#include <c10/util/Exception.h>

#include <edgewise/io/atomic_file.h>

#include "data/images/jpeg.h"
#include "data/readers/png.h"

namespace edgewise::data {
namespace {

// Larger files are not pictures that a network is trained with.
constexpr uint64_t kMostBytes = uint64_t{256} << 20;

std::string contents(const std::filesystem::path& path) {
  std::error_code failure;
  const uint64_t size = std::filesystem::file_size(path, failure);
  TORCH_CHECK_VALUE(!failure, path.string(), ": expected a picture; it cannot be read: ", failure.message());
  TORCH_CHECK_VALUE(size <= kMostBytes, path.string(), ": expected a picture of at most ", kMostBytes >> 20,
                    " MiB; found ", size, " bytes");
  return io::read_file(path);
}

void check_known(std::string_view file, const std::string& name) {
  TORCH_CHECK_VALUE(is_jpeg(file) || is_png(file), name, ": expected a JPEG or PNG file; ",
                    file.empty() ? "it is empty" : "its first bytes are those of neither");
}

}  // namespace

PictureSize picture_size(const std::filesystem::path& path) {
  const std::string file = contents(path), name = path.string();
  check_known(file, name);
  return is_png(file) ? png_size(file, name) : jpeg_size(file, name);
}

Picture read_picture(const std::filesystem::path& path) {
  const std::string file = contents(path), name = path.string();
  check_known(file, name);
  return is_png(file) ? decode_png(file, name) : decode_jpeg(file, name);
}

}  // namespace edgewise::data
