#include <edgewise/data/images/image_dataset.h>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/generators/uniform_below.h"
#include "data/images/resize.h"
#include "kernels/philox.h"

namespace edgewise::data {
namespace {

constexpr uint32_t kStreamLayer = 103;  // apart from the streams of other data

// A part of the picture as torchvision's RandomResizedCrop draws it: ten tries, then the middle.
PictureBox drawn_box(const PictureSize& picture, const PictureSize& wanted, kernels::RowStream& stream) {
  constexpr double kLeastArea = 0.08, kLeastRatio = 3.0 / 4, kMostRatio = 4.0 / 3;
  const double area = static_cast<double>(picture.height) * static_cast<double>(picture.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double part = area * (kLeastArea + (1 - kLeastArea) * stream.next_uniform());
    const double ratio = std::exp(std::log(kLeastRatio) +
                                  (std::log(kMostRatio) - std::log(kLeastRatio)) * stream.next_uniform());
    const int64_t height = std::llround(std::sqrt(part / ratio)),
                  width = std::llround(std::sqrt(part * ratio));
    if (height < 1 || width < 1 || height > picture.height || width > picture.width) continue;
    const auto room = [](int64_t all, int64_t taken) { return static_cast<uint64_t>(all - taken + 1); };
    const auto top = static_cast<int64_t>(uniform_below(stream, room(picture.height, height)));
    const auto left = static_cast<int64_t>(uniform_below(stream, room(picture.width, width)));
    return {top, left, height, width};
  }
  return middle_box(picture, wanted);
}

// Mirrors rows of three bytes a pixel, [height, width, 3].
void mirror(uint8_t* pixels, const PictureSize& size) {
  for (int64_t y = 0; y < size.height; ++y) {
    uint8_t* const row = pixels + y * size.width * 3;
    for (int64_t x = 0; x < size.width / 2; ++x)
      std::swap_ranges(row + 3 * x, row + 3 * x + 3, row + 3 * (size.width - 1 - x));
  }
}

// from shifted by (down, right) with black pixels behind it, into `to`; [height, width, 3] both.
void shift(const uint8_t* from, uint8_t* to, const PictureSize& size, int64_t down, int64_t right) {
  std::memset(to, 0, static_cast<size_t>(3 * size.height * size.width));
  const int64_t first = std::max<int64_t>(right, 0), count = size.width - std::abs(right);
  if (count <= 0) return;
  for (int64_t y = std::max<int64_t>(down, 0); y < size.height + std::min<int64_t>(down, 0); ++y)
    std::memcpy(to + 3 * (y * size.width + first), from + 3 * ((y - down) * size.width + first - right),
                static_cast<size_t>(3 * count));
}

}  // namespace

ImageCrop parse_image_crop(std::string_view name) {
  if (name == "none") return ImageCrop::kNone;
  if (name == "padding") return ImageCrop::kPadding;
  if (name == "resized") return ImageCrop::kResized;
  TORCH_CHECK_VALUE(false, "crop: expected none, padding or resized; got '", name, "'");
}

ImageDataset::ImageDataset(ImageData images, const ImageDatasetOptions& options)
    : images_(std::move(images)), options_(options) {
  check_images(images_, images_.name);
  TORCH_CHECK_VALUE(options.padding >= 0 && options.padding < std::min(images_.height, images_.width),
                    "images: expected a padding of at least 0 and below the size of pictures, ",
                    images_.height, " x ", images_.width, "; got ", options.padding);
  TORCH_CHECK_VALUE(options.middle > 0 && options.middle <= 1, "images: expected a middle in (0, 1]; got ",
                    options.middle);
  if (!options.validation_is_test) return;
  ImagePart &train = images_.part(Split::kTrain), &validation = images_.part(Split::kValidation);
  train.labels = at::cat({train.labels, validation.labels});
  if (train.pixels.defined()) train.pixels = at::cat({train.pixels, validation.pixels});
  train.files.insert(train.files.end(), validation.files.begin(), validation.files.end());
  validation = images_.part(Split::kTest);
}

at::Tensor ImageDataset::pixels(Split split, int64_t index) const {
  const ImagePart& part = images_.part(split);
  const int64_t picture = index % part.size(), pass = index / part.size();
  const PictureSize size{images_.height, images_.width};
  kernels::RowStream stream(kernels::stream_key(options_.seed, static_cast<uint64_t>(pass), kStreamLayer,
                                                picture, 0, kernels::Purpose::kData),
                            0);
  const bool is_drawn = pass > 0;
  at::Tensor result;
  if (images_.has_pixels() && (!is_drawn || options_.crop != ImageCrop::kResized)) {
    const at::Tensor whole = part.pixels.select(0, picture);
    if (is_drawn && options_.crop == ImageCrop::kPadding && options_.padding > 0) {
      const auto range = static_cast<uint64_t>(2 * options_.padding + 1);
      const int64_t down = static_cast<int64_t>(uniform_below(stream, range)) - options_.padding;
      const int64_t right = static_cast<int64_t>(uniform_below(stream, range)) - options_.padding;
      result = at::empty_like(whole);
      shift(whole.const_data_ptr<uint8_t>(), result.mutable_data_ptr<uint8_t>(), size, down, right);
    } else {
      result = whole.clone();
    }
  } else {
    Picture found;
    if (images_.has_pixels()) {
      const at::Tensor whole = part.pixels.select(0, picture);
      const uint8_t* const first = whole.const_data_ptr<uint8_t>();
      found = {.size = size, .pixels = {first, first + whole.numel()}};
    } else {
      found = read_picture(images_.root / part.files[static_cast<size_t>(picture)]);
    }
    const PictureBox box = is_drawn && options_.crop == ImageCrop::kResized
                               ? drawn_box(found.size, size, stream)
                               : middle_box(found.size, size, is_drawn ? 1 : options_.middle);
    result = scaled(found, box, size);
  }
  if (is_drawn && options_.flip && stream.next32() % 2 == 1) mirror(result.mutable_data_ptr<uint8_t>(), size);
  return result;
}

Batch ImageDataset::batch(Split split, std::span<const int64_t> indices) const {
  const ImagePart& part = images_.part(split);
  const int64_t count = std::ssize(indices), pixel_count = images_.height * images_.width;
  TORCH_CHECK_VALUE(count > 0, "images: expected at least one index in a batch; got none");
  for (const int64_t index : indices)  // training pictures come again in every pass
    TORCH_CHECK_INDEX(index >= 0 && part.size() > 0 && (split == Split::kTrain || index < part.size()),
                      "images: expected an index in 0..", part.size() - 1, " of split ", to_string(split),
                      "; got ", index);
  at::Tensor features = at::empty({count, pixel_count, 3}, at::kFloat),
             labels = at::empty({count}, at::kLong);
  float* const numbers = features.mutable_data_ptr<float>();
  std::array<std::array<float, 256>, 3> normalised;  // of every byte, by colour
  for (size_t c = 0; c < 3; ++c)
    for (size_t byte = 0; byte < 256; ++byte)
      normalised[c][byte] =
          static_cast<float>((static_cast<double>(byte) / 255 - images_.mean[c]) / images_.std[c]);
  at::parallel_for(0, count, 8, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t index = indices[static_cast<size_t>(n)];
      const at::Tensor bytes = pixels(split, index);
      const uint8_t* const from = bytes.const_data_ptr<uint8_t>();
      float* const to = numbers + n * 3 * pixel_count;
      for (int64_t k = 0; k < 3 * pixel_count; ++k) to[k] = normalised[static_cast<size_t>(k % 3)][from[k]];
      labels.mutable_data_ptr<int64_t>()[n] = part.labels.const_data_ptr<int32_t>()[index % part.size()];
    }
  });
  Batch result;
  result.towers.push_back({.features = features});
  result.labels = labels;
  return result;
}

std::vector<Baseline> ImageDataset::baselines(Split split) const {
  if (size(split) == 0) return {};
  const at::Tensor& train = images_.part(Split::kTrain).labels;
  const auto best = train.bincount({}, classes()).argmax();
  return {{"most frequent label of train",
           images_.part(split).labels.eq(best).to(at::kDouble).mean().item<double>()}};
}

std::string ImageDataset::summary() const {
  return "the pictures " + images_.name + " of " + std::to_string(images_.height) + " x " +
         std::to_string(images_.width) + " pixels in " + std::to_string(images_.classes.size()) +
         " classes: " + std::to_string(size(Split::kTrain)) + " train, " +
         std::to_string(size(Split::kValidation)) + " validate, " + std::to_string(size(Split::kTest)) +
         " test";
}

}  // namespace edgewise::data
