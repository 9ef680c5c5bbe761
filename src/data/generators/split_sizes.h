// Sizes of the splits of data that are made on the fly.
#pragma once

#include <edgewise/data/dataset.h>

#include <c10/util/Exception.h>

namespace edgewise::data {

// Options: has train_size, validation_size and test_size.
template <typename Options>
void check_split_sizes(const char* who, const Options& options) {
  TORCH_CHECK_VALUE(options.train_size >= 1 && options.validation_size >= 1 && options.test_size >= 1, who,
                    ": expected every split to have at least 1 example; got train_size ", options.train_size,
                    ", validation_size ", options.validation_size, ", test_size ", options.test_size);
}

template <typename Options>
int64_t split_size(const Options& options, Split split) {
  switch (split) {
    case Split::kTrain:
      return options.train_size;
    case Split::kValidation:
      return options.validation_size;
    case Split::kTest:
      return options.test_size;
  }
  TORCH_INTERNAL_ASSERT(false);
}

}  // namespace edgewise::data
