// Every official format of the byte-valued tasks, read from tiny files of the test's own; and what is said of
// files that are not as they should be.
#include <edgewise/data/lra_import.h>

#include <gtest/gtest.h>

#include "data/expect_error.h"
#include "data/official_files.h"
#include "data/readers/compressed.h"
#include "data/readers/png.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;

std::string text_of(std::span<const uint8_t> bytes) {
  return std::string(as_text(bytes));
}
// The first pixel and the label of every example of a split.
std::vector<std::pair<int, int>> first_pixels(const ByteExamples& examples, Split split) {
  std::vector<std::pair<int, int>> result;
  for (size_t i = 0; i < examples.part(split).labels.size(); ++i) {
    result.emplace_back(examples.sequence(examples.part(split).sequences[i])[0],
                        examples.part(split).labels[i]);
  }
  return result;
}
using Pixels = std::vector<std::pair<int, int>>;

TEST(ImportImage, BinaryVersion) {
  const ScratchFolder folder;
  const auto batch = [](int label, uint8_t red, uint8_t green, uint8_t blue) {
    return std::string(1, static_cast<char>(label)) + colour_planes(red, green, blue);
  };
  // Two images a file: ten to learn from, of which the last validates.
  for (int i = 1; i <= 5; ++i) {
    write_bytes(folder / ("data_batch_" + std::to_string(i) + ".bin"),
                batch(i, 255, 0, 0) + batch(i + 4, 0, 255, 0));
  }
  write_bytes(folder / "test_batch.bin", batch(0, 0, 0, 255) + batch(3, 255, 255, 255));
  const ByteExamples read = import_image(folder.path());
  EXPECT_EQ(read.size(Split::kTrain), 9);
  EXPECT_EQ(first_pixels(read, Split::kValidation), (Pixels{{149, 9}}));     // floor(255.5 * 0.587)
  EXPECT_EQ(first_pixels(read, Split::kTest), (Pixels{{29, 0}, {255, 3}}));  // floor(255.5 * 0.114), white
  EXPECT_EQ(first_pixels(read, Split::kTrain)[0], (std::pair<int, int>(76, 1)));  // floor(255.5 * 0.2989)
  EXPECT_EQ(read.sequence(0).size(), 1024u);

  write_bytes(folder / "data_batch_3.bin", batch(12, 0, 0, 0));
  EXPECT_ERROR(import_image(folder.path()), "data_batch_3.bin: expected a label in 0..9 at byte 0; found 12");
  write_bytes(folder / "data_batch_3.bin", "abc");
  EXPECT_ERROR(import_image(folder.path()), "expected records of 3073 bytes");
  std::filesystem::remove(folder / "data_batch_3.bin");
  EXPECT_ERROR(import_image(folder.path()), "data_batch_3.bin is missing");
}

TEST(ImportImage, NamesTheBinaryDownloadForThePythonVersion) {
  const ScratchFolder folder;
  write_bytes(folder / "cifar-10-batches-py" / "data_batch_1", "\x80\x02}q");
  EXPECT_ERROR(import_image(folder.path()),
               "expected the binary version of CIFAR-10; found its Python version");
  EXPECT_ERROR(import_image(folder / "cifar-10-batches-py"), "cifar-10-binary.tar.gz");
}

TEST(ImportImage, RawFiles) {
  const ScratchFolder folder;
  std::string pixels, labels;
  for (int i = 0; i < 12; ++i) {
    pixels += std::string(1024, static_cast<char>(i));
    labels += static_cast<char>(i % 10);
  }
  const std::vector<uint8_t> packed =
      xz_compress({reinterpret_cast<const uint8_t*>(pixels.data()), pixels.size()});
  write_bytes(folder / "images-12x32x32.u8.xz", {packed.begin(), packed.end()});
  EXPECT_ERROR(import_image(folder.path()), "labels-12.u8; there is no such file");
  write_bytes(folder / "labels-12.u8", labels);
  const ByteExamples read = import_image(folder.path());
  EXPECT_EQ(read.size(Split::kTrain), 9);
  EXPECT_EQ(first_pixels(read, Split::kValidation), (Pixels{{9, 9}}));
  EXPECT_EQ(first_pixels(read, Split::kTest), (Pixels{{10, 0}, {11, 1}}));
  write_bytes(folder / "images-12x32x32.u8.xz", std::string(packed.begin(), packed.end()).substr(0, 40));
  EXPECT_ERROR(import_image(folder.path()), "expected xz data; the data ends too early");
  const ScratchFolder empty;
  EXPECT_ERROR(import_image(empty.path()), "found none of them");
}

// 8 x 6 pixels (7 x^2 + 31 y + 5 x y) mod 256, written by libpng.
TEST(Png, ReadsWhatLibpngWrites) {
  const ScratchFolder folder;
  const char* kAverage =
      "89504e470d0a1a0a0000000d4948445200000008000000060800000000db6e80270000003e4944415408996366609734"
      "0c2c5f7a93595e4249dbd4ce2390595f5a45cfdcd12b84d94e56ddc0cad9378cd94f41d3788f9bff4de658251d537b8f"
      "a0680045870cc65433ce140000000049454e44ae426082";
  const char* kPaeth =
      "89504e470d0a1a0a0000000d4948445200000008000000060800000000db6e80270000003e4944415408996361601755"
      "36b4f78d6691e791d230b6b04d60911794d735b6087762911753d133f6b375629197d6d433b6b075629157d0d4f3b2b0"
      "2d0100e56f0930cc72b5090000000049454e44ae426082";
  const char* kColour =
      "89504e470d0a1a0a0000000d4948445200000008000000060802000000716748ac000000764944415408992dcca10ac0"
      "2014055083605959d0a0e10e66984161bc6211c128cc6ab0f811fb7f165c3e7038634c0821a53ccff3beef9cf3f33c63"
      "0c0e60db36adf5755d4414634c29cd3939807ddf0178ef17f4de4b291c8052ca5a1b4220a2d65a4ae907638c736ec1aa"
      "7e388e6341ad75c1fbbe1f60fb1b5e2e73a80e0000000049454e44ae426082";
  for (const char* digits : {kAverage, kPaeth, kColour}) {
    std::string bytes = unhex(digits);
    write_bytes(folder / "a.png", bytes);
    const std::vector<uint8_t> pixels = read_grey_png(folder / "a.png", 8, 6);
    ASSERT_EQ(pixels.size(), 48u);
    for (int y = 0; y < 6; ++y) {
      for (int x = 0; x < 8; ++x) {
        EXPECT_EQ(pixels[static_cast<size_t>(y * 8 + x)], (7 * x * x + 31 * y + 5 * x * y) % 256)
            << y << " " << x;
      }
    }
    // Every byte is guarded, by a checksum or because the rest does not fit.
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string damaged = bytes;
      damaged[i] ^= 1;
      write_bytes(folder / "b.png", damaged);
      EXPECT_THROW(read_grey_png(folder / "b.png", 8, 6), c10::ValueError) << "byte " << i;
      write_bytes(folder / "b.png", bytes.substr(0, i));
      EXPECT_THROW(read_grey_png(folder / "b.png", 8, 6), c10::ValueError) << "cut at " << i;
    }
    EXPECT_ERROR(read_grey_png(folder / "b.png", 8, 6),
                 "b.png: expected an intact PNG file; libpng found: the file ends too early");
  }
}

TEST(Png, RefusesByTheHeader) {
  const ScratchFolder folder;
  const auto picture = [&](uint32_t width, uint32_t height, char depth, char colour, char interlacing) {
    const std::string kind({depth, colour, 0, 0, interlacing});
    write_bytes(folder / "a.png", "\x89PNG\r\n\x1a\n" +
                                      png_chunk("IHDR", big_endian32(width) + big_endian32(height) + kind) +
                                      png_chunk("IDAT", "no pixels") + png_chunk("IEND", ""));
    return read_grey_png(folder / "a.png", 32, 32);
  };
  EXPECT_ERROR(picture(1 << 14, 1 << 14, 8, 0, 0), "a.png: expected 32 x 32 pixels; found 16384 x 16384");
  EXPECT_ERROR(picture(32, 31, 8, 0, 0), "expected 32 x 32 pixels; found 32 x 31");
  EXPECT_ERROR(picture(32, 32, 16, 0, 0), "found depth 16, colour type 0, interlacing 0");
  EXPECT_ERROR(picture(32, 32, 8, 2, 1), "found depth 8, colour type 2, interlacing 1");
  EXPECT_ERROR(picture(32, 32, 8, 0, 0), "expected an intact PNG file; libpng found: IDAT");
  write_bytes(folder / "a.png", "");
  EXPECT_ERROR(read_grey_png(folder / "a.png", 32, 32), "expected an intact PNG file");
}

TEST(Png, RefusesColour) {
  const ScratchFolder folder;
  write_bytes(folder / "a.png", encode_png(2, 1, 3, std::vector<uint8_t>{9, 9, 9, 200, 201, 200}));
  EXPECT_ERROR(read_grey_png(folder / "a.png", 2, 1), "expected a grey picture; found a coloured pixel");
}

TEST(Png, ReadsWhatItWrites) {
  const ScratchFolder folder;
  const std::vector<uint8_t> grey = {0, 50, 100, 150, 200, 255}, colour = {9, 9, 9, 200, 200, 200};
  write_bytes(folder / "a.png", encode_png(3, 2, 1, grey));
  EXPECT_EQ(read_grey_png(folder / "a.png", 3, 2), grey);
  write_bytes(folder / "a.png", encode_png(2, 1, 3, colour));
  EXPECT_EQ(read_grey_png(folder / "a.png", 2, 1), (std::vector<uint8_t>{9, 200}));
  EXPECT_ERROR(encode_png(2, 2, 1, grey), "got 2 * 2 * 1 and 6 bytes");
}

TEST(ImportPathfinder, OfficialRelease) {
  const ScratchFolder folder;
  const std::filesystem::path hard = folder / "curv_contour_length_14";
  std::string first, second;
  for (int i = 0; i < 10; ++i) {
    const std::string name = "sample_" + std::to_string(i) + ".png";
    const std::string part = i < 5 ? "imgs/0" : "imgs/1";
    write_bytes(hard / part / name, grey_png(32, 32, std::string(1024, static_cast<char>(20 * i))));
    (i < 5 ? first : second) +=
        part + " " + name + " " + std::to_string(i) + " " + std::to_string(i % 2) + " 2.0 14 0.5\n";
  }
  write_bytes(hard / "imgs/0/sample_172.png", "");
  first += "imgs/0 sample_172.png 172 1 2.0\n";
  write_bytes(hard / "metadata/0.npy", first);
  write_bytes(hard / "metadata/1.npy", second);
  const ByteExamples read = import_pathfinder(folder.path());
  EXPECT_EQ(read.size(Split::kTrain), 8);
  EXPECT_EQ(read.size(Split::kValidation), 1);
  EXPECT_EQ(read.size(Split::kTest), 1);
  Pixels all;
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    for (const auto& example : first_pixels(read, split)) all.push_back(example);
  }
  EXPECT_FALSE(std::ranges::is_sorted(all));  // shuffled
  std::ranges::sort(all);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], (std::pair(20 * i, i % 2)));

  write_bytes(hard / "metadata/1.npy", "imgs/1 sample_77.png 0 1\n");
  EXPECT_ERROR(import_pathfinder(hard), "metadata/1.npy:1: expected the picture");
  write_bytes(hard / "metadata/1.npy", "imgs/1 sample_5.png 0 x\n");
  EXPECT_ERROR(import_pathfinder(hard),
               "metadata/1.npy:1: expected a label, a whole number below 2; found 'x'");
}

TEST(ImportText, OfficialFolder) {
  const ScratchFolder folder;
  for (int id = 0; id < 10; ++id) {
    const std::string name = std::to_string(id) + "_3.txt", word = std::to_string(id);
    write_bytes(folder / "aclImdb/train/neg" / name, "bad " + word);
    write_bytes(folder / "aclImdb/train/pos" / name, "good " + word);
  }
  write_bytes(folder / "aclImdb/test/neg/0_1.txt", "awful\nreally");
  write_bytes(folder / "aclImdb/test/pos/0_9.txt", "fine");
  write_bytes(folder / "aclImdb/train/unsup/0_0.txt", "unlabelled");
  const ByteExamples read = import_text(folder.path());
  EXPECT_EQ(read.size(Split::kTrain), 18);
  ASSERT_EQ(read.size(Split::kValidation), 2);  // the last of each label, by id
  const auto& held = read.part(Split::kValidation);
  EXPECT_EQ(text_of(read.sequence(held.sequences[0])), "bad 9");
  EXPECT_EQ(text_of(read.sequence(held.sequences[1])), "good 9");
  EXPECT_EQ(held.labels, (std::vector<uint8_t>{0, 1}));
  ASSERT_EQ(read.size(Split::kTest), 2);
  EXPECT_EQ(text_of(read.sequence(read.part(Split::kTest).sequences[0])), "awful\nreally");
  write_bytes(folder / "aclImdb/test/pos/notes.txt", "x");
  EXPECT_ERROR(import_text(folder.path()), "notes.txt: expected a name like 123_7.txt");
}

TEST(ImportText, Tables) {
  const ScratchFolder folder;
  write_bytes(folder / "train.tsv", "1\t5\t9\tgood\n0\t7\t2\tbad\n");
  EXPECT_ERROR(import_text(folder.path()), "found neither");
  write_bytes(folder / "test.tsv", "0\t5\t9\tmeh\r\n");
  const ByteExamples read = import_text(folder.path());
  EXPECT_EQ(read.size(Split::kTrain), 2);
  EXPECT_EQ(text_of(read.sequence(read.part(Split::kTest).sequences[0])), "meh");
  write_bytes(folder / "test.tsv", "0\t5\t9\tmeh\n2\t1\t1\tx\n");
  EXPECT_ERROR(import_text(folder.path()), "test.tsv:2: expected a label, a whole number below 2; found '2'");
  write_bytes(folder / "test.tsv", "0\t5\tmeh\n");
  EXPECT_ERROR(import_text(folder.path()),
               "test.tsv:1: expected 4 fields (label, id, rating, text); found 3");
}

TEST(ImportRetrieval, AanFiles) {
  const ScratchFolder folder;
  const std::string longer(5000, 'x');
  write_bytes(folder / "new_aan_pairs.train.tsv",
              "1.0\tA\tB\tfirst\t" + longer + "\n0\tB\tC\t" + longer + "\tthird\n");
  write_bytes(folder / "new_aan_pairs.eval.tsv", "0.0\tA\tC\tfirst\tthird\n");
  EXPECT_ERROR(import_retrieval(folder.path()), "new_aan_pairs.test.tsv is missing");
  write_bytes(folder / "new_aan_pairs.test.tsv", "1\tC\tA\tthird\tfirst\n");
  const ByteExamples read = import_retrieval(folder.path());
  EXPECT_EQ(read.towers, 2);
  EXPECT_EQ(read.sequences(), 3);  // each document once
  EXPECT_EQ(read.sequence(1).size(), 4000u);
  EXPECT_EQ(read.part(Split::kTrain).sequences, (std::vector<int32_t>{0, 1, 1, 2}));
  EXPECT_EQ(read.part(Split::kTrain).labels, (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(read.part(Split::kTest).sequences, (std::vector<int32_t>{2, 0}));
  write_bytes(folder / "new_aan_pairs.test.tsv", "0.5\tC\tA\tthird\tfirst\n");
  EXPECT_ERROR(import_retrieval(folder.path()), "new_aan_pairs.test.tsv:1: expected a label");
}

TEST(ImportRetrieval, DocumentsAndPairs) {
  const ScratchFolder folder;
  write_bytes(folder / "docs.tsv", "0\tzero\n1\tone\n2\ttwo\n");
  write_bytes(folder / "pairs.tsv", "train\t1\t2\t0\ndev\t0\t1\t1\ntest\t1\t0\t2\n");
  const ByteExamples read = import_retrieval(folder.path());
  EXPECT_EQ(read.part(Split::kTrain).sequences, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(read.size(Split::kValidation), 1);
  write_bytes(folder / "pairs.tsv", "train\t1\t2\t3\n");
  EXPECT_ERROR(import_retrieval(folder.path()),
               "pairs.tsv:1: expected the index of a document, a whole number below 3");
  write_bytes(folder / "pairs.tsv", "val\t1\t2\t0\n");
  EXPECT_ERROR(import_retrieval(folder.path()), "expected train, dev or test; found 'val'");
  write_bytes(folder / "docs.tsv", "0\tzero\n2\ttwo\n");
  EXPECT_ERROR(import_retrieval(folder.path()), "docs.tsv:2: expected document 1");
}

}  // namespace
}  // namespace edgewise::data
