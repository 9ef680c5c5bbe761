// Model: what training and evaluation ask of a classifier or a language model.
#pragma once

#include <edgewise/models/batch.h>
#include <edgewise/models/block.h>

#include <memory>
#include <vector>

namespace edgewise {

struct ModelInput {
  Batch batch;
  RandomStream random = {};  // layer l of tower t uses random.layer + t * layers + l
  bool keep_edges = false;
  ActivationWatcher watch = {};
  // Language models with a memory: ModelOutput::memories of the tokens right before these; empty at the
  // beginning of a text.
  std::vector<at::Tensor> memories = {};
};

// Of two towers: the mean of their densities and penalties, and edges and policies one tower after the other.
struct ModelOutput : StackOutput {
  at::Tensor logits;                        // [B, classes], or [B, N, classes] for tokens
  std::vector<at::Tensor> tower_penalties;  // one scalar per tower, or empty
  // [layers] double on the CPU: pairs that each could have had, in evaluation of models whose layers look at
  // different sequences; undefined = those of the towers.
  at::Tensor layer_pairs;
  at::Tensor extra_loss;             // scalar to add to the loss of the whole batch; undefined = nothing
  std::vector<at::Tensor> memories;  // per layer [B, M, dim], detached; empty without a memory
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
