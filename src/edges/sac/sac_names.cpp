// Names of the options of SacEdges.
#include <edgewise/edges/sac_edges.h>

#include <ostream>

#include "ops/enum_names.h"

namespace edgewise {
namespace {

constexpr EnumNames<SacWalk, 2> kWalks{"walk", {{{"rooted", SacWalk::kRooted}, {"pairs", SacWalk::kPairs}}}};
constexpr EnumNames<SacScorer, 2> kScorers{"scorer", {{{"dot", SacScorer::kDot}, {"mlp", SacScorer::kMlp}}}};
constexpr EnumNames<SacSharing, 3> kSharings{"sharing",
                                             {{{"all_layers", SacSharing::kAllLayers},
                                               {"per_layer", SacSharing::kPerLayer},
                                               {"per_head", SacSharing::kPerHead}}}};
constexpr EnumNames<DistanceEncoding, 3> kDistances{"distance",
                                                    {{{"none", DistanceEncoding::kNone},
                                                      {"bias", DistanceEncoding::kBias},
                                                      {"vector", DistanceEncoding::kVector}}}};
constexpr EnumNames<SelfEdges, 3> kSelfEdges{
    "self_edges",
    {{{"allowed", SelfEdges::kAllowed}, {"never", SelfEdges::kNever}, {"always", SelfEdges::kAlways}}}};
constexpr EnumNames<WalkDecoding, 3> kDecodings{
    "decoding",
    {{{"sample", WalkDecoding::kSample}, {"greedy", WalkDecoding::kGreedy}, {"beam", WalkDecoding::kBeam}}}};
constexpr EnumNames<SacEstimator, 4> kEstimators{"estimator",
                                                 {{{"counterfactual", SacEstimator::kCounterfactual},
                                                   {"paired", SacEstimator::kPaired},
                                                   {"reinforce", SacEstimator::kReinforce},
                                                   {"distillation", SacEstimator::kDistillation}}}};
constexpr EnumNames<RewardBaseline, 3> kBaselines{"baseline",
                                                  {{{"none", RewardBaseline::kNone},
                                                    {"running_mean", RewardBaseline::kRunningMean},
                                                    {"learned", RewardBaseline::kLearned}}}};

}  // namespace

SacWalk parse_sac_walk(std::string_view name) {
  return kWalks.parse(name);
}
std::string_view to_string(SacWalk walk) {
  return kWalks.name(walk);
}
SacScorer parse_sac_scorer(std::string_view name) {
  return kScorers.parse(name);
}
std::string_view to_string(SacScorer scorer) {
  return kScorers.name(scorer);
}
SacSharing parse_sac_sharing(std::string_view name) {
  return kSharings.parse(name);
}
std::string_view to_string(SacSharing sharing) {
  return kSharings.name(sharing);
}
DistanceEncoding parse_distance_encoding(std::string_view name) {
  return kDistances.parse(name);
}
std::string_view to_string(DistanceEncoding encoding) {
  return kDistances.name(encoding);
}
SelfEdges parse_self_edges(std::string_view name) {
  return kSelfEdges.parse(name);
}
std::string_view to_string(SelfEdges edges) {
  return kSelfEdges.name(edges);
}
WalkDecoding parse_walk_decoding(std::string_view name) {
  return kDecodings.parse(name);
}
std::string_view to_string(WalkDecoding decoding) {
  return kDecodings.name(decoding);
}
SacEstimator parse_sac_estimator(std::string_view name) {
  return kEstimators.parse(name);
}
std::string_view to_string(SacEstimator estimator) {
  return kEstimators.name(estimator);
}
RewardBaseline parse_reward_baseline(std::string_view name) {
  return kBaselines.parse(name);
}
std::string_view to_string(RewardBaseline baseline) {
  return kBaselines.name(baseline);
}

std::ostream& operator<<(std::ostream& stream, const SacEdgesOptions& o) {
  stream << "heads=" << o.num_heads << ", embed_dim=" << o.embed_dim << ", node_dim=" << o.node_dim
         << ", walk=" << to_string(o.walk) << ", scorer=" << to_string(o.scorer)
         << ", sharing=" << to_string(o.sharing);
  if (o.budget > 0) {
    stream << ", budget=" << o.budget;
  } else {
    stream << ", alpha=" << o.alpha;
  }
  stream << ", self_edges=" << to_string(o.self_edges) << (o.duplicates ? ", duplicates" : "")
         << (o.candidates ? ", candidates of a source" : "") << ", distance=" << to_string(o.distance)
         << ", relations=" << o.relations << ", train=" << to_string(o.train_decoding)
         << ", test=" << to_string(o.test_decoding) << " (beam " << o.beam << ")"
         << ", estimator=" << to_string(o.estimator);
  if (o.estimator == SacEstimator::kCounterfactual)
    stream << " (" << to_string(o.present_form) << ", " << o.probes
           << " probes, least_slope=" << o.least_slope << ")";
  return stream << ", baseline=" << to_string(o.baseline) << ", policy_weight=" << o.policy_weight
                << ", entropy_weight=" << o.entropy_weight << (o.detach_inputs ? ", inputs detached" : "");
}

}  // namespace edgewise
