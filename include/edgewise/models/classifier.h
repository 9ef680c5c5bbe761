// Classifiers on top of the encoder: one label per sequence, per token, or per pair of sequences.
#pragma once

#include <edgewise/models/encoder.h>
#include <edgewise/models/model.h>

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <string_view>
#include <vector>

namespace edgewise {

// kMean: over valid tokens. kMeanPadded: the published code's, which divides by N, padding included.
enum class Pooling { kMean, kMeanPadded };
Pooling parse_pooling(std::string_view name);  // "mean" | "mean_padded"
std::string_view to_string(Pooling pooling);

struct ClassifierOptions {
  EncoderOptions encoder;
  int64_t classes = 2;
  int64_t hidden = 128;  // of the head; TokenClassifier has none
  Pooling pooling = Pooling::kMean;
};

class Classifier : public Model {
 public:
  ClassifierOptions options;
  Encoder encoder{nullptr};

 protected:
  explicit Classifier(ClassifierOptions options);

  // Runs the encoder on every tower: their states [B, N, dim]. Collects everything of ModelOutput but the
  // logits.
  std::vector<at::Tensor> encode(const ModelInput& input, size_t towers, ModelOutput& output);
  // The mean of a tower's states: [B, dim].
  at::Tensor pooled(const ModelInput& input, const std::vector<at::Tensor>& states, size_t tower) const;
};
using ClassifierPtr = std::shared_ptr<Classifier>;

// [B, N, dim] -> [B, dim]. An item without valid tokens gives 0. `length`: of the whole sequence where states
// are of a part of it, 0 = N.
at::Tensor pool(const at::Tensor& states, const std::optional<at::Tensor>& mask, Pooling pooling,
                int64_t length = 0);

// Linear -> ReLU -> Linear.
class ClassifierHeadImpl : public torch::nn::Module {
 public:
  ClassifierHeadImpl(int64_t features, int64_t hidden, int64_t classes);
  at::Tensor forward(const at::Tensor& features);  // [B, features] -> [B, classes]

  torch::nn::Linear linear1{nullptr}, linear2{nullptr};
};
TORCH_MODULE(ClassifierHead);

// One label per sequence.
class SequenceClassifierImpl : public Classifier {
 public:
  explicit SequenceClassifierImpl(ClassifierOptions options);
  ModelOutput forward(const ModelInput& input) override;

  ClassifierHead head{nullptr};
};
TORCH_MODULE(SequenceClassifier);

// One label per token.
class TokenClassifierImpl : public Classifier {
 public:
  explicit TokenClassifierImpl(ClassifierOptions options);
  ModelOutput forward(const ModelInput& input) override;

  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(TokenClassifier);

// One label per pair of sequences: the same encoder on both, then a head on [x0, x1, x0 * x1, x0 - x1].
class TwoTowerClassifierImpl : public Classifier {
 public:
  explicit TwoTowerClassifierImpl(ClassifierOptions options);
  ModelOutput forward(const ModelInput& input) override;

  ClassifierHead head{nullptr};
};
TORCH_MODULE(TwoTowerClassifier);

}  // namespace edgewise
