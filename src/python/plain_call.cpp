#include "python/plain_call.h"

#include <c10/core/InferenceMode.h>

#include <utility>

namespace edgewise::python {

PlainCall::PlainCall(bool differentiable)
    : records_(differentiable && !c10::InferenceMode::is_enabled()), grad_mode_(records_) {
  functorch_ = std::move(at::functorch::functorchTLSAccessor());
  if (const auto& hooks = at::SavedTensorDefaultHooks::get_tls_state(); !hooks.stack.empty()) {
    hooks_ = hooks;
    at::SavedTensorDefaultHooks::set_tls_state({});
  }
  // Inference mode lives in these keys too.
  if (!c10::InferenceMode::is_enabled())
    keys_.emplace(c10::impl::LocalDispatchKeySet(c10::impl::PODLocalDispatchKeySet{0, 0}));
}

PlainCall::~PlainCall() {
  keys_.reset();
  if (hooks_) at::SavedTensorDefaultHooks::set_tls_state(*hooks_);
  at::functorch::functorchTLSAccessor() = std::move(functorch_);
}

}  // namespace edgewise::python
