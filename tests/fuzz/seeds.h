// Small valid things that more than one group of targets needs.
#pragma once

#include <edgewise/train/snapshot.h>

namespace edgewise::fuzz {

train::Snapshot small_snapshot();

}  // namespace edgewise::fuzz
