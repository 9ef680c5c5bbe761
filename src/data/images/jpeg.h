// JPEG files in memory, through libjpeg: grey and colour pictures of 8 bits a channel, as red, green and
// blue.
#pragma once

#include <edgewise/data/images/picture.h>

#include <string>
#include <string_view>

namespace edgewise::data {

bool is_jpeg(std::string_view file);

// `name` stands for the file in messages. A picture of more pixels than `most` is refused from its header,
// before anything is allocated for it. Whatever libjpeg warns of, such as an early end, is an error.
PictureSize jpeg_size(std::string_view file, const std::string& name, int64_t most = kMostPixels);
Picture decode_jpeg(std::string_view file, const std::string& name, int64_t most = kMostPixels);

}  // namespace edgewise::data
