// The two kinds of sources of import_images, and what they share.
#pragma once

#include <edgewise/data/images/import_images.h>

#include <optional>

namespace edgewise::data {

// Null where the folder holds no files of CIFAR's binary version.
std::optional<ImageData> import_cifar(const ImageImportOptions& options);
ImportedImages import_folders(const ImageImportOptions& options);

// Where a split has no pictures: a share of every class of train, drawn by the seed, moves there.
void hold_out(ImageData& images, Split split, const ImageImportOptions& options);

}  // namespace edgewise::data
