// IndexerEdges: scores, the draw of alpha keys without replacement, and what it learns from.
#include <edgewise/edges/indexer_edges.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include "edges/policy_probes.h"
#include "ops/attention/learners/look_up.h"
#include "ops/attention/reference.h"
#include "ops/enum_names.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

constexpr EnumNames<IndexerSharing, 2> kIndexerSharings{
    "sharing", {{{"per_layer", IndexerSharing::kPerLayer}, {"per_head", IndexerSharing::kPerHead}}}};
constexpr EnumNames<IndexerEstimator, 2> kIndexerEstimators{
    "estimator",
    {{{"counterfactual", IndexerEstimator::kCounterfactual}, {"paired", IndexerEstimator::kPaired}}}};
constexpr EnumNames<PolicyDecoding, 2> kPolicyDecodings{
    "decoding", {{{"sample", PolicyDecoding::kSample}, {"greedy", PolicyDecoding::kGreedy}}}};

// Low enough to vanish in a softmax, and finite, so that 0 times it is 0.
constexpr double kNoCandidate = -1e30;
// A certainty has no slope, and 1 - pi must not be 0.
constexpr double kAlmostCertain = 1 - 1e-6;

// [B, H, N, D] -> [B, N, H * D].
at::Tensor joined_heads(const at::Tensor& heads) {
  return heads.transpose(1, 2).flatten(2);
}

// What the request allows and no pattern has already: [B, G, L, S] bool.
at::Tensor candidates_of(const EdgeRequest& request, int64_t groups, EdgeSource* source) {
  const EdgeShape shape = request.shape();
  at::Tensor allowed = request.allowed();
  if (source) {
    const at::Tensor given = source->choose(request).edges.to_mask();  // [B, H, L, S]
    allowed = allowed & (groups == 1 ? given.any(1, true) : given);
  }
  if (request.present) {
    const at::Tensor present = request.present->to_mask();  // [B, H, L, S]
    allowed = allowed & (groups == 1 ? present.all(1, true) : present).logical_not();
  }
  return allowed.expand({shape.batch, groups, shape.queries, shape.keys});
}

}  // namespace

IndexerSharing parse_indexer_sharing(std::string_view name) {
  return kIndexerSharings.parse(name);
}
std::string_view to_string(IndexerSharing sharing) {
  return kIndexerSharings.name(sharing);
}
IndexerEstimator parse_indexer_estimator(std::string_view name) {
  return kIndexerEstimators.parse(name);
}
std::string_view to_string(IndexerEstimator estimator) {
  return kIndexerEstimators.name(estimator);
}
PolicyDecoding parse_policy_decoding(std::string_view name) {
  return kPolicyDecodings.parse(name);
}
std::string_view to_string(PolicyDecoding decoding) {
  return kPolicyDecodings.name(decoding);
}

IndexerEdgesOptions::IndexerEdgesOptions(int64_t num_heads_, int64_t embed_dim_)
    : num_heads(num_heads_), embed_dim(embed_dim_) {}

std::ostream& operator<<(std::ostream& stream, const IndexerEdgesOptions& o) {
  stream << "heads=" << o.num_heads << ", embed_dim=" << o.embed_dim << ", index_heads=" << o.index_heads
         << ", index_dim=" << o.index_dim << ", alpha=" << o.alpha << ", sharing=" << to_string(o.sharing)
         << ", temperature=" << o.temperature << ", test=" << to_string(o.test_decoding)
         << (o.candidates ? ", candidates of a source" : "") << ", estimator=" << to_string(o.estimator);
  if (o.estimator == IndexerEstimator::kCounterfactual)
    stream << " (" << to_string(o.present_form) << ", " << o.probes
           << " probes, least_slope=" << o.least_slope << ")";
  return stream << ", policy_weight=" << o.policy_weight << ", entropy_weight=" << o.entropy_weight;
}

// What was chosen, with the policy that chose it.
struct IndexerEdgesImpl::Draw {
  at::Tensor allowed;   // [B, G, L, S] bool
  at::Tensor log_p;     // [B, G, L, S] log pi, of a prediction
  at::Tensor chosen;    // [B, G, L, A] int64, in the order of the draw
  at::Tensor taken;     // [B, G, L, A] bool: a candidate
  at::Tensor choosing;  // [B, G, L] bool: more candidates than edges to make; the others take them all
};

IndexerEdgesImpl::IndexerEdgesImpl(IndexerEdgesOptions given) : options(given) {
  TORCH_CHECK_VALUE(
      options.num_heads > 0 && options.embed_dim > 0 && options.index_heads > 0 && options.index_dim > 0,
      "IndexerEdges: expected num_heads, embed_dim, index_heads and index_dim of at least 1; got ",
      options.num_heads, ", ", options.embed_dim, ", ", options.index_heads, " and ", options.index_dim);
  TORCH_CHECK_VALUE(options.alpha >= 1 && options.probes >= 0,
                    "IndexerEdges: expected alpha of at least 1 and probes of at least 0; got ",
                    options.alpha, " and ", options.probes);
  TORCH_CHECK_VALUE(options.least_slope >= 0, "IndexerEdges: expected least_slope of at least 0; got ",
                    options.least_slope);
  TORCH_CHECK_VALUE(options.temperature > 0, "IndexerEdges: expected a temperature above 0; got ",
                    options.temperature);
  const int64_t groups = options.sharing == IndexerSharing::kPerHead ? options.num_heads : 1,
                width = options.embed_dim;
  const auto parameter = [&](const char* name, at::IntArrayRef sizes) {
    return register_parameter(name, at::empty(sizes));
  };
  query_weight = parameter("query_weight", {groups, width, options.index_heads * options.index_dim});
  key_weight = parameter("key_weight", {groups, width, options.index_dim});
  head_weight = parameter("head_weight", {groups, width, options.index_heads});
  head_bias = parameter("head_bias", {groups, options.index_heads});
  if (options.candidates) register_module("candidates", options.candidates);
  reset_parameters();
}

void IndexerEdgesImpl::reset_parameters() {
  const at::NoGradGuard guard;
  const double std = 1 / std::sqrt(static_cast<double>(options.embed_dim));
  for (at::Tensor* weight : {&query_weight, &key_weight, &head_weight}) weight->normal_(0, std);
  head_bias.fill_(1);
}

at::Tensor IndexerEdgesImpl::scores(const EdgeRequest& request) const {
  const EdgeShape shape = request.shape();
  TORCH_CHECK_VALUE(shape.heads == options.num_heads, "IndexerEdges: expected ", options.num_heads,
                    " heads; got query ", request.query.sizes());
  const bool from_heads = !request.tokens.defined();
  const at::Tensor queries = from_heads ? joined_heads(request.query) : request.tokens;
  const at::Tensor keys = request.key_tokens.defined() ? request.key_tokens
                          : from_heads                 ? joined_heads(request.key)
                                                       : queries;
  const auto check = [&](const char* name, const at::Tensor& tokens, int64_t length) {
    TORCH_CHECK_VALUE(tokens.dim() == 3 && tokens.size(1) == length && tokens.size(2) == options.embed_dim,
                      "IndexerEdges: expected ", name, " [B, ", length, ", ", options.embed_dim, "]; got ",
                      tokens.sizes(), ". Give key_tokens where there are more keys than queries.");
  };
  check("tokens", queries, shape.queries);
  check("key_tokens", keys, shape.keys);
  const auto projected = [&](const at::Tensor& tokens, const at::Tensor& weight) {  // [B, G, N, W]
    return at::matmul(tokens.detach().to(weight.scalar_type()).unsqueeze(1), weight);
  };
  const at::Tensor q = projected(queries, query_weight), k = projected(keys, key_weight).transpose(2, 3),
                   w = projected(queries, head_weight) + head_bias.unsqueeze(1);
  at::Tensor sum;
  for (int64_t head = 0; head < options.index_heads; ++head) {
    const at::Tensor of_head = at::matmul(q.narrow(3, head * options.index_dim, options.index_dim), k).relu();
    const at::Tensor weighed = of_head * w.narrow(3, head, 1);
    sum = sum.defined() ? sum + weighed : weighed;
  }
  return sum /
         (std::sqrt(static_cast<double>(options.index_heads * options.index_dim)) * options.temperature);
}

IndexerEdgesImpl::Draw IndexerEdgesImpl::draw(const EdgeRequest& request) const {
  const EdgeShape shape = request.shape();
  const int64_t groups = query_weight.size(0);
  Draw result;
  result.allowed = candidates_of(request, groups, options.candidates.get());
  const at::Tensor scored = scores(request).masked_fill(result.allowed.logical_not(), kNoCandidate);
  result.log_p = scored.log_softmax(-1);
  const PolicyDecoding decoding =
      is_training() ? PolicyDecoding::kSample : decoding_.value_or(options.test_decoding);
  at::Tensor order = scored.detach();
  if (decoding == PolicyDecoding::kSample) {
    EdgeShape drawn = shape;
    drawn.heads = groups;
    const at::Tensor keys = ops::stream_keys(request.random, kernels::Purpose::kEdges, drawn);
    const at::Tensor uniform =
        (ops::reference::pair_numbers(keys, drawn, request.query.device(), request.first_row())
             .to(at::kDouble) +
         0.5) /
        4294967296.0;
    order = order.to(at::kDouble) - (-uniform.log()).log();
  }
  result.chosen = std::get<1>(order.topk(std::min(options.alpha, shape.keys), -1));
  result.taken = result.allowed.gather(-1, result.chosen);
  result.choosing = result.allowed.sum(-1) > options.alpha;
  return result;
}

EdgeChoice IndexerEdgesImpl::choose(const EdgeRequest& request) {
  // Log-probabilities need more than half precision.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const EdgeShape shape = request.shape();
  const Draw drawn = draw(request);
  EdgeChoice choice;
  const at::Tensor mask =
      at::zeros(drawn.allowed.sizes(), drawn.allowed.options()).scatter(-1, drawn.chosen, true) &
      drawn.allowed;
  choice.edges = EdgeSet::from_mask(mask.expand({shape.batch, shape.heads, shape.queries, shape.keys}));
  const bool learns = is_training() && at::GradMode::is_enabled();
  if (learns || (!is_training() && decoding_ == PolicyDecoding::kSample)) choice.policy = make_policy(drawn);
  if (learns && options.estimator == IndexerEstimator::kCounterfactual && options.policy_weight != 0)
    choice.learner = make_learner(drawn, request, choice.edges);
  return choice;
}

EdgePolicy IndexerEdgesImpl::make_policy(const Draw& drawn) const {
  const int64_t batch = drawn.log_p.size(0);
  EdgePolicy policy;
  // Draw by draw, each among the keys that are left.
  const at::Tensor log_pi = drawn.log_p.gather(-1, drawn.chosen), pi = log_pi.exp();
  const at::Tensor gone = (at::cumsum(pi, -1) - pi).clamp(0, kAlmostCertain);
  const at::Tensor counts = drawn.taken & drawn.choosing.unsqueeze(-1);
  policy.log_prob = (log_pi - (-gone).log1p()).masked_fill(counts.logical_not(), 0).sum({1, 3});
  const at::Tensor entropy = -(drawn.log_p.exp() * drawn.log_p).sum(-1);  // [B, G, L]
  policy.entropy = entropy.masked_fill(drawn.choosing.logical_not(), 0).sum({1, 2}) /
                   drawn.choosing.sum({1, 2}).clamp_min(1);
  const auto real = drawn.log_p.options().requires_grad(false);
  policy.baseline = at::zeros({batch}, real);
  policy.reward_scale = at::ones({}, real);
  policy.weights.entropy = options.entropy_weight;
  if (options.estimator == IndexerEstimator::kPaired) policy.weights.paired = options.policy_weight;
  return policy;
}

// p = 1 - (1 - pi)^alpha: that alpha draws include a key.
EdgeLearner IndexerEdgesImpl::make_learner(const Draw& drawn, const EdgeRequest& request,
                                           const EdgeSet& edges) const {
  const int64_t groups = drawn.log_p.size(1);
  const at::Tensor log_p = drawn.log_p.reshape({-1, 1}), choosing = drawn.choosing.flatten();
  const auto included = [&](const EdgeSet& of) {
    const auto alpha = static_cast<double>(options.alpha);
    const at::Tensor log_pi = ops::looked_up(log_p, places_in_groups(of, groups)).squeeze(-1);
    const at::Tensor pi = log_pi.exp().clamp_max(kAlmostCertain);
    const at::Tensor slope = alpha * pi * (1 - pi).pow(alpha - 1);
    const at::Tensor p =
        with_least_slope(-((-pi).log1p() * alpha).expm1(), log_pi, slope, options.least_slope);
    // Who takes all candidates has decided nothing.
    const at::Tensor decided = choosing.index_select(0, rows_in_groups(of, groups));
    return options.policy_weight * p.masked_fill(decided.logical_not(), 0);
  };
  EdgeLearner learner;
  learner.rule = credit_rule(Estimator::kCounterfactual, options.present_form);
  learner.values = included(edges);
  if (options.probes == 0) return learner;
  learner.probe_rates = probe_rates(request, options.probes);
  const EdgeSet probes = draw_probes(request, edges, learner.probe_rates);
  learner.probes = probes.kept(drawn.allowed.flatten().index_select(0, places_in_groups(probes, groups)));
  learner.probe_values = included(*learner.probes);
  return learner;
}

bool IndexerEdgesImpl::decode_by(std::optional<PolicyDecoding> decoding) {
  decoding_ = decoding;
  return true;
}

std::string IndexerEdgesImpl::growth_refusal() const {
  return "the indexer keeps no keys of earlier tokens; generate with another kind of attention";
}

void IndexerEdgesImpl::pretty_print(std::ostream& stream) const {
  stream << "edgewise::IndexerEdges(" << options << ")";
}

}  // namespace edgewise
