// Scaling of pictures: bilinear, widened where a picture gets smaller so that every pixel counts.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/data/images/picture.h>

namespace edgewise::data {

// A part of a picture.
struct PictureBox {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

// [box.height, box.width] of it as [size.height, size.width, 3], uint8.
at::Tensor scaled(const Picture& picture, const PictureBox& box, const PictureSize& size);

// The middle of a picture whose shape is `size`'s, as large as it goes, scaled to it. For squares this is the
// shorter side scaled to `size` and the middle cut out. `share` < 1 cuts closer: that share of each side.
PictureBox middle_box(const PictureSize& picture, const PictureSize& size, double share = 1);
Picture resized_middle(const Picture& picture, const PictureSize& size);

}  // namespace edgewise::data
