#include "edges/sac/sac_blocks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>

namespace edgewise::sac {

at::Tensor BlockPrediction::within(const at::Tensor& block) const {
  std::vector<int64_t> sizes = key_log_p.sizes().vec();
  sizes[3] = 1;
  return key_log_p.gather(3, block.unsqueeze(-1).unsqueeze(-1).expand(sizes)).squeeze(3);
}

at::Tensor BlockPrediction::joint(int64_t keys) const {
  return (block_log_p.unsqueeze(-1) + key_log_p).flatten(3).narrow(3, 0, keys);
}

BlockPredictor::BlockPredictor(const SacEdgesImpl& predictor, const WalkInputs& inputs, int64_t beams)
    : predictor_(predictor),
      inputs_(inputs),
      block_(predictor.options.block_size),
      blocks_((inputs.key_nodes.size(2) + block_ - 1) / block_),
      beams_(beams),
      prepared_(prepare_nodes(predictor, inputs.key_nodes)) {
  open_ = in_blocks(inputs.allowed.to(prepared_.scalar_type()), 0);
  counts_ = open_.sum(-1).clamp_min(1);
  const at::Tensor nodes = in_blocks(prepared_.transpose(2, 3), 0);  // [B, G, P, N, M]
  means_ = at::matmul(open_.transpose(2, 3), nodes.permute({0, 1, 3, 4, 2})).transpose(2, 3) /
           counts_.unsqueeze(-1);
}

at::Tensor BlockPredictor::in_blocks(const at::Tensor& values, double padding) const {
  const int64_t missing = blocks_ * block_ - values.size(-1);
  return (missing == 0 ? values : at::constant_pad_nd(values, {0, missing}, padding))
      .unflatten(-1, {blocks_, block_});
}

BlockPrediction BlockPredictor::predict(const at::Tensor& hidden, const at::Tensor& left,
                                        const at::Tensor& is_live, const at::Tensor& source) const {
  // Scores of blocks, as node_scores() with means that differ from source to source.
  const at::Tensor states = hidden.unflatten(2, {-1, beams_});  // [B, G, L, K, P]
  at::Tensor scores;                                            // [B, G, L, K, N]
  if (predictor_.options.scorer == SacScorer::kDot) {
    scores = at::matmul(states, means_.transpose(3, 4));
  } else {
    const at::Tensor sum = at::matmul(hidden, predictor_.mlp_state).unflatten(2, {-1, beams_}).unsqueeze(4) +
                           means_.unsqueeze(3);
    scores = at::matmul(sum.tanh(), predictor_.mlp_out.view({1, -1, 1, 1, predictor_.mlp_out.size(1), 1}))
                 .squeeze(5);
  }
  scores = scores.flatten(2, 3) + block_distance_scores(predictor_, inputs_, hidden, source);
  const at::Tensor related = relation_scores(predictor_, inputs_, hidden, source);
  if (related.defined())  // a block's relation: the mean over its candidates
    scores = scores + ((in_blocks(related, 0).unflatten(2, {-1, beams_}) * open_.unsqueeze(3)).sum(-1) /
                       counts_.unsqueeze(3))
                          .flatten(2, 3);

  const at::Tensor open = in_blocks(left, 0);  // [B, G, R, N, M]
  const at::Tensor key_scores =
      node_scores(predictor_, hidden, prepared_) + distance_scores(predictor_, inputs_, hidden, source);
  BlockPrediction result;
  result.block_log_p = log_probabilities(scores, open.any(-1), is_live);
  // Beyond the last key there is nothing, also for a walker that has stopped.
  result.key_log_p = log_probabilities(in_blocks(key_scores, kForbidden), open, is_live.unsqueeze(-1));
  return result;
}

BlockChoice choose_in_blocks(const BlockPrediction& prediction, const Chooser& choose, int64_t step) {
  const at::Tensor block = choose(prediction.block_log_p, 2 * step);
  const at::Tensor within = prediction.within(block), key = choose(within, 2 * step + 1);
  const at::Tensor block_log_p = pick(prediction.block_log_p, block), inner = entropy_of(within);
  return {block * within.size(3) + key, block_log_p + pick(within, key),
          entropy_of(prediction.block_log_p) + inner + (block_log_p - block_log_p.detach()) * inner.detach()};
}

}  // namespace edgewise::sac
