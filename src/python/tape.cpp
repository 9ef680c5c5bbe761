#include "python/tape.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

namespace edgewise::python {

at::Tensor Tape::leaf(const at::Tensor& x) {
  at::Tensor result = x.detach();
  if (at::GradMode::is_enabled()) result.requires_grad_();
  leaves.push_back(result);
  return result;
}

std::shared_ptr<Tape> tape_of(const at::Tensor& ticket, const std::vector<at::Tensor>& inputs) {
  std::shared_ptr<Tape> tape = kept_by<Tape>(ticket);
  if (!tape || tape->leaves.size() < inputs.size()) return nullptr;
  for (size_t n = 0; n < inputs.size(); ++n) {
    const at::Tensor &mine = tape->leaves[n], &theirs = inputs[n];
    if (mine.sizes() != theirs.sizes() || mine.scalar_type() != theirs.scalar_type() ||
        mine.device() != theirs.device())
      return nullptr;
  }
  return tape;
}

std::vector<at::Tensor> gradients(const Tape& tape, const std::vector<at::Tensor>& grads) {
  std::vector<at::Tensor> outputs, given, result(tape.leaves.size());
  for (size_t n = 0; n < tape.outputs.size(); ++n) {
    if (!grads[n].defined() || !tape.outputs[n].requires_grad()) continue;
    outputs.push_back(tape.outputs[n]);
    given.push_back(grads[n]);
  }
  if (!outputs.empty())
    result = torch::autograd::grad(outputs, tape.leaves, given, /*retain_graph=*/true, /*create_graph=*/false,
                                   /*allow_unused=*/true);
  for (size_t n = 0; n < result.size(); ++n) {
    const at::Tensor& leaf = tape.leaves[n];
    // Contiguous and of the leaf's type, as tracing was told.
    result[n] = result[n].defined() ? result[n].to(leaf.scalar_type()).contiguous()
                                    : at::zeros(leaf.sizes(), leaf.options().requires_grad(false));
  }
  return result;
}

}  // namespace edgewise::python
