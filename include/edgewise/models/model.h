// Model: what training and evaluation ask of a classifier or a language model.
#pragma once

#include <edgewise/attention/causal_attention.h>
#include <edgewise/models/encoder.h>

#include <memory>
#include <vector>

namespace edgewise {

struct ModelInput {
  std::vector<at::Tensor> tokens;  // one [B, N] int64 per tower
  std::vector<at::Tensor>
      masks;  // one [B, N] bool per tower; an empty vector or an undefined tensor = all valid
  std::vector<at::Tensor> positions = {};  // one [B, N] int64 per tower; empty = token n stands at n
  int64_t sequence_length = 0;             // with positions: of the whole sequence, for Pooling::kMeanPadded
  RandomStream random;                     // layer l of tower t uses random.layer + t * layers + l
  bool keep_edges = false;
  ActivationWatcher watch;
  // Language models with a memory: ModelOutput::memories of the tokens right before these; empty at the
  // beginning of a text.
  std::vector<at::Tensor> memories = {};
};

struct ModelOutput {
  at::Tensor logits;                        // [B, classes], or [B, N, classes] for tokens
  at::Tensor densities;                     // [layers, H] double, detached; two towers: their average
  at::Tensor penalty;                       // scalar, mean of tower_penalties; undefined when nothing learns
  std::vector<at::Tensor> tower_penalties;  // one scalar per tower, or empty
  at::Tensor edge_count;
  std::vector<EdgeSet> edges;             // per tower and layer, when asked for
  std::vector<EdgePolicy> policies;       // per tower and layer whose source learns by reward, in training
  at::Tensor extra_loss = {};             // scalar to add to the loss of the whole batch; undefined = nothing
  std::vector<at::Tensor> memories = {};  // per layer [B, M, dim], detached; empty without a memory
};

class Model : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual ModelOutput forward(const ModelInput& input) = 0;
  // After every optimiser step: parameters back into their range.
  virtual void after_step() {}
};
using ModelPtr = std::shared_ptr<Model>;

}  // namespace edgewise
