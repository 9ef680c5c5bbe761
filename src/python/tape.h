// Tape: what an operation's forward pass leaves for its backward pass, which Python calls as an operation of
// its own: the graph that autograd recorded inside.
//
//   forward:   Tape tape = ...; outputs = f(tape.leaf(query), ...); ticket = keep(tape)
//   backward:  found by its ticket, or made again, then gradients(tape, grads)
//
// Both draw from the same seed, so a tape that is made again has the same edges.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "python/tickets.h"

namespace edgewise::python {

struct Tape : Kept {
  std::vector<at::Tensor> leaves;   // in the order in which leaf() was asked for
  std::vector<at::Tensor> outputs;  // with their graph

  // The same numbers without the caller's graph; recorded from here on.
  at::Tensor leaf(const at::Tensor& x);
};

// Null unless the ticket stands for a tape whose first leaves are like `inputs`.
std::shared_ptr<Tape> tape_of(const at::Tensor& ticket, const std::vector<at::Tensor>& inputs);
// Of every leaf, like it; zeros where nothing depends on it. grads: one for each output, undefined = none.
std::vector<at::Tensor> gradients(const Tape& tape, const std::vector<at::Tensor>& grads);

inline at::Tensor or_undefined(const std::optional<at::Tensor>& tensor) {
  return tensor ? *tensor : at::Tensor();
}

}  // namespace edgewise::python
