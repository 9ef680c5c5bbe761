// SbmEdges: memberships, block matrix, sampling, and what the learner needs in the backward pass.
#include <edgewise/edges/sbm_edges.h>

#include <edgewise/edges/patterns.h>
#include <edgewise/graph/mask_counts.h>

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <torch/nn/init.h>

#include <cmath>
#include <ostream>

#include "ops/enum_names.h"
#include "ops/layers/state_rows.h"
#include "ops/sample/memberships.h"
#include "ops/step_inputs.h"

namespace edgewise {
namespace {

constexpr EnumNames<SbmPreset, 3> kPresets{"preset",
                                           {{{"paper", SbmPreset::kPaper},
                                             {"published", SbmPreset::kPublished},
                                             {"edgewise", SbmPreset::kEdgewise}}}};
constexpr EnumNames<DensityPenalty, 2> kPenalties{
    "density_penalty", {{{"exact", DensityPenalty::kExact}, {"sampled", DensityPenalty::kSampled}}}};

// Rows of tokens that take part; the others become 0 and add nothing to a sum.
at::Tensor masked_tokens(const at::Tensor& membership, const std::optional<at::Tensor>& mask) {
  return mask ? membership.masked_fill(mask->logical_not().view({mask->size(0), 1, mask->size(1), 1}), 0)
              : membership;
}

// Expected number of edges per head over the batch, sum_ij p_ij = (1^T Q^) (T^T 1), in O(n C): [H].
at::Tensor expected_edges(const at::Tensor& query_membership, const at::Tensor& key_side,
                          const EdgeRequest& request) {
  const at::Tensor queries = masked_tokens(query_membership, request.query_mask());
  const at::Tensor keys = masked_tokens(key_side, request.key_mask);
  if (!request.is_causal) return (queries.sum(2) * keys.sum(2)).sum(2).sum(0);
  // Query i sees keys 0 .. query_offset + i: running sums of the key side.
  const int64_t length = std::min(queries.size(2), std::max<int64_t>(keys.size(2) - request.query_offset, 0));
  at::Tensor seen = at::cumsum(keys, 2);
  at::Tensor total =
      (queries.narrow(2, 0, length) * seen.narrow(2, request.query_offset, length)).sum(3).sum(2);
  if (queries.size(2) > length)
    total = total + (queries.narrow(2, length, queries.size(2) - length).sum(2) * keys.sum(2)).sum(2);
  return total.sum(0);
}

// The pairs of a request, without its states: what is worked out from them can be worked out again for
// another batch in the same masks.
struct Pairs {
  explicit Pairs(const EdgeRequest& request)
      : shape(request.shape()),
        key_mask(request.key_mask),
        query_mask(request.query_mask()),
        is_causal(request.is_causal),
        query_offset(request.query_offset) {}

  EdgeShape shape;
  std::optional<at::Tensor> key_mask, query_mask;
  bool is_causal;
  int64_t query_offset;
};

// Pairs per head that may become edges.
double possible_pairs(const Pairs& asked, bool count_padding) {
  const EdgeShape& shape = asked.shape;
  if (count_padding) return static_cast<double>(shape.batch * shape.queries * shape.keys);
  if (!asked.is_causal) return static_cast<double>(valid_pairs(shape, asked.key_mask, asked.query_mask));
  if (!asked.key_mask) {  // without asking the device
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

// How it is found again for another batch; empty where it is the same for all.
std::function<double()> pairs_again(const Pairs& asked, bool count_padding) {
  if (!asked.key_mask || count_padding) return {};
  return [asked] { return possible_pairs(asked, false); };
}

// Rate of each item: the share asked for, or less where that would pass the budget per query.
std::vector<double> probe_rates(const SbmEdgesOptions& options, const Pairs& asked) {
  const EdgeShape& shape = asked.shape;
  std::vector<double> rates(static_cast<size_t>(shape.batch), options.probe_rate);
  if (options.probes_per_row == 0) return rates;
  const at::Tensor keys =
      asked.key_mask ? mask_counts(*asked.key_mask) : at::full({shape.batch}, shape.keys, at::kLong);
  for (int64_t b = 0; b < shape.batch; ++b) {
    const double valid = static_cast<double>(std::max<int64_t>(keys.const_data_ptr<int64_t>()[b], 1));
    rates[static_cast<size_t>(b)] =
        std::min(options.probe_rate, static_cast<double>(options.probes_per_row) / valid);
  }
  return rates;
}

// Queries and keys by one kernel, where there is one.
std::optional<ops::Memberships> memberships_together(const SbmEdgesImpl& sbm, const EdgeRequest& request) {
  if (!sbm.options.shared_mlp) return std::nullopt;
  const ops::MembershipInput input{.query = request.query,
                                   .key = request.key,
                                   .query_mask = request.query_mask(),
                                   .key_mask = request.key_mask,
                                   .weight1 = sbm.mlp_weight1,
                                   .bias1 = sbm.mlp_bias1,
                                   .weight2 = sbm.mlp_weight2,
                                   .bias2 = sbm.mlp_bias2,
                                   .clusters = sbm.clusters};
  if (!ops::cuda_takes_memberships(input)) return std::nullopt;
  return ops::cuda_memberships(input);
}

}  // namespace

SbmPreset parse_sbm_preset(std::string_view name) {
  return kPresets.parse(name);
}
std::string_view to_string(SbmPreset preset) {
  return kPresets.name(preset);
}
DensityPenalty parse_density_penalty(std::string_view name) {
  return kPenalties.parse(name);
}
std::string_view to_string(DensityPenalty penalty) {
  return kPenalties.name(penalty);
}

SbmEdgesOptions::SbmEdgesOptions(int64_t heads, int64_t dim, SbmPreset preset)
    : num_heads(heads),
      head_dim(dim),
      clusters(preset == SbmPreset::kEdgewise ? 32 : 128),
      shared_mlp(preset != SbmPreset::kPaper),
      cluster_std(0),
      law(preset == SbmPreset::kPaper ? EdgeLaw::kPoisson : EdgeLaw::kBernoulli),
      exploration(preset == SbmPreset::kEdgewise ? 0 : 0.01),
      exploration_in_eval(preset == SbmPreset::kPublished),
      estimator(preset == SbmPreset::kPaper       ? Estimator::kPaper
                : preset == SbmPreset::kPublished ? Estimator::kLogit
                                                  : Estimator::kCounterfactual),
      present_form(PresentForm::kSoftmax),
      // The released code cuts gradients at 1 after mixed precision has multiplied them by 2^16.
      gradient_clip(preset == SbmPreset::kPublished ? 0x1.0p-16 : 0),
      probe_rate(preset == SbmPreset::kEdgewise ? 0.02 : 0),
      probe_unit(preset == SbmPreset::kEdgewise ? 16 : 1),
      density_penalty(preset == SbmPreset::kEdgewise ? DensityPenalty::kExact : DensityPenalty::kSampled),
      count_padding(preset == SbmPreset::kPublished) {}

std::ostream& operator<<(std::ostream& stream, const SbmEdgesOptions& o) {
  return stream << "heads=" << o.num_heads << ", head_dim=" << o.head_dim << ", clusters=" << o.clusters
                << ", mlp=" << (o.shared_mlp ? "shared" : "per head") << ", law=" << to_string(o.law)
                << ", exploration=" << o.exploration << (o.exploration_in_eval ? " (also in eval)" : "")
                << ", estimator=" << to_string(o.estimator) << " (" << to_string(o.present_form) << ")"
                << ", gradient_clip=" << o.gradient_clip << ", probe_rate=" << o.probe_rate << " (at most "
                << o.probes_per_row << " a row, in units of " << o.probe_unit
                << "), density_penalty=" << to_string(o.density_penalty)
                << ", sampler=" << to_string(o.sampler) << (o.count_padding ? ", padding counted" : "")
                << (o.self_loops ? ", self_loops" : "");
}

SbmEdgesImpl::SbmEdgesImpl(SbmEdgesOptions given) : options(given) {
  TORCH_CHECK_VALUE(options.num_heads > 0 && options.head_dim > 0 && options.clusters > 0,
                    "SbmEdges: expected heads, head_dim and clusters of at least 1; got ", options.num_heads,
                    ", ", options.head_dim, " and ", options.clusters);
  TORCH_CHECK_VALUE(options.probe_rate >= 0 && options.probe_rate <= 1,
                    "SbmEdges: expected probe_rate in [0, 1]; got ", options.probe_rate);
  TORCH_CHECK_VALUE(options.exploration >= 0 && options.exploration <= 1,
                    "SbmEdges: expected exploration in [0, 1]; got ", options.exploration);
  TORCH_CHECK_VALUE(options.probes_per_row >= 0 && options.gradient_clip >= 0 && options.cluster_std >= 0,
                    "SbmEdges: expected probes_per_row, gradient_clip and cluster_std of at least 0; got ",
                    options.probes_per_row, ", ", options.gradient_clip, " and ", options.cluster_std);
  TORCH_CHECK_VALUE(options.probe_unit == 1 || options.probe_unit == 16,
                    "SbmEdges: expected probe_unit 1 (probes one by one) or 16 (squares of 16 queries and "
                    "keys); got ",
                    options.probe_unit);
  const int64_t groups = options.shared_mlp ? 1 : options.num_heads, dim = options.head_dim;
  clusters = register_parameter("clusters", at::empty({options.num_heads, options.clusters, dim}));
  mlp_weight1 = register_parameter("mlp_weight1", at::empty({groups, dim, dim}));
  mlp_bias1 = register_parameter("mlp_bias1", at::empty({groups, dim}));
  mlp_weight2 = register_parameter("mlp_weight2", at::empty({groups, dim, dim}));
  mlp_bias2 = register_parameter("mlp_bias2", at::empty({groups, dim}));
  reset_parameters();
}

void SbmEdgesImpl::reset_parameters() {
  const at::NoGradGuard guard;
  const double dim = static_cast<double>(options.head_dim), bound = 1 / std::sqrt(dim);
  // The released code's initialisation counts C * D inputs per cluster, so clusters start close together.
  const double std = options.cluster_std > 0 ? options.cluster_std
                                             : std::sqrt(2 / (static_cast<double>(options.clusters) * dim));
  clusters.normal_(0, std);
  for (at::Tensor* parameter : {&mlp_weight1, &mlp_bias1, &mlp_weight2, &mlp_bias2})
    parameter->uniform_(-bound, bound);
}

at::Tensor SbmEdgesImpl::block_matrix() const {
  const at::Tensor logits = at::matmul(clusters, clusters.transpose(1, 2));  // [H, C, C]
  return logits.flatten(1).softmax(1).view_as(logits);
}

at::Tensor SbmEdgesImpl::membership(const at::Tensor& nodes) const {
  const auto layer = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    if (options.shared_mlp) return ops::linear(x, weight[0], bias[0]);
    return at::matmul(x, weight.transpose(1, 2)) + bias.unsqueeze(1);
  };
  const at::Tensor hidden = layer(nodes, mlp_weight1, mlp_bias1).relu();
  return at::matmul(layer(hidden, mlp_weight2, mlp_bias2), clusters.transpose(1, 2)).sigmoid();
}

at::Tensor SbmEdgesImpl::key_side(const at::Tensor& key_membership) const {
  return at::matmul(key_membership, block_matrix().transpose(1, 2));
}

EdgeChoice SbmEdgesImpl::choose(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  TORCH_CHECK_VALUE(shape.heads == options.num_heads && request.query.size(3) == options.head_dim,
                    "SbmEdges: expected ", options.num_heads, " heads of dim ", options.head_dim,
                    "; got query ", request.query.sizes());
  const at::ScalarType dtype = clusters.scalar_type();
  // Under autocast the products read what they get; fp32 in between would only be written and read.
  const bool autocast = at::autocast::is_autocast_enabled(request.query.device().type());
  const auto nodes_of = [&](const at::Tensor& x) { return autocast ? x : x.to(dtype); };
  at::Tensor query_membership, side, expected;  // expected [H]: edges, where a kernel has counted anyway
  const auto side_of = [&](const at::Tensor& keys) { return key_side(membership(nodes_of(keys))); };
  if (RowBuffer* known = request.known_keys) {
    query_membership = membership(nodes_of(request.query));
    side = known->append(side_of(request.key.narrow(2, known->size(), shape.keys - known->size())));
  } else if (const auto together = memberships_together(*this, request)) {
    query_membership = together->query, side = together->key_side, expected = together->expected;
  } else {
    query_membership = membership(nodes_of(request.query));
    side = side_of(request.key);
  }

  SampleOptions sampling;
  sampling.law = options.law;
  sampling.exploration = is_training() || options.exploration_in_eval ? options.exploration : 0;
  if (!options.count_padding) {
    sampling.key_mask = request.key_mask;
    sampling.query_mask = request.query_mask();
  }
  sampling.is_causal = request.is_causal;
  sampling.query_offset = request.query_offset;
  // Where padding is sampled too, only the direct sampler, with one number per pair, leaves the other edges
  // as they are; and by default a batch without padding must draw what one with padding draws.
  const bool direct = options.count_padding && (request.key_mask || options.sampler == Sampler::kAuto);
  sampling.sampler = direct ? Sampler::kDirect : options.sampler;
  sampling.random = request.random;
  const EdgeSet sampled = sample_sbm_edges(query_membership, side, sampling);

  EdgeLearner learner;
  learner.query_membership = query_membership;
  learner.key_side = side;
  learner.exploration = sampling.exploration;
  learner.rule = credit_rule(options.estimator, options.present_form);
  // The straight-through estimators treat the draw as the identity.
  learner.poisson_slope = options.law == EdgeLaw::kPoisson && options.estimator == Estimator::kCounterfactual;
  learner.gradient_clip = options.gradient_clip;
  const Pairs asked(request);
  ops::ReplayedNumbers replayed;
  learner.pairs_per_head = possible_pairs(asked, options.count_padding);
  replayed.pairs_per_head = pairs_again(asked, options.count_padding);
  const ops::HostNumber pairs = ops::at_least_one({learner.pairs_per_head, replayed.pairs_per_head});

  EdgeChoice choice;
  choice.edges = sampled;
  if (options.count_padding && request.key_mask) {
    // As released: padding is sampled and counted, then dropped before attention.
    const auto query_mask = request.query_mask();
    if (sampled.has_csr()) {
      choice.edges = sampled.restricted_to_keys(*request.key_mask);
      if (query_mask) choice.edges = choice.edges.restricted_to_queries(*query_mask);
    } else {
      // Tiles: the same numbers again, among valid pairs only, which nobody has to count.
      SampleOptions attended = sampling;
      attended.key_mask = request.key_mask;
      attended.query_mask = query_mask;
      choice.edges = sample_sbm_edges(query_membership, side, attended);
    }
    learner.discarded = sampled.minus(choice.edges);
  }
  choice.density = ops::over(sampled.edges_per_head().sum(0).to(at::kDouble), pairs);
  if (options.density_penalty == DensityPenalty::kExact && !request.known_keys)
    choice.density_penalty = ops::over(
        expected.defined() && !request.is_causal ? expected : expected_edges(query_membership, side, request),
        ops::at_least_one({possible_pairs(asked, false), pairs_again(asked, false)}));

  if (options.estimator == Estimator::kCounterfactual && options.probe_rate > 0 && is_training() &&
      at::GradMode::is_enabled()) {
    SampleOptions probing = sampling;
    probing.key_mask = request.key_mask;
    probing.query_mask = request.query_mask();
    probing.probe_unit = options.probe_unit;
    learner.probe_rates = probe_rates(options, asked);
    if (request.key_mask && options.probes_per_row > 0)
      replayed.probe_rates = [asked, given = options] { return probe_rates(given, asked); };
    probing.replayed = std::make_shared<const ops::ReplayedNumbers>(replayed);
    learner.probes = sample_probe_edges(choice.edges, learner.probe_rates, probing);
  }
  learner.replayed = std::make_shared<const ops::ReplayedNumbers>(std::move(replayed));
  choice.learner = std::move(learner);
  if (!options.self_loops) return choice;
  return with_fixed_edges(choice, WindowEdges(0).choose(request).edges);
}

std::string SbmEdgesImpl::growth_refusal() const {
  if (options.sampler == Sampler::kDirect) return {};
  return "the sampler " + std::string(to_string(options.sampler)) +
         " draws rows together; use sbm.sampler = direct, which gives every pair its own number";
}

void SbmEdgesImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::SbmEdges(" << options << ")";
}

}  // namespace edgewise
