// Copies of 16 bytes from global to shared memory that nobody waits for until their group is asked for.
#pragma once

#include <cstdint>

namespace edgewise::kernels::cuda {

__device__ inline void copy_ahead(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Zeros where not `is_there`; `from` must be an address of the array even then.
__device__ inline void copy_or_clear(uint32_t to, const void* from, bool is_there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
}
// This thread's copies since the last call form a group.
__device__ inline void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all but the last kPending groups of this thread are there.
template <int kPending>
__device__ inline void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace edgewise::kernels::cuda
