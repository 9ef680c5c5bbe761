// SbmEdges: memberships, block matrix, sampling, and what the learner needs in the backward pass.
#include <edgewise/edges/sbm_edges.h>

#include <edgewise/edges/patterns.h>

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <torch/nn/init.h>

#include <array>
#include <cmath>
#include <ostream>
#include <vector>

#include "edges/sbm/sbm_pairs.h"
#include "edges/sbm/sbm_scope.h"
#include "edges/square_patterns.h"
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

SbmEdgesOptions::SbmEdgesOptions(int64_t heads, int64_t dim, SbmPreset preset, int64_t unit_)
    : num_heads(heads),
      head_dim(dim),
      unit(unit_),
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
      probe_rate(preset != SbmPreset::kEdgewise ? 0
                 : unit == 1                    ? 0.02
                                                : 0.05),
      probes_per_row(unit == 1 ? 64 : 4),
      probe_unit(preset == SbmPreset::kEdgewise ? 16 : 1),
      density_penalty(preset == SbmPreset::kEdgewise ? DensityPenalty::kExact : DensityPenalty::kSampled),
      count_padding(preset == SbmPreset::kPublished) {}

std::ostream& operator<<(std::ostream& stream, const SbmEdgesOptions& o) {
  stream << "heads=" << o.num_heads << ", head_dim=" << o.head_dim;
  if (o.unit > 1) stream << ", unit=" << o.unit;
  if (o.edges_per_row > 0) stream << ", edges_per_row=" << o.edges_per_row;
  if (o.initial_density != 0.25) stream << ", initial_density=" << o.initial_density;
  return stream << ", clusters=" << o.clusters << ", mlp=" << (o.shared_mlp ? "shared" : "per head")
                << ", law=" << to_string(o.law) << ", exploration=" << o.exploration
                << (o.exploration_in_eval ? " (also in eval)" : "")
                << ", estimator=" << to_string(o.estimator) << " (" << to_string(o.present_form) << ")"
                << ", gradient_clip=" << o.gradient_clip << ", probe_rate=" << o.probe_rate << " (at most "
                << o.probes_per_row << " a row, in units of " << o.probe_unit
                << "), density_penalty=" << to_string(o.density_penalty)
                << ", sampler=" << to_string(o.sampler) << (o.count_padding ? ", padding counted" : "")
                << (o.self_loops ? ", self_loops" : "") << (o.candidates ? ", candidates of a source" : "");
}

namespace {

void check_options(const SbmEdgesOptions& options) {
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
  check_unit("SbmEdges", options.unit);
  TORCH_CHECK_VALUE(
      options.unit == 1 || !options.count_padding,
      "SbmEdges: expected unit 1 with count_padding (the preset published), which counts pair by "
      "pair; got unit ",
      options.unit);
  TORCH_CHECK_VALUE(options.initial_density > 0 && options.initial_density < 1,
                    "SbmEdges: expected initial_density in (0, 1); got ", options.initial_density);
  TORCH_CHECK_VALUE(options.probe_unit == 1 || options.probe_unit == 16,
                    "SbmEdges: expected probe_unit 1 (probes one by one) or 16 (squares of 16 queries and "
                    "keys); got ",
                    options.probe_unit);
  check_scope(options);
}

// The sizes of SbmTensors, in their order.
std::array<std::vector<int64_t>, 5> tensor_sizes(const SbmEdgesOptions& options) {
  const int64_t groups = options.shared_mlp ? 1 : options.num_heads, dim = options.head_dim;
  const std::vector<int64_t> weight = {groups, dim, dim}, bias = {groups, dim};
  return {{{options.num_heads, options.clusters, dim}, weight, bias, weight, bias}};
}

}  // namespace

SbmEdgesImpl::SbmEdgesImpl(SbmEdgesOptions given) : options(given) {
  check_options(options);
  const auto sizes = tensor_sizes(options);
  clusters = register_parameter("clusters", at::empty(sizes[0]));
  mlp_weight1 = register_parameter("mlp_weight1", at::empty(sizes[1]));
  mlp_bias1 = register_parameter("mlp_bias1", at::empty(sizes[2]));
  mlp_weight2 = register_parameter("mlp_weight2", at::empty(sizes[3]));
  mlp_bias2 = register_parameter("mlp_bias2", at::empty(sizes[4]));
  reset_parameters();
}

SbmEdgesImpl::SbmEdgesImpl(const SbmEdgesOptions& given, const SbmTensors& tensors)
    : options(given),
      clusters(tensors.clusters),
      mlp_weight1(tensors.mlp_weight1),
      mlp_bias1(tensors.mlp_bias1),
      mlp_weight2(tensors.mlp_weight2),
      mlp_bias2(tensors.mlp_bias2) {
  check_options(options);
  const auto sizes = tensor_sizes(options);
  const auto check = [&](const char* name, const at::Tensor& tensor, size_t index) {
    TORCH_CHECK_VALUE(tensor.defined() && tensor.sizes() == at::IntArrayRef(sizes[index]),
                      "SbmEdges: expected ", name, " ", at::IntArrayRef(sizes[index]), "; got ",
                      tensor.defined() ? c10::str(tensor.sizes()) : "none");
  };
  check("clusters", clusters, 0);
  check("mlp_weight1", mlp_weight1, 1);
  check("mlp_bias1", mlp_bias1, 2);
  check("mlp_weight2", mlp_weight2, 3);
  check("mlp_bias2", mlp_bias2, 4);
}

EdgeChoice choose_sbm_edges(const SbmEdgesOptions& options, const SbmTensors& tensors,
                            const EdgeRequest& request, bool training) {
  SbmEdgesImpl model(options, tensors);
  model.train(training);
  return model.choose(request);
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

double SbmEdgesImpl::membership_shift() const {
  const double side = std::sqrt(options.initial_density);
  return std::log(side / (1 - side));
}

at::Tensor SbmEdgesImpl::membership(const at::Tensor& nodes) const {
  const auto layer = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    if (options.shared_mlp) return ops::linear(x, weight[0], bias[0]);
    return at::matmul(x, weight.transpose(1, 2)) + bias.unsqueeze(1);
  };
  const at::Tensor hidden = layer(nodes, mlp_weight1, mlp_bias1).relu();
  const at::Tensor logits = at::matmul(layer(hidden, mlp_weight2, mlp_bias2), clusters.transpose(1, 2));
  const double shift = membership_shift();
  return (shift == 0 ? logits : logits + shift).sigmoid();
}

at::Tensor SbmEdgesImpl::key_side(const at::Tensor& key_membership) const {
  return at::matmul(key_membership, block_matrix().transpose(1, 2));
}

// Under autocast the products read what they get; fp32 in between would only be written and read.
at::Tensor SbmEdgesImpl::as_read(const at::Tensor& nodes) const {
  return at::autocast::is_autocast_enabled(nodes.device().type()) ? nodes : nodes.to(clusters.scalar_type());
}

SbmEdgesImpl::Sides SbmEdgesImpl::sides(const at::Tensor& query_nodes, const at::Tensor& key_nodes,
                                        const std::optional<at::Tensor>& query_mask,
                                        const std::optional<at::Tensor>& key_mask) const {
  if (options.shared_mlp) {
    const ops::MembershipInput input{.query = query_nodes,
                                     .key = key_nodes,
                                     .query_mask = query_mask,
                                     .key_mask = key_mask,
                                     .weight1 = mlp_weight1,
                                     .bias1 = mlp_bias1,
                                     .weight2 = mlp_weight2,
                                     .bias2 = mlp_bias2,
                                     .clusters = clusters,
                                     .shift = membership_shift()};
    if (ops::cuda_takes_memberships(input)) {
      const ops::Memberships together = ops::cuda_memberships(input);
      return {together.query, together.key_side, together.expected};
    }
  }
  return {membership(as_read(query_nodes)), key_side(membership(as_read(key_nodes))), {}};
}

EdgeChoice SbmEdgesImpl::choose(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  TORCH_CHECK_VALUE(shape.heads == options.num_heads && request.query.size(3) == options.head_dim,
                    "SbmEdges: expected ", options.num_heads, " heads of dim ", options.head_dim,
                    "; got query ", request.query.sizes());
  if (options.unit > 1) return choose_squares(request);
  if (has_scope(options)) return choose_in_scope(request);
  at::Tensor query_membership, side, expected;  // expected [H]: edges, where a kernel has counted anyway
  if (RowBuffer* known = request.known_keys) {
    query_membership = membership(as_read(request.query));
    side = known->append(
        key_side(membership(as_read(request.key.narrow(2, known->size(), shape.keys - known->size())))));
  } else {
    const Sides all = sides(request.query, request.key, request.query_mask(), request.key_mask);
    query_membership = all.query, side = all.key_side, expected = all.expected;
  }

  SampleOptions sampling = sampling_options(options, request, is_training());
  if (!options.count_padding) {
    sampling.key_mask = request.key_mask;
    sampling.query_mask = request.query_mask();
  }
  // Where padding is sampled too, only the direct sampler, with one number per pair, leaves the other edges
  // as they are; and by default a batch without padding must draw what one with padding draws.
  const bool direct = options.count_padding && (request.key_mask || options.sampler == Sampler::kAuto);
  if (direct) sampling.sampler = Sampler::kDirect;
  const EdgeSet sampled = sample_sbm_edges(query_membership, side, sampling);

  const RequestPairs asked(request);
  EdgeLearner learner = learner_of(options, query_membership, side, sampling);
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
        expected.defined() && !request.is_causal
            ? expected
            : expected_edges(masked_nodes(query_membership, request.query_mask()),
                             masked_nodes(side, request.key_mask), request.is_causal, request.query_offset),
        ops::at_least_one({possible_pairs(asked, false), pairs_again(asked, false)}));

  if (asks_for_probes(options, is_training())) {
    SampleOptions probing = sampling;
    probing.key_mask = request.key_mask;
    probing.query_mask = request.query_mask();
    probing.probe_unit = options.probe_unit;
    set_probe_rates(learner, replayed, options, shape, request.key_mask);
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

std::string SbmEdgesImpl::cross_refusal() const {
  if (options.unit > 1)
    return "groups of 16 queries choose together, so that a token would hear of those after it; use "
           "attention.unit = 1";
  return options.self_loops ? "sbm.self_loops = true gives every token the key at its own place" : "";
}

std::string SbmEdgesImpl::cross_growth_refusal() const {
  return options.unit > 1 ? "groups of queries choose together; use attention.unit = 1" : growth_refusal();
}

void SbmEdgesImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::SbmEdges(" << options << ")";
}

}  // namespace edgewise
