// The task "images" of the registry.
#pragma once

#include <edgewise/train/task_kinds.h>

namespace edgewise::train {

TaskKind image_kind();

}  // namespace edgewise::train
