// LinearAttention (Katharopoulos et al., arXiv 2006.16236), with phi(x) = elu(x) + 1:
//
//   paper     out_i = phi(q_i) S / (phi(q_i) . s + 1e-6),  S = sum_j phi(k_j) v_j^T,  s = sum_j phi(k_j)
//   harness   out_i = phi(q_i) S / sqrt(N): no denominator, and N, the padded length, in place of D
#pragma once

#include <edgewise/attention/attention_method.h>

#include <torch/nn/pimpl.h>

#include <iosfwd>

namespace edgewise {

class LinearAttentionImpl : public AttentionMethod {
 public:
  explicit LinearAttentionImpl(MethodMode mode = MethodMode::kPaper);
  at::Tensor attend(const MethodInput& input) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  MethodMode mode_;
};
TORCH_MODULE(LinearAttention);

}  // namespace edgewise
