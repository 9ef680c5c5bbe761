// Pathfinder pictures in splits: eight tenths train, one validates, one tests.
#pragma once

#include <span>

#include <edgewise/data/byte_examples.h>

#include "data/readers/raw_images.h"

namespace edgewise::data {

// In the given order of pictures, or as they come when it is empty.
ByteExamples pathfinder_examples(const RawImages& images, std::span<const int64_t> order);

}  // namespace edgewise::data
