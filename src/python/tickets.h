// Tickets: an operation that Python calls leaves something for a later one.
//
// Operations of torch pass tensors alone, so what a plan or a backward pass can use again travels as a
// ticket: an int64 tensor [1] on the CPU that holds a number. What it stands for lives as long as the memory
// of that tensor. A ticket that was copied, saved to a file or made up stands for nothing, and then the
// operation does the work again; so tickets change how long a call takes, never what it gives.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace edgewise::python {

// Everything that a ticket may stand for.
struct Kept {
  virtual ~Kept() = default;
};

at::Tensor make_ticket(std::shared_ptr<Kept> kept);
at::Tensor empty_ticket();  // stands for nothing
// Null when the ticket stands for nothing.
std::shared_ptr<Kept> find_kept(const at::Tensor& ticket);

template <typename T>
std::shared_ptr<T> kept_by(const at::Tensor& ticket) {
  return std::dynamic_pointer_cast<T>(find_kept(ticket));
}

}  // namespace edgewise::python
