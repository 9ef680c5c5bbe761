// Copies as the header of this name has them, made at once.
#pragma once

#include "kernels/cuda/device/shared_words.cuh"

namespace edgewise::kernels::cuda {

inline void copy_or_clear(uint32_t to, const void* from, bool is_there) {
  char* const at = word_memory(nullptr) + to;
  if (is_there)
    std::memcpy(at, from, 16);
  else
    std::memset(at, 0, 16);
}
inline void copy_ahead(uint32_t to, const void* from) {
  copy_or_clear(to, from, true);
}
inline void end_copies() {}
template <int kPending>
void await_copies() {}

}  // namespace edgewise::kernels::cuda
