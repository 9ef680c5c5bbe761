// PerformerAttention: FAVOR+ (Choromanski et al., arXiv 2009.14794). exp(q . k / sqrt(D)) is estimated by
// phi(q) . phi(k), with positive orthogonal random features:
//
//   x' = x / D^(1/4)
//   phi(x)_r = (exp(w_r . x' - |x'|^2 / 2 - c) + eps) / sqrt(M)      c keeps exp in range
//   out_i = phi(q_i) S / (phi(q_i) . s),  S = sum_j phi(k_j) v_j^T,  s = sum_j phi(k_j)
//
//   paper     eps = 1e-6; features drawn anew every `redraw_every` training steps; padding adds nothing
//   harness   eps = 1e-4; features never drawn anew; q and k divided by D^(1/4) twice; padding keys become 0,
//             but phi(0) is not 0, so they stay in the denominator
#pragma once

#include <edgewise/attention/attention_method.h>

#include <torch/nn/pimpl.h>

#include <iosfwd>

namespace edgewise {

struct PerformerAttentionOptions {
  explicit PerformerAttentionOptions(int64_t head_dim, MethodMode mode = MethodMode::kPaper);

  int64_t head_dim;
  MethodMode mode;
  int64_t features = 256;       // M
  int64_t redraw_every = 1000;  // training steps; 0 = never. Harness: never
};

class PerformerAttentionImpl : public AttentionMethod {
 public:
  explicit PerformerAttentionImpl(PerformerAttentionOptions options);
  at::Tensor attend(const MethodInput& input) override;
  void pretty_print(std::ostream& stream) const override;

  PerformerAttentionOptions options;
  at::Tensor features;  // [M, D] buffer: the rows w_r

 private:
  void redraw(const RandomStream& random);

  int64_t drawn_period_ = -1;  // which period of redraw_every steps the features belong to; -1 = not known
};
TORCH_MODULE(PerformerAttention);

// From two independent sets of standard normal numbers [M, D]: rows in orthogonal groups of D with uniform
// directions, and norms like those of normal vectors.
at::Tensor orthogonal_features(const at::Tensor& directions, const at::Tensor& norms);

}  // namespace edgewise
