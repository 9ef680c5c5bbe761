#include "edges/sbm/sbm_pairs.h"

#include <edgewise/graph/mask_counts.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/full.h>

#include <algorithm>

namespace edgewise {
namespace {

std::vector<double> probe_rates(const SbmEdgesOptions& options, const EdgeShape& shape,
                                const std::optional<at::Tensor>& key_mask) {
  std::vector<double> rates(static_cast<size_t>(shape.batch), options.probe_rate);
  if (options.probes_per_row == 0) return rates;
  const at::Tensor keys = !key_mask          ? at::full({shape.batch}, shape.keys, at::kLong)
                          : options.unit > 1 ? mask_group_counts(*key_mask)
                                             : mask_counts(*key_mask);
  for (int64_t b = 0; b < shape.batch; ++b) {
    const double valid = static_cast<double>(std::max<int64_t>(keys.const_data_ptr<int64_t>()[b], 1));
    rates[static_cast<size_t>(b)] =
        std::min(options.probe_rate, static_cast<double>(options.probes_per_row) / valid);
  }
  return rates;
}

}  // namespace

RequestPairs::RequestPairs(const EdgeRequest& request)
    : shape(request.shape()),
      key_mask(request.key_mask),
      query_mask(request.query_mask()),
      is_causal(request.is_causal),
      query_offset(request.query_offset) {}

double possible_pairs(const RequestPairs& asked, bool count_padding) {
  const EdgeShape& shape = asked.shape;
  if (count_padding && !asked.is_causal) return static_cast<double>(shape.batch * shape.queries * shape.keys);
  if (!asked.is_causal) return static_cast<double>(valid_pairs(shape, asked.key_mask, asked.query_mask));
  if (!asked.key_mask || count_padding) {  // without asking the device
    int64_t pairs = 0;
    for (int64_t i = 0; i < shape.queries; ++i) pairs += std::min(asked.query_offset + i + 1, shape.keys);
    return static_cast<double>(shape.batch * pairs);
  }
  const at::Tensor seen = at::cumsum(asked.key_mask->to(at::kDouble), 1);
  const at::Tensor last = (at::arange(shape.queries, seen.options().dtype(at::kLong)) + asked.query_offset)
                              .clamp_max(shape.keys - 1);
  at::Tensor counts = seen.index_select(1, last);  // [B, L]
  if (asked.query_mask) counts = counts.masked_fill(asked.query_mask->logical_not(), 0);
  return counts.sum().item<double>();
}

std::function<double()> pairs_again(const RequestPairs& asked, bool count_padding) {
  if (!asked.key_mask || count_padding) return {};
  return [asked] { return possible_pairs(asked, false); };
}

at::Tensor masked_nodes(const at::Tensor& membership, const std::optional<at::Tensor>& mask) {
  return mask ? membership.masked_fill(mask->logical_not().view({mask->size(0), 1, mask->size(1), 1}), 0)
              : membership;
}

at::Tensor expected_edges(const at::Tensor& queries, const at::Tensor& keys, bool is_causal,
                          int64_t query_offset) {
  if (!is_causal) return (queries.sum(2) * keys.sum(2)).sum(2).sum(0);
  // Query i sees keys 0 .. query_offset + i: running sums of the key side.
  const int64_t length = std::min(queries.size(2), std::max<int64_t>(keys.size(2) - query_offset, 0));
  at::Tensor seen = at::cumsum(keys, 2);
  at::Tensor total = (queries.narrow(2, 0, length) * seen.narrow(2, query_offset, length)).sum(3).sum(2);
  if (queries.size(2) > length)
    total = total + (queries.narrow(2, length, queries.size(2) - length).sum(2) * keys.sum(2)).sum(2);
  return total.sum(0);
}

SampleOptions sampling_options(const SbmEdgesOptions& options, const EdgeRequest& request, bool training) {
  SampleOptions sampling;
  sampling.law = options.law;
  sampling.exploration = training || options.exploration_in_eval ? options.exploration : 0;
  sampling.is_causal = request.is_causal;
  sampling.query_offset = request.query_offset;
  sampling.sampler = options.sampler;
  sampling.random = request.random;
  return sampling;
}

EdgeLearner learner_of(const SbmEdgesOptions& options, const at::Tensor& query_membership,
                       const at::Tensor& key_side, const SampleOptions& sampling) {
  EdgeLearner learner;
  learner.query_membership = query_membership;
  learner.key_side = key_side;
  learner.exploration = sampling.exploration;
  learner.rule = credit_rule(options.estimator, options.present_form);
  // The straight-through estimators treat the draw as the identity.
  learner.poisson_slope = options.law == EdgeLaw::kPoisson && options.estimator == Estimator::kCounterfactual;
  learner.gradient_clip = options.gradient_clip;
  return learner;
}

bool asks_for_probes(const SbmEdgesOptions& options, bool training) {
  return options.estimator == Estimator::kCounterfactual && options.probe_rate > 0 && training &&
         at::GradMode::is_enabled();
}

void set_probe_rates(EdgeLearner& learner, ops::ReplayedNumbers& replayed, const SbmEdgesOptions& options,
                     const EdgeShape& shape, const std::optional<at::Tensor>& key_mask) {
  learner.probe_rates = probe_rates(options, shape, key_mask);
  if (key_mask && options.probes_per_row > 0)
    replayed.probe_rates = [=] { return probe_rates(options, shape, key_mask); };
}

}  // namespace edgewise
