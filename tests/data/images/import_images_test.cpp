// CIFAR's binary files and folders of classes into the project's file, and back from it.
#include <edgewise/data/images/import_images.h>

#include <edgewise/io/safetensors.h>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "data/expect_error.h"
#include "data/official_files.h"
#include "kit/picture_files.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;

std::string record(std::initializer_list<int> labels, uint8_t red, uint8_t green, uint8_t blue) {
  std::string bytes;
  for (const int label : labels) bytes += static_cast<char>(label);
  return bytes + colour_planes(red, green, blue);
}

void write_cifar10(const std::filesystem::path& folder) {
  for (int batch = 1; batch <= 5; ++batch) {
    std::string bytes;
    for (int n = 0; n < 4; ++n)
      bytes += record({n % 2}, static_cast<uint8_t>(10 * batch), static_cast<uint8_t>(n), 7);
    write_bytes(folder / ("data_batch_" + std::to_string(batch) + ".bin"), bytes);
  }
  write_bytes(folder / "test_batch.bin", record({9}, 1, 2, 3) + record({0}, 4, 5, 6));
}

int64_t label(const ImageData& images, Split split, int64_t index) {
  return images.part(split).labels[index].item<int64_t>();
}

TEST(ImportImages, Cifar10InItsOrder) {
  const ScratchFolder scratch;
  write_cifar10(scratch / "cifar-10-batches-bin");
  write_bytes(scratch / "cifar-10-batches-bin" / "batches.meta.txt",
              "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
  const ImageData images = import_images({.from = scratch.path(), .hold_out = 0.2}).images;
  EXPECT_EQ(images.name, "cifar10");
  EXPECT_EQ(images.classes.size(), 10u);
  EXPECT_EQ(images.classes[9], "truck");
  EXPECT_EQ(images.part(Split::kTrain).size(), 16);
  EXPECT_EQ(images.part(Split::kValidation).size(), 4) << "a fifth of each of two classes";
  EXPECT_EQ(label(images, Split::kTest, 0), 9);
  const at::Tensor pixels = images.part(Split::kTest).pixels;
  EXPECT_EQ(pixels.sizes(), (std::vector<int64_t>{2, 32, 32, 3}));
  for (int64_t colour = 0; colour < 3; ++colour)
    EXPECT_TRUE(pixels.select(0, 1).select(2, colour).eq(4 + colour).all().item<bool>());
}

TEST(ImportImages, Cifar100HasFineAndCoarseLabels) {
  const ScratchFolder scratch;
  write_bytes(scratch / "train.bin",
              record({3, 71}, 1, 1, 1) + record({3, 71}, 2, 2, 2) + record({19, 0}, 3, 3, 3));
  write_bytes(scratch / "test.bin", record({4, 99}, 1, 1, 1));
  const ImageData fine = import_images({.from = scratch.path()}).images,
                  coarse = import_images({.from = scratch.path(), .coarse = true}).images;
  EXPECT_EQ(fine.classes.size(), 100u);
  EXPECT_EQ(label(fine, Split::kTest, 0), 99);
  EXPECT_EQ(coarse.classes.size(), 20u);
  EXPECT_EQ(label(coarse, Split::kTest, 0), 4);
}

TEST(ImportImages, CifarFilesThatAreNotWholeAreErrors) {
  const ScratchFolder scratch;
  write_cifar10(scratch.path());
  write_bytes(scratch / "data_batch_3.bin", std::string(3072, 'x'));
  EXPECT_ERROR(import_images({.from = scratch.path()}), "data_batch_3.bin: expected records of 3073 bytes");
  write_bytes(scratch / "data_batch_3.bin", record({1}, 1, 1, 1) + record({10}, 1, 1, 1));
  EXPECT_ERROR(import_images({.from = scratch.path()}), "expected a label in 0..9 at byte 3073; found 10");
  std::filesystem::remove(scratch / "data_batch_3.bin");
  EXPECT_ERROR(import_images({.from = scratch.path()}), "data_batch_3.bin is missing");
}

TEST(ImportImages, FoldersOfClassesWithTheirSplits) {
  const ScratchFolder scratch;
  kit::write_bars(scratch / "bars", 8, 10, 4);
  kit::write_file(scratch / "bars" / "train" / "lying" / "notes.txt", "not a picture");
  const ImageData images = import_images({.from = scratch / "bars"}).images;
  EXPECT_EQ(images.name, "bars");
  EXPECT_EQ(images.classes, (std::vector<std::string>{"lying", "standing"}));
  EXPECT_EQ(images.part(Split::kTrain).size(), 10);
  EXPECT_EQ(images.part(Split::kValidation).size(), 4);
  EXPECT_EQ(images.part(Split::kTest).size(), 4);
  EXPECT_EQ(label(images, Split::kTrain, 0), 0);
  EXPECT_EQ(label(images, Split::kTrain, 9), 1);
  const std::vector<uint8_t> first = kit::bar_pixels(8, 0, 1);
  const at::Tensor pixels = images.part(Split::kTrain).pixels[0].flatten();
  for (size_t n = 0; n < first.size(); ++n)
    ASSERT_EQ(pixels[static_cast<int64_t>(n)].item<int64_t>(), first[n]) << n;
}

// ImageNet's: train and val; the test comes out of train.
TEST(ImportImages, WhatIsMissingIsHeldOutTheSameWayEveryTime) {
  const ScratchFolder scratch;
  kit::write_bars(scratch / "bars", 8, 20, 6);
  std::filesystem::rename(scratch / "bars" / "validation", scratch / "bars" / "val");
  std::filesystem::rename(scratch / "bars" / "test", scratch / "elsewhere");
  const ImageData a = import_images({.from = scratch / "bars"}).images,
                  b = import_images({.from = scratch / "bars"}).images,
                  other = import_images({.from = scratch / "bars", .seed = 1}).images;
  EXPECT_EQ(a.part(Split::kTrain).size(), 18);
  EXPECT_EQ(a.part(Split::kValidation).size(), 6);
  EXPECT_EQ(a.part(Split::kTest).size(), 2);
  EXPECT_NE(label(a, Split::kTest, 0), label(a, Split::kTest, 1)) << "one of each class";
  EXPECT_TRUE(torch::equal(a.part(Split::kTest).pixels, b.part(Split::kTest).pixels));
  EXPECT_FALSE(torch::equal(a.part(Split::kTest).pixels, other.part(Split::kTest).pixels));
}

TEST(ImportImages, FaultyPicturesAreNamedOrLeftOut) {
  const ScratchFolder scratch;
  kit::write_bars(scratch / "bars", 8, 10, 4);
  kit::write_file(scratch / "bars" / "train" / "lying" / "9.jpg", "\xFF\xD8\xFF cut");
  kit::write_file(scratch / "bars" / "train" / "lying" / "8.jpg",
                  kit::jpeg_of(8, 8, 4, std::vector<uint8_t>(256, 1)));
  EXPECT_ERROR(import_images({.from = scratch / "bars"}), "lying/8.jpg: expected a grey picture");
  const ImportedImages left = import_images({.from = scratch / "bars", .skip_faulty = true});
  EXPECT_EQ(left.left_out, 2);
  EXPECT_EQ(left.images.part(Split::kTrain).size(), 10);
}

TEST(ImportImages, MistakesInFoldersAreExplained) {
  const ScratchFolder scratch;
  EXPECT_ERROR(import_images({.from = scratch / "none"}), "expected a folder to read");
  EXPECT_ERROR(import_images({.from = scratch.path()}), "expected folders of at least two classes");
  kit::write_bars(scratch / "bars", 8, 4, 2);
  kit::write_file(scratch / "bars" / "train" / "standing" / "wide.png",
                  data::encode_png(9, 8, 3, kit::plain_pixels(8, 9, 1, 2, 3)));
  EXPECT_ERROR(import_images({.from = scratch / "bars"}),
               "wide.png: expected 8 x 8 pixels, as the first picture has");
  EXPECT_EQ(import_images({.from = scratch / "bars", .size = 6}).images.height, 6);
  EXPECT_ERROR(import_images({.from = scratch / "bars", .keep_files = true}),
               "expected --size N with --keep-files");
  std::filesystem::create_directories(scratch / "bars" / "train" / "empty");
  EXPECT_ERROR(import_images({.from = scratch / "bars", .size = 6}), "empty has none");
  std::filesystem::remove(scratch / "bars" / "train" / "empty");
  kit::write_file(scratch / "bars" / "test" / "tilted" / "0.png", "x");
  EXPECT_ERROR(import_images({.from = scratch / "bars", .size = 6}), "tilted is none of them");
}

TEST(ImageData, ComesBackFromItsFile) {
  const ScratchFolder scratch;
  kit::write_bars(scratch / "bars", 8, 10, 4);
  for (const bool keep_files : {false, true}) {
    const ImageData made =
        import_images({.from = scratch / "bars", .size = 8, .keep_files = keep_files}).images;
    save_images(scratch / "data", made);
    const ImageData read = load_images(scratch / "data");
    EXPECT_EQ(read.classes, made.classes);
    EXPECT_EQ(read.mean, made.mean);
    EXPECT_EQ(read.std, made.std);
    EXPECT_EQ(read.root, made.root);
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
      EXPECT_TRUE(torch::equal(read.part(split).labels, made.part(split).labels));
      EXPECT_EQ(read.part(split).files, made.part(split).files);
      if (!keep_files) {
        EXPECT_TRUE(torch::equal(read.part(split).pixels, made.part(split).pixels));
      }
    }
  }
}

TEST(ImageData, FilesThatDoNotFitAreErrors) {
  const ScratchFolder scratch;
  kit::write_bars(scratch / "bars", 8, 10, 4);
  const ImageData made = import_images({.from = scratch / "bars"}).images;
  save_images(scratch / "data", made);
  const std::filesystem::path path = images_path(scratch / "data");
  const auto with = [&](auto change) {
    io::TensorFile file = io::load_safetensors(path);
    file.metadata.erase("edgewise.crc32c");
    change(file);
    io::save_safetensors(images_path(scratch / "changed"), file);
    return scratch / "changed";
  };
  std::filesystem::create_directories(scratch / "changed");
  EXPECT_ERROR(load_images(scratch / "none"), "edgewise data images --from SOURCE --out");
  EXPECT_ERROR(load_images(with([](auto& file) { file.metadata["height"] = "9"; })),
               "expected pixels of train");
  EXPECT_ERROR(load_images(with([](auto& file) { file.metadata["width"] = "-1"; })),
               "whole number called width");
  EXPECT_ERROR(load_images(with([](auto& file) { file.metadata["classes"] = "one\n"; })),
               "at least two classes");
  EXPECT_ERROR(load_images(with([](auto& file) { file.metadata["std"] = "0 1 1"; })), "a deviation above 0");
  EXPECT_ERROR(load_images(with([](auto& file) { file.metadata["format"] = "other"; })),
               "written by 'edgewise data");
  EXPECT_ERROR(load_images(with([](auto& file) { file.tensors["test.labels"][1] = 2; })),
               "expected labels in 0..1; picture 1 of test has 2");
  EXPECT_ERROR(load_images(with([](auto& file) { file.tensors.erase("train.pixels"); })),
               "called train.pixels");
  const std::string whole = scratch.read("data/images.safetensors");
  scratch.write("changed/images.safetensors", whole.substr(0, whole.size() - 5));
  EXPECT_THROW(load_images(scratch / "changed"), c10::Error);
}

}  // namespace
}  // namespace edgewise::data
