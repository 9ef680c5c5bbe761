// Sums the gradients of all ranks, many parameters in one message.
//
// The backward pass reaches the last parameters first. While it runs, a bucket is sent as soon as the
// gradients in it are whole and the buckets before it have been sent, so that all ranks send the same in the
// same order; the rest is sent behind the pass. Which parameters a bucket holds all ranks know from the step
// before.
#pragma once

#include <edgewise/train/ranks.h>

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace edgewise::train {

class GradientBuckets {
 public:
  // A bucket takes parameters, from the model's last to its first, until it has this many bytes.
  static constexpr int64_t kBytes = int64_t{25} << 20;

  GradientBuckets(Ranks& ranks, const torch::nn::Module& model, int64_t bytes = kBytes);
  ~GradientBuckets();

  // The next backward pass is the last one of the step.
  void listen();
  // After the passes of a step. A parameter without a gradient on some rank counts as 0 there; without one on
  // any it stays without.
  void sum();

  int64_t buckets() const;
  int64_t sent_early() const;  // buckets, of all steps: during a backward pass

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace edgewise::train
