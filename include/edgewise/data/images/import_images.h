// Pictures with classes from the forms that they are distributed in:
//
//   CIFAR-10, CIFAR-100    the binary version: data_batch_1.bin .. 5 and test_batch.bin, or train.bin and
//   test.bin folders of classes     train/CLASS/*, and where there are any validation/CLASS/* (or val) and
//   test/CLASS/*
//                          (ImageNet's layout); or CLASS/* alone
#pragma once

#include <edgewise/data/images/image_data.h>

#include <functional>

namespace edgewise::data {

struct ImageImportOptions {
  std::filesystem::path from;
  // Pictures become size x size: the shorter side scaled to it, the middle cut out. 0: as they are, all
  // alike.
  int64_t size = 0;
  bool keep_files = false;   // write the names of picture files in place of pixels
  double hold_out = 0.1;     // share of every class of the training pictures that validates, where none do
  uint64_t seed = 0;         // which ones
  bool coarse = false;       // CIFAR-100: the 20 groups of classes
  bool skip_faulty = false;  // leave out pictures that cannot be read
  std::function<void(int64_t done, int64_t total)> progress = {};
};

struct ImportedImages {
  ImageData images;
  int64_t left_out = 0;
  std::string first_fault;  // of those left out
};

// Throws, naming the file, for what cannot be read, and for classes without a picture.
ImportedImages import_images(const ImageImportOptions& options);

}  // namespace edgewise::data
