// The kernels of attention over squares, in one table, in order: the first that does not refuse a call runs
// it.
#pragma once

#include <edgewise/ops/functional.h>

#include <span>
#include <string>

#include "ops/squares/square_attention.h"

namespace edgewise::ops {

struct SquareKernel {
  const char* name;
  // Why the kernel does not run the call; empty when it does. Every limit of a kernel stands here, and here
  // alone.
  std::string (*refusal)(const SquareCall&, functional::Backend);
  SquareForward (*forward)(const SquareCall&);
  SquareBackward (*backward)(const SquareCall&, const SquareForward&, const at::Tensor& grad_output,
                             const SquareCredit&);
};

std::span<const SquareKernel> square_kernels();
// Throws with every refusal when there is none.
const SquareKernel& choose_square_kernel(const SquareCall& call, functional::Backend backend);

}  // namespace edgewise::ops
