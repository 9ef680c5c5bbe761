// PlainCall: inside an operation that Python calls, torch as it is on a thread of its own.
//
// The operation's own kernels and autograd functions are not what the caller transforms: functorch, dispatch
// modes, autocast and hooks on saved tensors have seen the call as a whole, and must not see its parts.
#pragma once

#include <ATen/FuncTorchTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <optional>

namespace edgewise::python {

class PlainCall {
 public:
  // differentiable: autograd records what is done under this guard. Never in inference mode.
  explicit PlainCall(bool differentiable);
  ~PlainCall();
  PlainCall(const PlainCall&) = delete;
  PlainCall& operator=(const PlainCall&) = delete;

  bool records() const { return records_; }

 private:
  bool records_;
  std::optional<c10::impl::ForceDispatchKeyGuard> keys_;
  std::unique_ptr<at::functorch::FuncTorchTLSBase> functorch_;
  std::optional<at::impl::SavedTensorDefaultHooksTLS> hooks_;
  at::AutoGradMode grad_mode_;
};

}  // namespace edgewise::python
