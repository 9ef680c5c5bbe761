#include <edgewise/data/images/import_images.h>

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "data/generators/uniform_below.h"
#include "data/images/import_parts.h"
#include "kernels/philox.h"

namespace edgewise::data {
namespace {

constexpr uint32_t kStreamLayer = 102;  // apart from the streams of other data

ImagePart taken(const ImagePart& part, const std::vector<int64_t>& places) {
  const at::Tensor index = at::tensor(places, at::kLong);
  ImagePart result{.pixels = {}, .files = {}, .labels = part.labels.index_select(0, index)};
  if (part.pixels.defined()) result.pixels = part.pixels.index_select(0, index);
  if (!part.files.empty())
    for (const int64_t place : places) result.files.push_back(part.files[static_cast<size_t>(place)]);
  return result;
}

// A place without pictures where pixels are kept still has their shape.
void complete(ImageData& images) {
  for (ImagePart& part : images.parts) {
    if (!part.labels.defined()) part.labels = at::empty({0}, at::kInt);
    if (images.has_pixels() && !part.pixels.defined())
      part.pixels = at::empty({0, images.height, images.width, 3}, at::kByte);
  }
}

// The deviation of ImageNet's pixels, which stand for those of files that are read while training.
constexpr std::array<double, 3> kMean = {0.485, 0.456, 0.406}, kStd = {0.229, 0.224, 0.225};

}  // namespace

void hold_out(ImageData& images, Split split, const ImageImportOptions& options) {
  ImagePart& train = images.part(Split::kTrain);
  std::vector<std::vector<int64_t>> by_class(images.classes.size());
  for (int64_t n = 0; n < train.size(); ++n)
    by_class[static_cast<size_t>(train.labels.const_data_ptr<int32_t>()[n])].push_back(n);
  std::vector<int64_t> held, kept;
  for (size_t label = 0; label < by_class.size(); ++label) {
    std::vector<int64_t>& places = by_class[label];
    kernels::RowStream stream(kernels::stream_key(options.seed, static_cast<uint64_t>(split), kStreamLayer,
                                                  static_cast<int64_t>(label), 0, kernels::Purpose::kShuffle),
                              0);
    for (size_t n = places.size(); n > 1; --n) std::swap(places[n - 1], places[uniform_below(stream, n)]);
    const auto count =
        static_cast<int64_t>(std::lround(options.hold_out * static_cast<double>(places.size())));
    const int64_t most = std::max<int64_t>(std::ssize(places) - 1, 0);
    const int64_t out = std::clamp<int64_t>(count, std::min<int64_t>(1, most), most);
    held.insert(held.end(), places.begin(), places.begin() + out);
    kept.insert(kept.end(), places.begin() + out, places.end());
  }
  TORCH_CHECK_VALUE(
      !held.empty(), "data images: expected at least two pictures of some class, to hold one out for ",
      to_string(split), "; found ", train.size(), " pictures in ", images.classes.size(), " classes");
  std::ranges::sort(held);
  std::ranges::sort(kept);
  images.part(split) = taken(train, held);
  train = taken(train, kept);
}

ImportedImages import_images(const ImageImportOptions& options) {
  TORCH_CHECK_VALUE(std::filesystem::is_directory(options.from), "data images: expected a folder to read; '",
                    options.from.string(), "' is none");
  ImportedImages result;
  if (std::optional<ImageData> cifar = import_cifar(options))
    result.images = std::move(*cifar);
  else
    result = import_folders(options);
  ImageData& images = result.images;
  // Test first: where both are missing, validation comes out of what is left.
  for (const Split split : {Split::kTest, Split::kValidation})
    if (images.part(split).size() == 0) hold_out(images, split, options);
  complete(images);
  if (images.has_pixels())
    measure_colours(images);
  else
    images.mean = kMean, images.std = kStd;
  check_images(images, "data images");
  return result;
}

}  // namespace edgewise::data
