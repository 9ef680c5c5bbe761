// Attention over squares on CUDA: as long as there are no kernels for it, the reference computes it there.
#include "ops/squares/square_attention.h"

namespace edgewise::ops {
namespace {

constexpr const char* kWhy = "there are no CUDA kernels over squares yet; the reference computes them";

}  // namespace

std::string cuda_square_refusal(const SquareCall&) {
  return kWhy;
}
SquareForward cuda_square_forward(const SquareCall&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "square_forward: ", kWhy);
}
SquareBackward cuda_square_backward(const SquareCall&, const SquareForward&, const at::Tensor&,
                                    const SquareCredit&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "square_backward: ", kWhy);
}

}  // namespace edgewise::ops
