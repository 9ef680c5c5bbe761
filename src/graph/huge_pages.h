// Huge pages for tensors that are read at random. A gather from a table of many megabytes finds its page in
// no TLB: on 4 KiB pages the walk through the page tables costs as much as the row itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <sys/mman.h>

#include <cstdint>

namespace edgewise::graph {

// Asks the kernel to back a tensor that nobody has written yet by huge pages, and returns it. Only a hint:
// where the system has none, nothing changes.
inline at::Tensor on_huge_pages(at::Tensor fresh) {
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  if (!fresh.is_cpu() || fresh.nbytes() < 2 * kPage) return fresh;
  const auto address = reinterpret_cast<uintptr_t>(fresh.mutable_data_ptr());
  const uintptr_t begin = (address + kPage - 1) / kPage * kPage,
                  end = (address + fresh.nbytes()) / kPage * kPage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  return fresh;
}

}  // namespace edgewise::graph
