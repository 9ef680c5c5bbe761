// Counts the multiply-adds of the matrix products and convolutions that torch runs, as its own FLOP counter
// defines them.
#pragma once

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <string_view>

namespace edgewise::kit {

class MultiplyAdds {
 public:
  // What `work` runs on this thread.
  template <typename Work>
  static double of(const Work& work) {
    total_ = 0;
    inside_convolution_ = 0;
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&begin, &end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    work();
    at::removeCallback(handle);
    return total_;
  }

 private:
  struct Convolution : at::ObserverContext {
    ~Convolution() override { --inside_convolution_; }
  };

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    const auto tensor = [&](size_t n) { return function.inputs()[n].toTensor(); };
    if (name == "aten::convolution") {
      // Stride 1 and padding that keeps the size: as many outputs per channel as inputs.
      const at::Tensor input = tensor(0), weight = tensor(1);
      total_ += static_cast<double>(input.size(0) * input.size(2) * input.size(3) * weight.numel());
      ++inside_convolution_;
      return std::make_unique<Convolution>();
    }
    if (inside_convolution_ > 0) return nullptr;
    const bool product = name == "aten::mm" || name == "aten::bmm";
    const bool sum = name == "aten::addmm" || name == "aten::baddbmm";
    if (!product && !sum) return nullptr;
    const at::Tensor left = tensor(product ? 0 : 1), right = tensor(product ? 1 : 2);
    total_ += static_cast<double>(left.numel() * right.size(-1));
    return nullptr;
  }
  static void end(const at::RecordFunction&, at::ObserverContext*) {}

  inline static thread_local double total_ = 0;
  inline static thread_local int inside_convolution_ = 0;
};

}  // namespace edgewise::kit
