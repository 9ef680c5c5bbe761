#include "edges/sac/sac_fused.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <edgewise/edges/patterns.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "edges/kept.h"
#include "edges/sac/sac_inputs.h"
#include "ops/streams.h"
#include "ops/walk/cuda_walk.h"
#include "ops/walk/pairs_walk.h"
#include "ops/walk/rooted_walk.h"

namespace edgewise::sac {
namespace {

const WindowEdges* window_of(const SacEdgesOptions& options) {
  return dynamic_cast<const WindowEdges*>(options.candidates.get());
}

// ---- on a GPU ----

struct DistanceBuckets {
  at::Tensor index;    // [end - begin] int64
  at::Tensor one_hot;  // [end - begin, buckets]
};
DistanceBuckets distance_buckets_of(const DistanceRange& range) {
  return kept<DistanceRange, DistanceBuckets>().get(range, [&] {
    const at::Tensor index = known_buckets(range);
    const at::Tensor one_hot = index.unsqueeze(1) == at::arange(range.buckets, index.options());
    return DistanceBuckets{index, one_hot.to(at::kFloat)};
  });
}
// table [G, buckets] at every distance of a range: [G, end - begin]. Its gradient is a product: adding up by
// index would depend on the order of threads.
struct DistanceValues : torch::autograd::Function<DistanceValues> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& table,
                            const at::Tensor& index, const at::Tensor& one_hot) {
    context->save_for_backward({one_hot});
    return table.size(0) == 1 ? table.select(0, 0).index_select(0, index).unsqueeze(0)
                              : table.index_select(1, index);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    return {at::matmul(grads[0], context->get_saved_variables()[0]), {}, {}};
  }
};
at::Tensor distance_values(const SacEdgesImpl& predictor, const EdgeRequest& request) {
  const DistanceBuckets buckets = distance_buckets_of(distance_range(predictor, request));
  return DistanceValues::apply(predictor.distance_table, buckets.index, buckets.one_hot);
}

// Where the sorted keys of a walk without masks lie, of which the first rows have fewer than others
// (WalkResult::places).
struct KnownRows {
  EdgeShape shape;
  int64_t groups, steps, offset, window, gap;
  bool causal;
  at::Device device;
  bool operator==(const KnownRows&) const = default;
};
struct RowPlaces {
  at::Tensor places, offsets;
};
RowPlaces row_places(const KnownRows& rows) {
  return kept<KnownRows, RowPlaces>().get(rows, [&] {
    const EdgeShape& shape = rows.shape;
    const auto whole = at::TensorOptions().dtype(at::kLong);
    const at::Tensor position = at::arange(shape.queries, whole) + rows.offset;
    at::Tensor first = at::zeros_like(position), last = at::full_like(position, shape.keys);
    if (rows.causal) last = last.minimum(position + 1);
    if (rows.window >= 0) {
      first = (position - rows.window).clamp_min(0);
      last = last.minimum(position + rows.window + 1);
    }
    at::Tensor count = (last - first).clamp_min(0);
    if (rows.gap >= 0)  // what of the gap lies in first .. last - 1
      count = count -
              ((position + rows.gap + 1).minimum(last) - (position - rows.gap).maximum(first)).clamp_min(0);
    const at::Tensor degrees = count.clamp_max(rows.steps);  // [L]
    const at::Tensor of_unit =
        (at::arange(rows.steps, whole).unsqueeze(0) < degrees.unsqueeze(1)).flatten().nonzero().squeeze(1);
    const at::Tensor unit =
        at::arange(shape.batch, whole).unsqueeze(1) * rows.groups +  // of each head: [B, H]
        (rows.groups == 1 ? at::zeros({1, shape.heads}, whole) : at::arange(shape.heads, whole).unsqueeze(0));
    const at::Tensor places = (unit.view({-1, 1}) * (shape.queries * rows.steps) + of_unit).flatten();
    const at::Tensor offsets = at::zeros({shape.rows() + 1}, whole);
    offsets.narrow(0, 1, shape.rows()).copy_(degrees.repeat({shape.batch * shape.heads}).cumsum(0));
    return RowPlaces{places.to(rows.device), offsets.to(rows.device)};
  });
}

// Where the edges of a row begin when all have the same number.
struct EvenRows {
  int64_t rows, steps;
  at::Device device;
  bool operator==(const EvenRows&) const = default;
};
at::Tensor even_offsets(const EvenRows& even) {
  return kept<EvenRows, at::Tensor>().get(even, [&] {
    return at::arange(0, even.rows * even.steps + 1, even.steps,
                      at::TensorOptions().dtype(at::kLong).device(even.device));
  });
}

int64_t most_edges(const SacEdgesOptions& options, const EdgeShape& shape) {
  if (options.duplicates) return INT64_MAX;
  return options.walk == SacWalk::kRooted ? shape.keys : shape.queries * shape.keys;
}

std::string cuda_refusal(const SacEdgesImpl& predictor, const EdgeRequest& request) {
  const SacEdgesOptions& o = predictor.options;
  const EdgeShape shape = request.shape();
  if (o.walk == SacWalk::kPairs) return "walks of pairs have a kernel on the CPU only";
  if (request.random.item_rows != 1) return "the kernel takes every row of the batch for an item of its own";
  // A budget is shared by the queries that take part; how many do, a mask knows on the device alone.
  const int64_t sharing = request.query_mask() ? 1 : std::max<int64_t>(shape.queries, 1);
  const int64_t each = o.budget > 0 ? (o.budget + sharing - 1) / sharing : o.alpha;
  return ops::cuda_walk_refusal(predictor.lstm_bias, shape, std::min(each, most_edges(o, shape)));
}

// What does not depend on the inputs.
ops::CudaWalkRules rules_of(const SacEdgesImpl& predictor, const EdgeRequest& request,
                            WalkDecoding decoding) {
  const SacEdgesOptions& options = predictor.options;
  const EdgeShape shape = request.shape();
  ops::CudaWalkRules rules;
  rules.query_offset = request.query_offset;
  if (const WindowEdges* window = window_of(options)) rules.window = window->width();
  rules.is_causal = request.is_causal;
  rules.gap = *walk_gap(options, request);
  rules.key_mask = request.key_mask;
  rules.steps =
      std::min(options.alpha,
               most_edges(options, shape));  // where the limits are not looked at: no wait for the device
  rules.duplicates = options.duplicates;
  rules.choice =
      decoding == WalkDecoding::kSample ? kernels::WalkChoice::kSample : kernels::WalkChoice::kGreedy;
  rules.random = request.random;
  rules.learns = predictor.reports_policy();
  return rules;
}
// Where the edges of every row lie among the sorted keys, if that is known beforehand.
void add_known_rows(WalkResult& result, const ops::CudaWalkRules& rules, const EdgeShape& shape,
                    int64_t groups, at::Device device) {
  if (rules.limits.defined() || rules.key_mask) return;
  result.all_taken = !rules.is_causal && rules.window < 0 &&
                     rules.steps + std::max<int64_t>(2 * rules.gap + 1, 0) <= shape.keys;
  if (result.all_taken) {
    result.offsets = even_offsets({shape.rows(), rules.steps, device});
    return;
  }
  const RowPlaces known = row_places(
      {shape, groups, rules.steps, rules.query_offset, rules.window, rules.gap, rules.is_causal, device});
  result.places = known.places;
  result.offsets = known.offsets;
}

WalkResult cuda_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs, const EdgeRequest& request,
                     WalkDecoding decoding) {
  const SacEdgesOptions& options = predictor.options;
  const EdgeShape shape = request.shape();
  ops::CudaWalkRules rules = rules_of(predictor, request, decoding);
  rules.limits = inputs.limits;
  if (options.budget > 0)
    rules.steps = inputs.limits.numel() == 0
                      ? 0
                      : std::min(inputs.limits.max().item<int64_t>(), most_edges(options, shape));
  // Edges of rows that nothing else joins come from the sorted keys alone (choice_of()).
  const bool only_sorted = !options.duplicates && options.self_edges != SelfEdges::kAlways && rules.steps > 0;
  rules.with_actions = rules.learns || !only_sorted;

  ops::WalkTensors tensors{inputs.query_nodes,       inputs.key_nodes,    predictor.lstm_weight_ih,
                           predictor.lstm_weight_hh, predictor.lstm_bias, {}};
  if (options.distance == DistanceEncoding::kBias) tensors.distance = distance_values(predictor, request);
  WalkResult result;
  result.steps = rules.steps;
  const ops::CudaWalkActions actions = ops::cuda_rooted_walk(tensors, rules);
  result.sorted = actions.sorted;
  result.order = actions.order;
  if (only_sorted)
    add_known_rows(result, rules, shape, inputs.query_nodes.size(1), inputs.query_nodes.device());
  if (!rules.with_actions) return result;
  result.destination = actions.destination.flatten(2);
  result.taken = actions.taken.flatten(2);
  result.chosen = actions.chosen.flatten(2);
  result.source = at::arange(shape.queries, actions.order.options())
                      .unsqueeze(1)
                      .expand({shape.queries, rules.steps})
                      .reshape({1, 1, -1})
                      .expand_as(result.destination);
  if (rules.learns) {
    result.log_prob = actions.log_prob.flatten(2);
    result.entropy = actions.entropy.flatten(2);
    result.states = actions.states;
  }
  return result;
}

}  // namespace

bool fused_walk_applies(const SacEdgesImpl& predictor, const EdgeRequest& request, WalkDecoding decoding) {
  const SacEdgesOptions& o = predictor.options;
  return o.fused && o.scorer == SacScorer::kDot && o.distance != DistanceEncoding::kVector &&
         o.relations == 0 && walk_gap(o, request) && (!o.candidates || window_of(o)) &&
         !(request.known_keys && decoding == WalkDecoding::kSample) &&  // it numbers rows from 0
         decoding != WalkDecoding::kBeam && o.estimator != SacEstimator::kDistillation &&
         (request.query.is_cpu() || cuda_refusal(predictor, request).empty());
}

WalkResult fused_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs, const EdgeRequest& request,
                      WalkDecoding decoding) {
  if (inputs.query_nodes.is_cuda()) return cuda_walk(predictor, inputs, request, decoding);
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
  const int64_t gap = *walk_gap(options, request);
  const at::Tensor excluded = gap < 0 ? at::full({shape.queries}, -1, whole) : position;
  // No query makes more edges than there are keys, no item more than there are pairs.
  const int64_t steps = inputs.limits.numel() == 0
                            ? 0
                            : std::min(inputs.limits.max().item<int64_t>(), most_edges(options, shape));
  const auto choice =
      decoding == WalkDecoding::kSample ? kernels::WalkChoice::kSample : kernels::WalkChoice::kGreedy;
  const auto contiguous = [](const std::optional<at::Tensor>& mask) {
    return mask ? std::optional(mask->contiguous()) : std::nullopt;
  };
  const at::Tensor keys =
      ops::stream_keys(request.random, kernels::Purpose::kEdges, {shape.batch, groups, 0, 0});

  ops::WalkTensors tensors{inputs.query_nodes,       inputs.key_nodes,    predictor.lstm_weight_ih,
                           predictor.lstm_weight_hh, predictor.lstm_bias, {}};
  if (options.distance == DistanceEncoding::kBias) {
    tensors.distance =
        predictor.distance_table.index_select(1, known_buckets(distance_range(predictor, request)));
  }

  WalkResult result;
  result.steps = steps;
  ops::WalkRules rules;
  rules.first = first;
  rules.last = last;
  rules.excluded = excluded;
  rules.gap = std::max<int64_t>(gap, 0);
  rules.with_states = rooted && predictor.is_training() && at::GradMode::is_enabled() &&
                      options.estimator == SacEstimator::kCounterfactual;
  rules.key_mask = contiguous(request.key_mask);
  rules.query_mask = contiguous(request.query_mask());
  rules.limits = inputs.limits.contiguous();
  rules.steps = steps;
  rules.duplicates = options.duplicates;
  rules.choice = choice;
  rules.stream_keys = keys;
  if (!rooted) {
    const ops::PairsWalkActions actions = ops::pairs_walk(tensors, predictor.start, rules);
    result.source = actions.source;
    result.destination = actions.destination;
    result.taken = actions.taken;
    result.chosen = actions.chosen;
    result.log_prob = actions.log_prob;
    result.entropy = actions.entropy;
    return result;
  }
  const ops::RootedWalkActions actions = ops::rooted_walk(tensors, rules);
  result.destination = actions.destination.flatten(2);
  result.taken = actions.taken.flatten(2);
  result.chosen = actions.chosen.flatten(2);
  result.log_prob = actions.log_prob.flatten(2);
  result.entropy = actions.entropy.flatten(2);
  result.states = actions.states;
  result.source = at::arange(shape.queries, whole)
                      .unsqueeze(1)
                      .expand({shape.queries, steps})
                      .reshape({1, 1, -1})
                      .expand_as(result.destination);
  return result;
}

}  // namespace edgewise::sac
