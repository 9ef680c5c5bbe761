// NystromAttention: Nystromformer (Xiong et al., arXiv 2102.03902). Attention through M landmarks, the means
// of runs of consecutive tokens:
//
//   q' = q / D^(1/4), k' = k / D^(1/4);  q~, k~ their landmarks
//   F = softmax(q' k~^T) [N, M],  A = softmax(q~ k~^T) [M, M],  B = softmax(q~ k'^T) [M, N]
//   out = F A^+ (B V) + convolution of V along the sequence, one kernel per head
//   A^+: Z <- Z/4 (13 I - A Z (15 I - A Z (7 I - A Z)))
//
//   paper     landmarks over the valid tokens of an item, in runs whose lengths differ by one at most, and
//   never
//             more of them than tokens; Z starts at A^T / (largest column sum), matrix by matrix
//   harness   padding tokens become 0 and count in the means; F and A are not masked; N must be a multiple of
//   M;
//             Z starts at A^T / (largest column sum of the whole batch), so items depend on their batch mates
#pragma once

#include <edgewise/attention/attention_method.h>

#include <torch/nn/pimpl.h>

#include <iosfwd>

namespace edgewise {

struct NystromAttentionOptions {
  explicit NystromAttentionOptions(int64_t num_heads, MethodMode mode = MethodMode::kPaper);

  int64_t num_heads;
  MethodMode mode;
  int64_t landmarks = 256;   // M
  int64_t iterations = 6;    // of the pseudo-inverse
  int64_t conv_kernel = 35;  // odd; 0 = no convolution
};

class NystromAttentionImpl : public AttentionMethod {
 public:
  explicit NystromAttentionImpl(NystromAttentionOptions options);
  at::Tensor attend(const MethodInput& input) override;
  void pretty_print(std::ostream& stream) const override;

  NystromAttentionOptions options;
  at::Tensor conv_weight;  // [H, 1, conv_kernel, 1]; undefined without convolution

 private:
  at::Tensor attend_paper(const MethodInput& input) const;
  at::Tensor attend_harness(const MethodInput& input) const;
  at::Tensor convolved(const at::Tensor& value) const;
};
TORCH_MODULE(NystromAttention);

// Z of the iteration above, from its start: [.., M, M].
at::Tensor pseudo_inverse(const at::Tensor& matrix, const at::Tensor& start, int64_t iterations);

}  // namespace edgewise
