#include "data/images/resize.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

namespace edgewise::data {

at::Tensor scaled(const Picture& picture, const PictureBox& box, const PictureSize& size) {
  // from_blob only looks: the result is a copy.
  const at::Tensor whole = at::from_blob(const_cast<uint8_t*>(picture.pixels.data()),
                                         {picture.size.height, picture.size.width, 3}, at::kByte);
  const at::Tensor part = whole.narrow(0, box.top, box.height).narrow(1, box.left, box.width);
  if (box.height == size.height && box.width == size.width) return part.clone(at::MemoryFormat::Contiguous);
  const at::Tensor planes = part.to(at::kFloat).permute({2, 0, 1}).unsqueeze(0).contiguous();
  return at::_upsample_bilinear2d_aa(planes, {size.height, size.width}, /*align_corners=*/false)
      .squeeze(0)
      .permute({1, 2, 0})
      .round()
      .clamp(0, 255)
      .to(at::kByte)
      .contiguous();
}

PictureBox middle_box(const PictureSize& picture, const PictureSize& size, double share) {
  const double scale =
      share * std::min(static_cast<double>(picture.height) / static_cast<double>(size.height),
                       static_cast<double>(picture.width) / static_cast<double>(size.width));
  const auto side = [&](int64_t wanted, int64_t most) {
    return std::clamp<int64_t>(std::llround(static_cast<double>(wanted) * scale), 1, most);
  };
  PictureBox box{.top = 0,
                 .left = 0,
                 .height = side(size.height, picture.height),
                 .width = side(size.width, picture.width)};
  box.top = (picture.height - box.height) / 2;
  box.left = (picture.width - box.width) / 2;
  return box;
}

Picture resized_middle(const Picture& picture, const PictureSize& size) {
  const at::Tensor pixels = scaled(picture, middle_box(picture.size, size), size);
  const uint8_t* const first = pixels.const_data_ptr<uint8_t>();
  return {.size = size, .pixels = {first, first + pixels.numel()}};
}

}  // namespace edgewise::data
