// The kernels of edge_attention, in one table, in order: the first that does not refuse a call runs it.
#pragma once

#include <edgewise/ops/explain.h>

#include <span>
#include <string>

#include "ops/attention/attention_call.h"

namespace edgewise::ops {

using KernelRefusal = std::string(const AttentionCall&);
using KernelForward = AttentionForward(const AttentionInputs&);
using KernelBackward = AttentionBackward(const AttentionInputs&, const AttentionForward&,
                                         const at::Tensor& grad_output, const at::Tensor& density_grad);

struct AttentionKernel {
  const char* name;
  // Why the kernel does not run the call; empty when it does. Every limit of a kernel stands here, and here
  // alone. Refusals may ask other refusals.
  KernelRefusal* refusal;
  KernelForward* forward;
  // Of a call that the kernel ran forward, or would have run. With a learner it gives a number per edge and
  // per probe, or the gradients of the memberships.
  KernelBackward* backward;
};

std::span<const AttentionKernel> attention_kernels();
// Throws with every refusal when there is none.
const AttentionKernel& choose_kernel(const AttentionCall& call);
// The call with the number of its edges where the choice among the references needs it: they list the edges.
AttentionCall counted_call(const AttentionInputs& in);
AttentionChoice explain_call(const AttentionCall& call);

// A refusal for calls on other devices, or that ask for another back end.
std::string not_for(const AttentionCall& call, at::DeviceType device);

}  // namespace edgewise::ops
