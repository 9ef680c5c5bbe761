// Bulk copies from global to shared memory by Hopper's copy engine, and the barriers in shared memory on
// which they complete: one thread asks for a whole stage, nobody computes addresses, and warps meet no one
// but the data.
#pragma once

#include <cstdint>

namespace edgewise::kernels::cuda {

// ---- barriers: 8 bytes of shared memory each ----

__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes fresh barriers visible to the copy engine; a block barrier must follow.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.shared::cta.b64 t, [%0];\n}\n" ::"r"(barrier) : "memory");
}
// Arrives, and lets the phase end only after `bytes` more have been copied.
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], %1;\n}\n" ::"r"(barrier),
               "r"(bytes)
               : "memory");
}
// Waits until the phase of this parity (0 for the first one, then 1, 0, ...) has ended.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Arrives when all of this thread's copies so far (cp.async) are there.
__device__ inline void barrier_arrive_with_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// ---- copies ----

// `bytes` (a multiple of 16, both sides aligned to 16) towards `barrier`, where they are expected.
__device__ inline void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace edgewise::kernels::cuda
