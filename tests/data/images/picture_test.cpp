// JPEG and PNG files as pictures, and what is refused of them.
#include <edgewise/data/images/picture.h>

#include <gtest/gtest.h>

#include <zlib.h>

#include "data/expect_error.h"
#include "data/images/jpeg.h"
#include "data/images/resize.h"
#include "data/official_files.h"
#include "data/readers/png.h"
#include "kit/picture_files.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::jpeg_of;
using kit::plain_pixels;

// A PNG of any depth and kind of pixels; rows are as they stand in the file, without filters.
std::string png_of(uint32_t width, uint32_t height, char depth, char kind, const std::string& rows,
                   const std::string& chunks = {}) {
  std::string packed(compressBound(rows.size()), '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
           rows.size());
  packed.resize(size);
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR", big_endian32(width) + big_endian32(height) + std::string({depth, kind, 0, 0, 0})) +
         chunks + png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

TEST(Picture, JpegOfEveryColourComesBack) {
  for (const auto& [r, g, b] :
       {std::array<uint8_t, 3>{255, 0, 0}, {0, 255, 0}, {10, 20, 200}, {128, 128, 128}}) {
    const Picture found = decode_jpeg(jpeg_of(5, 7, 3, plain_pixels(5, 7, r, g, b)), "picture");
    EXPECT_EQ(found.size, (PictureSize{5, 7}));
    ASSERT_EQ(found.pixels.size(), 5u * 7 * 3);
    for (size_t n = 0; n < found.pixels.size(); n += 3) {
      EXPECT_NEAR(found.pixels[n], r, 2);
      EXPECT_NEAR(found.pixels[n + 1], g, 2);
      EXPECT_NEAR(found.pixels[n + 2], b, 2);
    }
  }
}

TEST(Picture, RowsAndColumnsKeepTheirPlaces) {
  std::vector<uint8_t> pixels(16 * 16 * 3);
  for (size_t y = 0; y < 16; ++y)
    for (size_t x = 0; x < 16; ++x) {
      pixels[3 * (y * 16 + x)] = static_cast<uint8_t>(10 * y);
      pixels[3 * (y * 16 + x) + 1] = static_cast<uint8_t>(10 * x);
    }
  const Picture jpeg = decode_jpeg(jpeg_of(16, 16, 3, pixels), "picture");
  for (size_t n = 0; n < pixels.size(); ++n)
    EXPECT_NEAR(jpeg.pixels[n], pixels[n], 24) << n;  // halved colours
  EXPECT_EQ(decode_png(encode_png(16, 16, 3, pixels), "picture").pixels, pixels);
}

TEST(Picture, GreyBecomesThreeEqualColours) {
  const std::vector<uint8_t> grey(6 * 4, 77);
  const Picture jpeg = decode_jpeg(jpeg_of(6, 4, 1, grey), "picture"),
                png = decode_png(encode_png(4, 6, 1, grey), "picture");
  EXPECT_EQ(png.pixels, std::vector<uint8_t>(6 * 4 * 3, 77));
  for (size_t n = 0; n < jpeg.pixels.size(); n += 3) {
    EXPECT_EQ(jpeg.pixels[n], jpeg.pixels[n + 1]);
    EXPECT_EQ(jpeg.pixels[n], jpeg.pixels[n + 2]);
    EXPECT_NEAR(jpeg.pixels[n], 77, 1);
  }
}

TEST(Picture, PngPalettesBitsAndOpacityAreLookedUp) {
  // One row of two pixels: colours 1 and 0 of a palette; black and white in one bit; opaque and clear.
  const std::string palette = png_chunk("PLTE", std::string("\x01\x02\x03\x0a\x14\x1e", 6));
  EXPECT_EQ(decode_png(png_of(2, 1, 8, 3, std::string("\0\x01\x00", 3), palette), "p").pixels,
            (std::vector<uint8_t>{10, 20, 30, 1, 2, 3}));
  EXPECT_EQ(decode_png(png_of(2, 1, 1, 0, std::string("\0\x40", 2)), "p").pixels,
            (std::vector<uint8_t>{0, 0, 0, 255, 255, 255}));
  EXPECT_EQ(decode_png(png_of(2, 1, 8, 6, std::string("\0\x01\x02\x03\xff\x04\x05\x06\x00", 9)), "p").pixels,
            (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
}

TEST(Picture, InksSixteenBitsAndOtherFilesAreRefused) {
  EXPECT_ERROR(decode_jpeg(jpeg_of(4, 4, 4, std::vector<uint8_t>(64, 9)), "a.jpg"),
               "a.jpg: expected a grey picture");
  EXPECT_ERROR(decode_jpeg(jpeg_of(4, 4, 4, std::vector<uint8_t>(64, 9)), "a.jpg"), "four inks (CMYK)");
  EXPECT_ERROR(decode_png(png_of(1, 1, 16, 0, std::string("\0\x01\x02", 3)), "a.png"),
               "a.png: expected up to 8 bits per channel; found 16");
  const kit::ScratchFolder scratch;
  EXPECT_ERROR(read_picture(scratch.write("a.jpg", "GIF89a")), "expected a JPEG or PNG file");
  EXPECT_ERROR(read_picture(scratch.write("b.jpg", "")), "b.jpg: expected a JPEG or PNG file; it is empty");
  EXPECT_ERROR(read_picture(scratch / "missing.jpg"), "missing.jpg: expected a picture");
}

// No cut of a file is taken for the whole.
TEST(Picture, TruncatedFilesAreErrors) {
  std::vector<uint8_t> pixels(24 * 24 * 3);
  for (size_t n = 0; n < pixels.size(); ++n) pixels[n] = static_cast<uint8_t>(n * n / 7);
  const std::string jpeg = jpeg_of(24, 24, 3, pixels, 90), png = encode_png(24, 24, 3, pixels);
  for (size_t size = 3; size + 2 < jpeg.size(); size += 1 + size / 16)
    EXPECT_ERROR(decode_jpeg(jpeg.substr(0, size), "cut.jpg"), "cut.jpg: expected an intact JPEG file");
  for (size_t size = 8; size < png.size(); size += 1 + size / 16)
    EXPECT_ERROR(decode_png(png.substr(0, size), "cut.png"), "cut.png: expected an intact PNG file");
}

TEST(Picture, DamageNeverBreaksTheReaders) {
  const std::string jpeg = jpeg_of(16, 16, 3, kit::bar_pixels(16, 0, 1), 80),
                    png = encode_png(16, 16, 3, kit::bar_pixels(16, 0, 1));
  uint32_t state = 7;
  for (int round = 0; round < 2000; ++round) {
    std::string file = round % 2 == 0 ? jpeg : png;
    for (int change = 0; change < 1 + round % 5; ++change) {
      state = state * 1664525u + 1013904223u;
      file[(state >> 8) % file.size()] = static_cast<char>(state >> 24);
    }
    try {
      const Picture found =
          round % 2 == 0 ? decode_jpeg(file, "file", 1 << 20) : decode_png(file, "file", 1 << 20);
      EXPECT_EQ(static_cast<int64_t>(found.pixels.size()), 3 * found.size.height * found.size.width);
    } catch (const c10::Error&) {  // a sentence, by the macro of every check
    }
  }
}

TEST(Picture, SizesAreCheckedBeforeAnythingIsAllocated) {
  EXPECT_ERROR(decode_jpeg(jpeg_of(40, 40, 3, plain_pixels(40, 40, 1, 2, 3)), "a.jpg", 1000),
               "a.jpg: expected at most 1000 pixels; found 40 x 40");
  const std::string header =
      "\x89PNG\r\n\x1a\n" +
      png_chunk("IHDR", big_endian32(900'000) + big_endian32(900'000) + std::string({8, 2, 0, 0, 0}));
  EXPECT_ERROR(decode_png(header + png_chunk("IDAT", ""), "a.png"), "a.png: expected at most");
}

TEST(Resize, TheMiddleIsAsLargeAsItGoes) {
  const PictureBox box = middle_box({100, 60}, {32, 32});
  EXPECT_EQ(box.height, 60);
  EXPECT_EQ(box.width, 60);
  EXPECT_EQ(box.top, 20);
  EXPECT_EQ(box.left, 0);
  EXPECT_EQ(middle_box({256, 256}, {224, 224}, 0.875).height, 224);
}

TEST(Resize, HalvingIsTheMeanAndKeepsEvenPictures) {
  Picture picture{.size = {4, 4}, .pixels = plain_pixels(4, 4, 9, 80, 250)};
  for (const uint8_t each : resized_middle(picture, {2, 2}).pixels)
    EXPECT_TRUE(each == 9 || each == 80 || each == 250);
  // A ramp stays a ramp: its middle columns keep their mean.
  for (size_t n = 0; n < picture.pixels.size(); ++n)
    picture.pixels[n] = static_cast<uint8_t>(40 * (n / 3 % 4));
  const Picture half = resized_middle(picture, {2, 2});
  EXPECT_EQ(half.pixels[0] + half.pixels[3], 120);
  EXPECT_LT(half.pixels[0], half.pixels[3]);
}

}  // namespace
}  // namespace edgewise::data
