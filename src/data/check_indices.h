// The check every dataset makes before it reads examples by index.
#pragma once

#include <c10/util/Exception.h>

#include <span>

#include <edgewise/data/dataset.h>

namespace edgewise::data {

inline void check_indices(const Dataset& dataset, Split split, std::span<const int64_t> indices) {
  const int64_t size = dataset.size(split);
  TORCH_CHECK_VALUE(!indices.empty(), dataset.name(), ": expected at least one index in a batch; got none");
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size, dataset.name(), ": expected an index in 0..", size - 1,
                      " of split ", to_string(split), "; got ", index);
  }
}

}  // namespace edgewise::data
