// Classifiers on top of the encoder: one label per sequence, per token, or per pair of sequences.
#pragma once

#include <edgewise/models/encoder.h>

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

struct ModelInput {
  std::vector<at::Tensor> tokens;  // one [B, N] int64 per tower
  std::vector<at::Tensor>
      masks;            // one [B, N] bool per tower; an empty vector or an undefined tensor = all valid
  RandomStream random;  // layer l of tower t uses random.layer + t * layers + l
  bool keep_edges = false;
  ActivationWatcher watch;
};

struct ModelOutput {
  at::Tensor logits;                        // [B, classes], or [B, N, classes] for tokens
  at::Tensor densities;                     // [layers, H] double, detached; two towers: their average
  at::Tensor penalty;                       // scalar, mean of tower_penalties; undefined when nothing learns
  std::vector<at::Tensor> tower_penalties;  // one scalar per tower, or empty
  at::Tensor edge_count;
  std::vector<EdgeSet> edges;        // per tower and layer, when asked for
  std::vector<EdgePolicy> policies;  // per tower and layer whose source learns by reward, in training
};

struct ClassifierOptions {
  EncoderOptions encoder;
  int64_t classes = 2;
  int64_t hidden = 128;  // of the head; TokenClassifier has none
  Pooling pooling = Pooling::kMean;
};

class Classifier : public torch::nn::Module {
 public:
  virtual ModelOutput forward(const ModelInput& input) = 0;

  ClassifierOptions options;
  Encoder encoder{nullptr};

 protected:
  explicit Classifier(ClassifierOptions options);

  struct Tower {
    EncoderOutput encoded;
    std::optional<at::Tensor> mask;
  };
  // Runs the encoder on every tower and collects everything of ModelOutput but the logits.
  std::vector<Tower> encode(const ModelInput& input, size_t towers, ModelOutput& output);
};
using ClassifierPtr = std::shared_ptr<Classifier>;

// [B, N, dim] -> [B, dim]. An item without valid tokens gives 0.
at::Tensor pool(const at::Tensor& states, const std::optional<at::Tensor>& mask, Pooling pooling);

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
