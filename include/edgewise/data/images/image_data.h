// Pictures with classes, in the project's own file: images.safetensors in a folder, made by `edgewise data
// images`. Pixels stand in it, or, for sets too large for memory, the names of picture files.
//
// Tensors, for each of train, validation and test: SPLIT.labels int32 [n], and SPLIT.pixels uint8 [n, H, W,
// 3] or SPLIT.files uint8, names below the root each ended by a line break. Metadata: name, classes (one a
// line), height, width, mean and std of the training pixels (red, green, blue, of 1), root.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/data/dataset.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace edgewise::data {

struct ImagePart {
  at::Tensor pixels;               // [n, H, W, 3] uint8; undefined where files are named
  std::vector<std::string> files;  // below the root
  at::Tensor labels;               // [n] int32

  int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
};

struct ImageData {
  std::string name;
  std::vector<std::string> classes;
  int64_t height = 0, width = 0;  // of pixels; of files the size that a network reads
  std::array<double, 3> mean{}, std{};
  std::filesystem::path root;      // of the files; empty where the pixels are here
  std::array<ImagePart, 3> parts;  // by Split

  bool has_pixels() const { return root.empty(); }
  const ImagePart& part(Split split) const { return parts[static_cast<size_t>(split)]; }
  ImagePart& part(Split split) { return parts[static_cast<size_t>(split)]; }
};

std::filesystem::path images_path(const std::filesystem::path& folder);  // folder / images.safetensors

// Throws, with `origin` as the place, unless sizes, labels and classes fit together.
void check_images(const ImageData& images, const std::string& origin);
void save_images(const std::filesystem::path& folder, const ImageData& images);
ImageData load_images(const std::filesystem::path& folder);

// Of all training pixels, from whole-number sums: [0, 1].
void measure_colours(ImageData& images);

}  // namespace edgewise::data
