// Words in shared memory as the header of this name has them: addresses count from the first array that is
// asked for, which lies where its alignment says.
#pragma once

#include "simt.h"

namespace edgewise::kernels::cuda {

inline char* word_memory(const void* pointer) {
  static char* const start =
      reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(pointer) / 1024 * 1024) - (1 << 30);
  return start;
}
inline uint32_t word_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - word_memory(pointer));
}
inline void store_word(uint32_t at, uint32_t word) {
  std::memcpy(word_memory(nullptr) + at, &word, sizeof word);
}
inline uint32_t load_word(uint32_t at) {
  uint32_t word;
  std::memcpy(&word, word_memory(nullptr) + at, sizeof word);
  return word;
}
inline uint4 load_four_words(uint32_t at) {
  uint4 words;
  std::memcpy(&words, word_memory(nullptr) + at, sizeof words);
  return words;
}

}  // namespace edgewise::kernels::cuda
