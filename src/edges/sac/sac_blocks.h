// Predictions in blocks, in plain ATen: a block of M consecutive keys, then a key inside it.
//
//   p(b) = softmax_b( score(h, mean_b) + block distance ),  p(j | b) = softmax_{j in b}( score(h, w_j) +
//   distance ) log p(j) = log p(b) + log p(j | b)
//
// mean_b is that of the nodes in b that are candidates of the source; a block without a candidate left has
// probability 0. N = ceil(S / M) blocks; R = L * K walkers, K beams to a source side by side.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/edges/sac_edges.h>

#include "edges/sac/sac_walk.h"

namespace edgewise::sac {

struct BlockPrediction {
  at::Tensor block_log_p;  // [B, G, R, N]
  at::Tensor key_log_p;    // [B, G, R, N, M], in each block

  at::Tensor within(const at::Tensor& block) const;  // of the blocks chosen, [B, G, R] -> [B, G, R, M]
  at::Tensor joint(int64_t keys) const;              // log p(j): [B, G, R, S]
};

class BlockPredictor {
 public:
  BlockPredictor(const SacEdgesImpl& predictor, const WalkInputs& inputs, int64_t beams = 1);

  int64_t block() const { return block_; }
  // left [B, G, R, S]: candidates; source as in distance_scores().
  BlockPrediction predict(const at::Tensor& hidden, const at::Tensor& left, const at::Tensor& is_live,
                          const at::Tensor& source = {}) const;

 private:
  at::Tensor in_blocks(const at::Tensor& values, double padding) const;  // [.., S] -> [.., N, M]

  const SacEdgesImpl& predictor_;
  const WalkInputs& inputs_;
  int64_t block_, blocks_, beams_;
  at::Tensor prepared_;  // [B, G, S, P], prepare_nodes()
  at::Tensor open_;      // [B, G, L, N, M]: candidates of each source as numbers
  at::Tensor counts_;    // [B, G, L, N], at least 1
  at::Tensor means_;     // [B, G, L, N, P]
};

// One decision after the other, with what the policy learns from.
struct BlockChoice {
  at::Tensor key;       // [B, G, R]
  at::Tensor log_prob;  // [B, G, R]
  // H(p(b)) + H(p(. | b)) for the chosen b. Its gradient counts that b was drawn, so that on average over b
  // it is that of the entropy of both decisions together.
  at::Tensor entropy;  // [B, G, R]
};
// Predictions 2 * step (block) and 2 * step + 1 (key) of the chooser.
BlockChoice choose_in_blocks(const BlockPrediction& prediction, const Chooser& choose, int64_t step);

}  // namespace edgewise::sac
