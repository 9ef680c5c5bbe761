// SacEdges: parameters, what a walk sees, and from a walk to edges.
#include <edgewise/edges/sac_edges.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <ostream>
#include <tuple>

#include "edges/sac/sac_fused.h"
#include "edges/sac/sac_inputs.h"
#include "edges/sac/sac_walk.h"
#include "ops/streams.h"
#include "ops/walk/walk_call.h"
#include "ops/walk/walk_random.h"

namespace edgewise {
namespace {

void check_options(const SacEdgesOptions& o) {
  TORCH_CHECK_VALUE(o.num_heads > 0 && o.embed_dim > 0 && o.node_dim > 0,
                    "SacEdges: expected heads, embed_dim and node_dim of at least 1; got ", o.num_heads, ", ",
                    o.embed_dim, " and ", o.node_dim);
  TORCH_CHECK_VALUE(o.alpha >= 1 && o.budget >= 0,
                    "SacEdges: expected alpha of at least 1 and a budget of at least 0; got ", o.alpha,
                    " and ", o.budget);
  TORCH_CHECK_VALUE(o.beam >= 1, "SacEdges: expected a beam of at least 1; got ", o.beam);
  TORCH_CHECK_VALUE(o.distance_buckets >= 2 && o.max_distance >= 1,
                    "SacEdges: expected at least 2 distance buckets and a max_distance of at least 1; got ",
                    o.distance_buckets, " and ", o.max_distance);
  TORCH_CHECK_VALUE(
      o.distance_decay == 0 || (o.distance_decay > 0 && o.distance == DistanceEncoding::kBias),
      "SacEdges: expected a distance_decay of at least 0, and distance bias with one above 0; got ",
      o.distance_decay, " and ", to_string(o.distance));
  TORCH_CHECK_VALUE(o.relations == 0 || o.distance != DistanceEncoding::kNone,
                    "SacEdges: expected distance bias or vector to encode relations with; got none");
  TORCH_CHECK_VALUE(o.relations >= 0, "SacEdges: expected relations of at least 0; got ", o.relations);
  TORCH_CHECK_VALUE(o.train_decoding != WalkDecoding::kBeam,
                    "SacEdges: expected train_decoding sample or greedy; got beam, which gives no "
                    "log-probabilities to learn from");
  const bool rooted = o.walk == SacWalk::kRooted;
  TORCH_CHECK_VALUE(
      rooted || o.estimator != SacEstimator::kDistillation,
      "SacEdges: expected walk rooted with the estimator distillation, which compares whole rows; "
      "got pairs");
  TORCH_CHECK_VALUE(
      o.estimator != SacEstimator::kCounterfactual || (rooted && !o.duplicates),
      "SacEdges: expected walk rooted and no duplicates with the estimator counterfactual, which needs the "
      "probability of every edge; got ",
      to_string(o.walk), o.duplicates ? ", with duplicates" : "", ". Use paired or reinforce");
  TORCH_CHECK_VALUE(o.least_slope >= 0, "SacEdges: expected least_slope of at least 0; got ", o.least_slope);
  TORCH_CHECK_VALUE(o.probes >= 0, "SacEdges: expected probes of at least 0; got ", o.probes);
  TORCH_CHECK_VALUE(o.distilled_rows >= 1, "SacEdges: expected distilled_rows of at least 1; got ",
                    o.distilled_rows);
}

// [B, H, N, D] -> [B, N, H * D].
at::Tensor side_by_side(const at::Tensor& heads) {
  return heads.transpose(1, 2).flatten(2);
}

// The edges of all heads from one action list per group, with the action that made each.
struct MadeEdges {
  EdgeSet edges;
  at::Tensor action;  // [E] position in the flattened [B, G, A]; -1: no single action made it
};

// Of a rooted walk that made no edge twice and nothing but its actions: a short sort in each row. Who does
// not learn needs no actions.
MadeEdges edges_of_rows(const EdgeShape& shape, const sac::WalkResult& walk, bool with_actions) {
  const at::NoGradGuard guard;
  at::Tensor keys = walk.sorted, order = walk.order;  // [B, G, L, steps]
  bool all = walk.all_taken;
  const std::vector<int64_t> rows = {shape.batch, keys.defined() ? keys.size(1) : walk.taken.size(1),
                                     shape.queries, walk.steps};
  if (!keys.defined() && walk.destination.is_cpu()) {
    const ops::RowKeys sorted =
        ops::sorted_rows(walk.destination.view(rows).contiguous(), walk.taken.view(rows).contiguous(),
                         shape.keys, with_actions);
    keys = sorted.keys;
    order = sorted.order;
    all = sorted.all;
  } else if (!keys.defined()) {
    std::tie(keys, order) = walk.destination.view(rows)
                                .to(at::kInt)
                                .masked_fill_(walk.taken.view(rows).logical_not(), shape.keys)
                                .sort(-1, false);
  }
  const int64_t groups = keys.size(1), steps = walk.steps;
  const auto whole = keys.options().dtype(at::kLong);
  const std::vector<int64_t> wide = {shape.batch, shape.heads, shape.queries, steps};
  at::Tensor made;
  if (!all && !walk.places.defined()) {
    made = keys < shape.keys;
    all = !keys.is_cpu() && made.all().item<bool>();  // on the CPU it is known
  }
  const auto listed = [&](const at::Tensor& values) {  // of the edges of all heads
    if (walk.places.defined()) return values.flatten().index_select(0, walk.places);
    const at::Tensor each = values.sizes() == wide ? values : values.expand(wide);
    return all ? each.flatten() : each.masked_select(made.expand(wide));
  };
  MadeEdges result;
  if (with_actions) {
    const at::Tensor first = at::arange(shape.batch * groups * shape.queries, whole) * steps;
    result.action = listed(first.view({shape.batch, groups, shape.queries, 1}) + order);
  }
  const at::Tensor offsets =
      walk.offsets.defined() ? walk.offsets : at::arange(0, shape.rows() * steps + 1, steps, whole);
  if (!all && !walk.places.defined())
    offsets.narrow(0, 1, shape.rows())
        .copy_(made.sum(-1).expand({shape.batch, shape.heads, shape.queries}).flatten().cumsum(0));
  result.edges = EdgeSet::from_trusted_csr(shape, offsets, listed(keys));
  return result;
}

MadeEdges make_edges(const EdgeRequest& request, const sac::WalkResult& walk, const at::Tensor& own_rows) {
  const at::NoGradGuard guard;
  const EdgeShape shape = request.shape();
  const int64_t groups = walk.taken.size(1), actions = walk.taken.size(2);
  const auto whole = walk.source.options();
  const std::vector<int64_t> wide = {shape.batch, shape.heads, actions};
  const at::Tensor first_row = (at::arange(shape.batch * shape.heads, whole) * shape.queries)
                                   .view({shape.batch, shape.heads, 1});  // of each head
  const at::Tensor taken = walk.taken.expand(wide);
  const at::Tensor places = ((first_row + walk.source) * shape.keys + walk.destination).masked_select(taken);
  const at::Tensor ids = at::arange(shape.batch * groups * actions, whole)
                             .view({shape.batch, groups, actions})
                             .expand(wide)
                             .masked_select(taken);
  at::Tensor others = at::empty({0}, whole);
  if (walk.certain.defined())
    others = walk.certain.expand({shape.batch, shape.heads, shape.queries, shape.keys})
                 .flatten()
                 .nonzero()
                 .squeeze(1);
  if (own_rows.defined()) {
    const at::Tensor query = at::arange(shape.queries, whole);
    const at::Tensor own =
        ((first_row + query) * shape.keys + query + request.query_offset)
            .masked_select(own_rows.unsqueeze(1).expand({shape.batch, shape.heads, shape.queries}));
    others = at::cat({others, own});
  }
  const at::Tensor all = at::cat({places, others}), all_ids = at::cat({ids, at::full_like(others, -1)});
  const auto [sorted, order] = all.sort(/*stable=*/true, 0, false);
  const auto [unique, inverse, counts] = at::unique_consecutive(sorted, false, true);
  const at::Tensor first = counts.cumsum(0) - counts;  // of each edge among the sorted
  MadeEdges result;
  result.action = at::where(counts == 1, all_ids.index_select(0, order).index_select(0, first),
                            at::full_like(counts, -1));
  at::Tensor offsets = at::zeros({shape.rows() + 1}, whole);
  offsets.narrow(0, 1, shape.rows())
      .copy_(at::bincount(unique.div(shape.keys, "floor"), {}, shape.rows()).cumsum(0));
  result.edges = EdgeSet::from_trusted_csr(shape, offsets,
                                           unique.remainder(std::max<int64_t>(shape.keys, 1)).to(at::kInt));
  return result;
}

// What a destination's score begins with, [buckets]: -decay log(1 + d) of the nearest distance in a bucket.
at::Tensor decayed_distances(const SacEdgesOptions& options) {
  const int64_t buckets = options.distance_buckets / 2 * 2;
  const at::Tensor steps = at::arange(options.max_distance + 1);
  const at::Tensor bucket = sac::bucket_of_distance(-steps, buckets, options.max_distance);
  at::Tensor nearest = at::full({buckets / 2}, static_cast<double>(options.max_distance), at::kDouble);
  nearest = nearest.scatter_reduce(0, bucket, steps.to(at::kDouble), "amin");
  const at::Tensor side = nearest.log1p() * -options.distance_decay;
  return at::cat({side, side});
}

}  // namespace

SacEdgesOptions::SacEdgesOptions(int64_t num_heads_, int64_t embed_dim_)
    : num_heads(num_heads_), embed_dim(embed_dim_) {}

SacEdgesImpl::SacEdgesImpl(SacEdgesOptions given) : options(std::move(given)) {
  check_options(options);
  const int64_t groups = options.sharing == SacSharing::kPerHead ? options.num_heads : 1,
                width = options.node_dim;
  const auto parameter = [&](const char* name, at::IntArrayRef sizes) {
    return register_parameter(name, at::empty(sizes));
  };
  node_weight = parameter("node_weight", {groups, options.embed_dim, width});
  node_bias = parameter("node_bias", {groups, width});
  lstm_weight_ih = parameter("lstm_weight_ih", {groups, width, 4 * width});
  lstm_weight_hh = parameter("lstm_weight_hh", {groups, width, 4 * width});
  lstm_bias = parameter("lstm_bias", {groups, 4 * width});
  if (options.walk == SacWalk::kPairs) start = parameter("start", {groups, width});
  if (options.scorer == SacScorer::kMlp) {
    mlp_state = parameter("mlp_state", {groups, width, width});
    mlp_node = parameter("mlp_node", {groups, width, width});
    mlp_bias = parameter("mlp_bias", {groups, width});
    mlp_out = parameter("mlp_out", {groups, width});
  }
  const auto table = [&](const char* name, int64_t size) {
    return options.distance == DistanceEncoding::kVector ? parameter(name, {groups, size, width})
                                                         : parameter(name, {groups, size});
  };
  if (options.distance != DistanceEncoding::kNone)
    distance_table = table("distance_table", options.distance_buckets / 2 * 2);
  if (options.relations > 0) relation_table = table("relation_table", options.relations + 1);
  if (options.baseline == RewardBaseline::kLearned) {
    value1 = register_module("value1", torch::nn::Linear(options.embed_dim, width));
    value2 = register_module("value2", torch::nn::Linear(width, 1));
  }
  if (options.candidates) register_module("candidates", options.candidates);
  rewards = register_module("rewards", std::make_shared<RewardStatistics>(options.baseline_decay));
  reset_parameters();
}

void SacEdgesImpl::reset_parameters() {
  const at::NoGradGuard guard;
  const double bound = 1 / std::sqrt(static_cast<double>(options.node_dim));
  node_weight.normal_(0, 1 / std::sqrt(static_cast<double>(options.embed_dim)));
  node_bias.zero_();
  for (at::Tensor* parameter :
       {&lstm_weight_ih, &lstm_weight_hh, &lstm_bias, &start, &mlp_state, &mlp_node, &mlp_bias, &mlp_out})
    if (parameter->defined()) parameter->uniform_(-bound, bound);
  for (at::Tensor* encoding : {&distance_table, &relation_table})
    if (encoding->defined()) encoding->zero_();
  if (options.distance_decay > 0) distance_table.copy_(decayed_distances(options));
}

sac::WalkInputs SacEdgesImpl::walk_inputs(const EdgeRequest& request, bool with_pairs) const {
  const EdgeShape shape = request.shape();
  TORCH_CHECK_VALUE(shape.heads == options.num_heads, "SacEdges: expected ", options.num_heads,
                    " heads; got query ", request.query.sizes());
  at::Tensor tokens = request.tokens, key_tokens = request.key_tokens;
  const bool from_heads = !tokens.defined(), one_side = !from_heads && !key_tokens.defined();
  if (from_heads) tokens = side_by_side(request.query);
  RowBuffer* const known = request.known_keys;
  if (known) {
    TORCH_CHECK_VALUE(!from_heads && shape.keys == known->size() + shape.queries,
                      "SacEdges: expected the tokens of the new keys with known_keys, ", known->size(),
                      " known and ", shape.queries, " new ones; got ", shape.keys, " keys in all");
    key_tokens = tokens;
  }
  if (!key_tokens.defined()) key_tokens = from_heads ? side_by_side(request.key) : tokens;
  TORCH_CHECK_VALUE(
      tokens.dim() == 3 && tokens.size(1) == shape.queries && tokens.size(2) == options.embed_dim,
      "SacEdges: expected tokens [B, ", shape.queries, ", ", options.embed_dim, "]; got ", tokens.sizes());
  TORCH_CHECK_VALUE(key_tokens.dim() == 3 && (known || key_tokens.size(1) == shape.keys) &&
                        key_tokens.size(2) == options.embed_dim,
                    "SacEdges: expected key_tokens [B, ", shape.keys, ", ", options.embed_dim, "]; got ",
                    key_tokens.sizes(), ". Give key_tokens where there are more keys than queries.");
  const at::ScalarType dtype = node_weight.scalar_type();
  if (options.detach_inputs) {
    tokens = tokens.detach();
    key_tokens = key_tokens.detach();
  }
  const auto nodes = [&](const at::Tensor& of) {   // [B, G, N, P]
    if (of.is_cuda() && node_weight.size(0) == 1)  // one launch
      return at::addmm(node_bias.select(0, 0), of.to(dtype).flatten(0, 1), node_weight.select(0, 0))
          .view({of.size(0), 1, of.size(1), -1});
    return at::matmul(of.to(dtype).unsqueeze(1), node_weight) + node_bias.unsqueeze(1);
  };
  sac::WalkInputs inputs;
  inputs.tokens = tokens;
  inputs.query_nodes = nodes(tokens);
  inputs.key_nodes = known      ? known->append(inputs.query_nodes)
                     : one_side ? inputs.query_nodes
                                : nodes(key_tokens);
  // Where every query has alpha edges the kernels on a GPU need not be told of each.
  const bool alike = !with_pairs && tokens.is_cuda() && options.walk == SacWalk::kRooted &&
                     options.budget == 0 && !request.query_mask();
  if (!alike) inputs.limits = sac::walk_limits(options, request);
  if (with_pairs) inputs.allowed = sac::allowed_pairs(options, request, node_weight.size(0));
  if (with_pairs && options.distance != DistanceEncoding::kNone)
    inputs.buckets = sac::distance_buckets(request, distance_table.size(1), options.max_distance);
  if (options.relations > 0) {
    TORCH_CHECK_VALUE(request.relations,
                      "SacEdges: expected relations in the request, as the option relations = ",
                      options.relations, " promises; got none");
    inputs.relations = sac::relation_ids(request, options.relations);
  }
  if (options.self_edges == SelfEdges::kAlways) {
    TORCH_CHECK_VALUE(request.query_offset + shape.queries <= shape.keys,
                      "SacEdges: expected every query among the keys for self_edges always; got ",
                      to_string(shape), " with query_offset ", request.query_offset);
    const auto mask = request.query_mask();
    inputs.own_rows = mask ? *mask
                           : at::ones({shape.batch, shape.queries},
                                      at::TensorOptions().dtype(at::kBool).device(request.query.device()));
  }
  return inputs;
}

sac::WalkResult SacEdgesImpl::walk(const sac::WalkInputs& inputs, const EdgeRequest& request,
                                   WalkDecoding decoding) const {
  if (decoding == WalkDecoding::kBeam) return sac::beam_walk(*this, inputs);
  const bool rooted = options.walk == SacWalk::kRooted;
  sac::Chooser choose = sac::greedy_chooser();
  if (decoding == WalkDecoding::kSample) {
    const int64_t batch = inputs.allowed.size(0), groups = inputs.allowed.size(1);
    const int64_t longest = inputs.limits.numel() == 0 ? 0 : inputs.limits.max().item<int64_t>();
    const int64_t walkers = rooted ? inputs.allowed.size(2) : 1, predictions = rooted ? longest : 2 * longest;
    const at::Tensor keys =
        ops::stream_keys(request.random, kernels::Purpose::kEdges, {batch, groups, walkers, 0});
    choose = sac::sampling_chooser(ops::reference::walk_uniforms(keys, walkers, predictions,
                                                                 kernels::kWalkLane, inputs.allowed.device(),
                                                                 rooted ? request.first_row() : 0)
                                       .view({batch, groups, walkers, predictions}));
  }
  if (!rooted) return sac::pairs_walk(*this, inputs, choose);
  return sac::rooted_walk(*this, inputs, choose,
                          (options.estimator == SacEstimator::kDistillation ||
                           options.estimator == SacEstimator::kCounterfactual) &&
                              is_training() && at::GradMode::is_enabled());
}

EdgeChoice SacEdgesImpl::choose(const EdgeRequest& request) {
  // Log-probabilities need more than half precision.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const WalkDecoding decoding = is_training()                           ? options.train_decoding
                                : !decoding_                            ? options.test_decoding
                                : *decoding_ == PolicyDecoding::kSample ? WalkDecoding::kSample
                                                                        : WalkDecoding::kGreedy;
  const bool fused = sac::fused_walk_applies(*this, request, decoding);
  const sac::WalkInputs inputs = walk_inputs(request, !fused);
  const EdgeChoice choice = choice_of(
      inputs, fused ? sac::fused_walk(*this, inputs, request, decoding) : walk(inputs, request, decoding),
      request);
  if (options.sharing == SacSharing::kAllLayers) last_choice_ = choice;
  return choice;
}

EdgeChoice SacEdgesImpl::choice_of(const sac::WalkInputs& inputs, const sac::WalkResult& result,
                                   const EdgeRequest& request) const {
  const bool plain = options.walk == SacWalk::kRooted && !options.duplicates && !result.certain.defined() &&
                     !inputs.own_rows.defined() && result.steps > 0;
  const bool learns = is_training() && at::GradMode::is_enabled();
  const MadeEdges made =
      plain ? edges_of_rows(request.shape(), result, learns) : make_edges(request, result, inputs.own_rows);
  EdgeChoice choice;
  choice.edges = made.edges;
  if (reports_policy()) choice.policy = make_policy(inputs, result, request);
  if (learns && options.estimator == SacEstimator::kCounterfactual && options.policy_weight != 0)
    choice.learner = make_learner(inputs, result, request, made.edges, made.action);
  return choice;
}

bool SacEdgesImpl::reports_policy() const {
  return is_training() ? at::GradMode::is_enabled() : decoding_ == PolicyDecoding::kSample;
}

bool SacEdgesImpl::decode_by(std::optional<PolicyDecoding> decoding) {
  decoding_ = decoding;
  return true;
}

std::string SacEdgesImpl::causal_refusal() const {
  if (options.walk == SacWalk::kRooted) return {};
  return "the walk pairs goes from token to token in any order, so that the edges of a query depend on "
         "tokens after it; "
         "use sac.walk = rooted, where every query walks on its own";
}

std::string SacEdgesImpl::cross_refusal() const {
  if (options.walk == SacWalk::kPairs)
    return "the walk pairs takes its sources from among the keys; use sac.walk = rooted";
  if (options.self_edges != SelfEdges::kAllowed)
    return "no token stands among the keys itself; use sac.self_edges = allowed";
  return options.candidates ? options.candidates->cross_refusal() : "";
}

std::string SacEdgesImpl::cross_growth_refusal() const {
  return "its predictor keeps the nodes of one growing sequence alone";
}

std::string SacEdgesImpl::growth_refusal() const {
  if (options.budget == 0) return {};
  return "sac.budget is shared out over the whole sequence, however long it becomes; use sac.alpha, a number "
         "per token";
}

const EdgeChoice& SacEdgesImpl::last_choice() const {
  TORCH_CHECK(last_choice_,
              "SacEdges: expected choose() to have run before its choice is shared; it has not");
  return *last_choice_;
}

void SacEdgesImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::SacEdges(" << options << ")";
}

SharedSacEdges::SharedSacEdges(SacEdges leader) : leader_(std::move(leader)) {}

EdgeChoice SharedSacEdges::choose(const EdgeRequest& request) {
  const EdgeChoice& shared = leader_->last_choice();
  TORCH_CHECK_VALUE(shared.edges.shape() == request.shape(),
                    "SharedSacEdges: expected a request of the shape that the first layer chose for, ",
                    to_string(shared.edges.shape()), "; got ", to_string(request.shape()));
  EdgeChoice choice;
  choice.edges = shared.edges;
  choice.learner = shared.learner;  // of this layer too; the actions' rewards are counted once, in the first
  return choice;
}

SacEdgesFactory::SacEdgesFactory(SacEdgesOptions options) : options_(std::move(options)) {}

EdgeSourcePtr SacEdgesFactory::operator()(int64_t layer) {
  if (options_.sharing != SacSharing::kAllLayers) return SacEdges(options_).ptr();
  if (layer > 0) {
    TORCH_CHECK(!leader_.is_empty(), "SacEdgesFactory: expected layer 0 to be made first; got layer ", layer);
    return std::make_shared<SharedSacEdges>(leader_);
  }
  leader_ = SacEdges(options_);
  return leader_.ptr();
}

}  // namespace edgewise
