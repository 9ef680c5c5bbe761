#include "edges/sac_fused.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <edgewise/edges/patterns.h>

#include "edges/sac_inputs.h"
#include "ops/block_walk.h"
#include "ops/pairs_walk.h"
#include "ops/rooted_walk.h"
#include "ops/streams.h"

namespace edgewise::sac {
namespace {

const WindowEdges* window_of(const SacEdgesOptions& options) {
  return dynamic_cast<const WindowEdges*>(options.candidates.get());
}

// The blocks of a request, and what their distances add: block b of query i is b - own(i) blocks away.
ops::BlockWalkBlocks blocks_of(const SacEdgesImpl& predictor, const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  const auto whole = at::TensorOptions().dtype(at::kLong);
  ops::BlockWalkBlocks result;
  result.size = predictor.options.block_size;
  const at::Tensor own = (at::arange(shape.queries, whole) + request.query_offset).div(result.size, "floor");
  const int64_t count = (shape.keys + result.size - 1) / result.size,
                nearest = request.query_offset / result.size,
                farthest = std::max<int64_t>(shape.queries + request.query_offset - 1, 0) / result.size;
  result.start = farthest - own;
  if (predictor.block_distance_table.defined())
    result.distance = predictor.block_distance_table.index_select(
        1, bucket_of_distance(at::arange(-farthest, count - nearest, whole),
                              predictor.block_distance_table.size(1), predictor.options.max_distance));
  return result;
}

}  // namespace

bool fused_walk_applies(const SacEdgesImpl& predictor, const EdgeRequest& request, WalkDecoding decoding) {
  const SacEdgesOptions& o = predictor.options;
  return o.fused && request.query.is_cpu() && o.scorer == SacScorer::kDot &&
         o.distance != DistanceEncoding::kVector && o.relations == 0 && (!o.candidates || window_of(o)) &&
         !(request.known_keys && decoding == WalkDecoding::kSample) &&  // it numbers rows from 0
         decoding != WalkDecoding::kBeam && o.estimator != SacEstimator::kDistillation;
}

WalkResult fused_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs, const EdgeRequest& request,
                      WalkDecoding decoding) {
  const SacEdgesOptions& options = predictor.options;
  const bool rooted = options.walk == SacWalk::kRooted;
  const EdgeShape shape = request.shape();
  const int64_t groups = inputs.query_nodes.size(1);
  const auto whole = at::TensorOptions().dtype(at::kLong);
  const at::Tensor position = at::arange(shape.queries, whole) + request.query_offset;

  // The candidates of a query: first .. last - 1, less one.
  at::Tensor first = at::zeros({shape.queries}, whole);
  at::Tensor last = request.is_causal ? position + 1 : at::full({shape.queries}, shape.keys, whole);
  if (const WindowEdges* window = window_of(options)) {
    first = position - window->width();
    last = last.minimum(position + window->width() + 1);
  }
  const at::Tensor excluded =
      options.self_edges == SelfEdges::kAllowed ? at::full({shape.queries}, -1, whole) : position;
  // No query makes more edges than there are keys, no item more than there are pairs.
  const int64_t most = options.duplicates ? INT64_MAX : rooted ? shape.keys : shape.queries * shape.keys;
  const int64_t steps = inputs.limits.numel() == 0 ? 0 : std::min(inputs.limits.max().item<int64_t>(), most);
  const auto choice =
      decoding == WalkDecoding::kSample ? kernels::WalkChoice::kSample : kernels::WalkChoice::kGreedy;
  const auto contiguous = [](const std::optional<at::Tensor>& mask) {
    return mask ? std::optional(mask->contiguous()) : std::nullopt;
  };
  const at::Tensor keys =
      ops::stream_keys(request.random, kernels::Purpose::kEdges, {shape.batch, groups, 0, 0});

  ops::RootedWalkTensors tensors{inputs.query_nodes,       inputs.key_nodes,    predictor.lstm_weight_ih,
                                 predictor.lstm_weight_hh, predictor.lstm_bias, {}};
  if (options.distance == DistanceEncoding::kBias) {
    const at::Tensor offsets = at::arange(1 - shape.queries, shape.keys, whole) - request.query_offset;
    tensors.distance = predictor.distance_table.index_select(
        1, bucket_of_distance(offsets, predictor.distance_table.size(1), options.max_distance));
  }

  WalkResult result;
  result.steps = steps;
  if (!rooted) {
    const ops::PairsWalkActions actions = ops::pairs_walk(
        tensors, predictor.start,
        {first, last, excluded, contiguous(request.key_mask), contiguous(request.query_mask()),
         inputs.limits.contiguous(), steps, options.duplicates, choice, keys});
    result.source = actions.source;
    result.destination = actions.destination;
    result.taken = actions.taken;
    result.chosen = actions.chosen;
    result.log_prob = actions.log_prob;
    result.entropy = actions.entropy;
    return result;
  }
  const ops::RootedWalkRules rules{first,
                                   last,
                                   excluded,
                                   contiguous(request.key_mask),
                                   inputs.limits.contiguous(),
                                   steps,
                                   options.duplicates,
                                   choice,
                                   keys,
                                   predictor.is_training() && at::GradMode::is_enabled()};
  const ops::RootedWalkActions actions = options.destinations == SacDestinations::kBlocks
                                             ? ops::block_walk(tensors, blocks_of(predictor, request), rules)
                                             : ops::rooted_walk(tensors, rules);
  result.destination = actions.destination.flatten(2);
  result.taken = actions.taken.flatten(2);
  result.chosen = actions.chosen.flatten(2);
  result.log_prob = actions.log_prob.flatten(2);
  result.entropy = actions.entropy.flatten(2);
  result.source = at::arange(shape.queries, whole)
                      .unsqueeze(1)
                      .expand({shape.queries, steps})
                      .reshape({1, 1, -1})
                      .expand_as(result.destination);
  return result;
}

}  // namespace edgewise::sac
