// Words in shared memory by 32-bit addresses, which the compiler adds up in one register where pointers take
// two.
#pragma once

#include <cstdint>

namespace edgewise::kernels::cuda {

__device__ inline uint32_t word_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void store_word(uint32_t at, uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(word) : "memory");
}
__device__ inline uint32_t load_word(uint32_t at) {
  uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
  return word;
}
__device__ inline uint4 load_four_words(uint32_t at) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(at)
               : "memory");
  return words;
}

}  // namespace edgewise::kernels::cuda
