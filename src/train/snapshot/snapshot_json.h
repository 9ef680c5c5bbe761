// What a snapshot file says of itself beside its tensors, as JSON.
#pragma once

#include <edgewise/train/snapshot.h>

#include <string>

namespace edgewise::train {

std::string to_json(const Snapshot& snapshot);
// Checks every type and range; `file` is named in errors. Tensors stay undefined.
Snapshot snapshot_of_json(const std::string& text, const std::string& file);

}  // namespace edgewise::train
