// The libraries that carry tensors from rank to rank, both torch's own: Gloo for tensors on the host, NCCL
// for those on GPUs.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace edgewise::train {

// `address`: of the network interface through which the other ranks reach this one; GLOO_SOCKET_IFNAME names
// another.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                            int64_t size, const std::string& address);

// Why there is no NCCL in this build or on this machine; empty when there is.
std::string nccl_refusal();
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                            int64_t size, at::Device device);

}  // namespace edgewise::train
