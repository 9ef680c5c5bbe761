#include <edgewise/models/masked_language_model.h>

#include <torch/nn/functional.h>

#include "models/layers.h"

namespace edgewise {

MaskedLanguageModelHeadImpl::MaskedLanguageModelHeadImpl(int64_t dim, int64_t vocabulary) {
  dense = register_module("dense", torch::nn::Linear(dim, dim));
  norm = register_module("norm", make_norm(dim));
  bias = register_parameter("bias", at::zeros({vocabulary}));
}

at::Tensor MaskedLanguageModelHeadImpl::forward(const at::Tensor& states, const at::Tensor& table) {
  const at::Tensor x = normed(norm, torch::gelu(projected(dense, states)));
  return torch::nn::functional::linear(x, table, bias);
}

MaskedLanguageModelImpl::MaskedLanguageModelImpl(const EncoderOptions& options) {
  TORCH_CHECK_VALUE(options.vocabulary > 0, "MaskedLanguageModel: expected a vocabulary; got none");
  encoder = register_module("encoder", Encoder(options));
  head = register_module("head", MaskedLanguageModelHead(options.dim, options.vocabulary));
}

ModelOutput MaskedLanguageModelImpl::forward(const ModelInput& input) {
  const at::Tensor* const places = input.batch.places();
  TORCH_CHECK_VALUE(input.batch.towers.size() == 1 && places,
                    "MaskedLanguageModel: expected one sequence per item and Batch::more[\"places\"], the "
                    "places of its hidden tokens; got ",
                    input.batch.towers.size(), " sequence(s)", places ? "" : " without places");
  EncoderInput tower{.tower = input.batch.towers[0], .random = input.random, .keep_edges = input.keep_edges};
  if (input.watch)
    tower.watch = [&](const std::string& name, const at::Tensor& value) {
      input.watch("encoder." + name, value);
    };
  EncoderOutput encoded = encoder->forward(tower);
  const at::Tensor states = at_places(encoded.states, *places);
  ModelOutput result;
  result.logits = head->forward(states, encoder->token_embedding->weight);
  if (input.watch) input.watch("head", result.logits);
  static_cast<StackOutput&>(result) = std::move(static_cast<StackOutput&>(encoded));
  if (result.penalty.defined()) result.tower_penalties = {result.penalty};
  return result;
}

}  // namespace edgewise
