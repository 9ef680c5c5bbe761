// MaskedLanguageModel: an encoder that guesses hidden tokens from those around them.
//
//   logits = E norm(gelu(W x + b)) + c at the hidden places alone,  E the token embedding
//
// Its encoder has the names and sizes of the classifiers', so that they can begin with its weights.
#pragma once

#include <edgewise/models/encoder.h>
#include <edgewise/models/model.h>

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

namespace edgewise {

class MaskedLanguageModelHeadImpl : public torch::nn::Module {
 public:
  MaskedLanguageModelHeadImpl(int64_t dim, int64_t vocabulary);
  // states [..., dim], table [vocabulary, dim] -> [..., vocabulary]
  at::Tensor forward(const at::Tensor& states, const at::Tensor& table);

  torch::nn::Linear dense{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  at::Tensor bias;  // [vocabulary]
};
TORCH_MODULE(MaskedLanguageModelHead);

class MaskedLanguageModelImpl : public Model {
 public:
  explicit MaskedLanguageModelImpl(const EncoderOptions& options);

  // Batch::more["places"] [B, M] are the hidden places -> logits [B, M, vocabulary].
  ModelOutput forward(const ModelInput& input) override;

  Encoder encoder{nullptr};
  MaskedLanguageModelHead head{nullptr};
};
TORCH_MODULE(MaskedLanguageModel);

}  // namespace edgewise
