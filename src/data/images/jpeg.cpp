// libjpeg reports an error by a call that must not return. Here it leaves by longjmp, which runs no
// destructor: the functions below that call libjpeg between setjmp and their end own nothing, and what they
// fill belongs to JpegReader.
#include "data/images/jpeg.h"

#include <cstdio>  // jpeglib.h needs FILE and size_t

#include <jpeglib.h>

#include <csetjmp>

#include <c10/util/Exception.h>

namespace edgewise::data {
namespace {

struct Errors {
  jpeg_error_mgr manager;  // first: libjpeg knows it by this address
  std::jmp_buf leave;
  char problem[JMSG_LENGTH_MAX] = "";
};

Errors& errors_of(j_common_ptr jpeg) {
  return *reinterpret_cast<Errors*>(jpeg->err);
}

[[noreturn]] void fail(j_common_ptr jpeg) {
  Errors& errors = errors_of(jpeg);
  errors.manager.format_message(jpeg, errors.problem);
  std::longjmp(errors.leave, 1);
}

// Level -1 is damage that libjpeg would paint over; higher ones are remarks.
void emit(j_common_ptr jpeg, int level) {
  if (level < 0) fail(jpeg);
}

void ignore(j_common_ptr) {}

bool read_header(jpeg_decompress_struct& jpeg, const unsigned char* bytes, unsigned long size) {
  if (setjmp(errors_of(reinterpret_cast<j_common_ptr>(&jpeg)).leave)) return false;
  jpeg_mem_src(&jpeg, bytes, size);
  jpeg_read_header(&jpeg, TRUE);
  return true;
}

// pixels: [height, width, 3]
bool read_pixels(jpeg_decompress_struct& jpeg, uint8_t* pixels) {
  if (setjmp(errors_of(reinterpret_cast<j_common_ptr>(&jpeg)).leave)) return false;
  jpeg.out_color_space = JCS_RGB;
  jpeg.dct_method = JDCT_ISLOW;
  jpeg_start_decompress(&jpeg);
  const size_t stride = size_t{3} * jpeg.output_width;
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels + jpeg.output_scanline * stride;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

class JpegReader {
 public:
  JpegReader(std::string_view file, const std::string& name, int64_t most) : name_(name) {
    jpeg_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = fail;
    errors_.manager.emit_message = emit;
    errors_.manager.output_message = ignore;
    jpeg_create_decompress(&jpeg_);
    try {
      check(read_header(jpeg_, reinterpret_cast<const unsigned char*>(file.data()), file.size()));
      check_form(most);
    } catch (...) {
      jpeg_destroy_decompress(&jpeg_);
      throw;
    }
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }

  PictureSize size() const { return {jpeg_.image_height, jpeg_.image_width}; }

  Picture read() {
    Picture result{.size = size(), .pixels = {}};
    result.pixels.resize(static_cast<size_t>(3 * result.size.height * result.size.width));
    check(read_pixels(jpeg_, result.pixels.data()));
    return result;
  }

 private:
  void check(bool succeeded) const {
    TORCH_CHECK_VALUE(succeeded, name_, ": expected an intact JPEG file; libjpeg found: ", errors_.problem);
  }

  void check_form(int64_t most) const {
    TORCH_CHECK_VALUE(jpeg_.num_components != 4, name_,
                      ": expected a grey picture or one of red, green and blue; found four inks (",
                      jpeg_.jpeg_color_space == JCS_YCCK ? "YCCK" : "CMYK", "). Convert it to RGB");
    TORCH_CHECK_VALUE(jpeg_.num_components == 1 || jpeg_.num_components == 3, name_,
                      ": expected 1 or 3 channels; found ", jpeg_.num_components);
    const PictureSize found = size();
    TORCH_CHECK_VALUE(found.height * found.width <= most, name_, ": expected at most ", most,
                      " pixels; found ", found.height, " x ", found.width);
  }

  std::string name_;
  Errors errors_;
  jpeg_decompress_struct jpeg_{};
};

}  // namespace

bool is_jpeg(std::string_view file) {
  return file.starts_with("\xFF\xD8\xFF");
}

PictureSize jpeg_size(std::string_view file, const std::string& name, int64_t most) {
  return JpegReader(file, name, most).size();
}

Picture decode_jpeg(std::string_view file, const std::string& name, int64_t most) {
  return JpegReader(file, name, most).read();
}

}  // namespace edgewise::data
