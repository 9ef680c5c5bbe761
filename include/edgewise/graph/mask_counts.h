// How many tokens of each item a mask allows, on the host. A mask on a GPU would have to be waited for, and
// with it all that is queued there; so whoever copied it there tells what the host knew, and what had to be
// waited for once is not asked again.
#pragma once

#include <ATen/core/Tensor.h>

namespace edgewise {

// mask [B, N] bool -> [B] int64 on the CPU.
at::Tensor mask_counts(const at::Tensor& mask);
// The same of groups of 16 neighbouring tokens: how many have a token that is allowed.
at::Tensor mask_group_counts(const at::Tensor& mask);

// `mask` on a device is a copy of `host_mask`. Holds until either is gone or written to.
void remember_mask_counts(const at::Tensor& mask, const at::Tensor& host_mask);

}  // namespace edgewise
