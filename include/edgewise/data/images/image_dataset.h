// Pictures as a data set: a picture is H x W tokens of three features, red, green and blue, each less its
// mean over its deviation in training. Training pictures are cropped and flipped anew in every pass.
//
// Index i of the training split is picture i % size in pass i / size: pass 0 gives it as it is, and each
// later pass draws its crop and its flip from a stream of the seed, the pass and the picture. So a batch
// depends on its indices alone, whatever thread asks, and a resumed run sees the same pictures.
#pragma once

#include <edgewise/data/images/image_data.h>

#include <string_view>

namespace edgewise::data {

// kPadding: the picture is shifted by up to `padding` pixels, with black ones behind it. kResized: a part of
// 8 to 100 % of the area, of proportions from 3:4 to 4:3, is scaled to the picture's size (ImageNet's).
enum class ImageCrop { kNone, kPadding, kResized };
ImageCrop parse_image_crop(std::string_view name);  // "none" | "padding" | "resized"

struct ImageDatasetOptions {
  ImageCrop crop = ImageCrop::kPadding;
  int64_t padding = 4;
  bool flip = true;  // left to right, every other time
  uint64_t seed = 0;
  // Training takes the validation pictures too, and validation those of the test, as published.
  bool validation_is_test = false;
  // Of pictures read from files in evaluation: the share of the shorter side that is seen.
  double middle = 0.875;
};

class ImageDataset : public Dataset {
 public:
  explicit ImageDataset(ImageData images, const ImageDatasetOptions& options = {});

  std::string name() const override { return "images"; }
  int64_t size(Split split) const override { return images_.part(split).size(); }
  int64_t vocabulary() const override { return 0; }
  int64_t features() const override { return 3; }
  int64_t classes() const override { return static_cast<int64_t>(images_.classes.size()); }
  int64_t max_length() const override { return images_.height * images_.width; }
  Batch batch(Split split, std::span<const int64_t> indices) const override;
  std::vector<Baseline> baselines(Split split) const override;
  std::string summary() const override;

  int64_t height() const { return images_.height; }
  int64_t width() const { return images_.width; }
  const ImageData& images() const { return images_; }
  // [H, W, 3] uint8: a picture as a batch has it, before it is normalised.
  at::Tensor pixels(Split split, int64_t index) const;

 private:
  ImageData images_;
  ImageDatasetOptions options_;
};

}  // namespace edgewise::data
