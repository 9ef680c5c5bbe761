// Edges from a stochastic block model: [sbm], alone or beside a window.
#include <edgewise/train/build_model.h>
#include <edgewise/train/task_kinds.h>

#include <cmath>
#include <sstream>

#include "ops/attention/cuda_limits.h"
#include "train/attention/builtin_kinds.h"
#include "train/recipe/override_with.h"

namespace edgewise::train {
namespace {

EdgeSourceFactory sbm_edges(const Recipe& recipe) {
  return [options = sbm_options(recipe)](int64_t) -> EdgeSourcePtr { return SbmEdges(options).ptr(); };
}

Operations sbm_cost(const Recipe& recipe, const HeadSize& size) {
  const SbmEdgesOptions sbm = sbm_options(recipe);
  // On a GPU every pair is visited; so it is where padding is sampled too.
  const bool direct = sbm.sampler == Sampler::kDirect || sbm.count_padding ||
                      (sbm.sampler == Sampler::kAuto && !size.device.is_cpu());
  const double nodes = std::ceil(size.n / static_cast<double>(sbm.unit));
  Operations result = sbm_operations(nodes, size.d, static_cast<double>(sbm.clusters), size.density,
                                     direct ? SamplingCost::kDirect : SamplingCost::kPerEdge);
  if (sbm.unit > 1)
    for (Operation& operation : result) operation.name += " (n: groups of 16)";
  const Operations edges = edges_alone(recipe, size);
  result.insert(result.end(), edges.begin(), edges.end());
  return result;
}

// Of squares whatever has no kernel is listed, and the host waits for their number.
std::string squares_recording_refusal(const SbmEdgesOptions& options) {
  const auto refusal = [](const std::string& what, const std::string& instead) {
    return what + " is worked out from a list of the squares, for whose length the host waits; set " +
           instead + ", or train.cuda_graph = false";
  };
  if (options.clusters % 8 != 0 || options.clusters > 256)
    return refusal("a number of clusters of " + std::to_string(options.clusters),
                   "sbm.clusters to a multiple of 8 up to 256");
  if (options.density_penalty == DensityPenalty::kSampled)
    return refusal("the sampled density penalty", "sbm.density_penalty = exact");
  if (options.law == EdgeLaw::kPoisson && options.estimator == Estimator::kCounterfactual)
    return refusal("the slope of the Poisson law", "sbm.law = bernoulli");
  return {};
}

std::string sbm_recording_refusal(const Recipe& recipe) {
  const SbmEdgesOptions options = sbm_options(recipe);
  if (options.self_loops)
    return "sbm.self_loops makes edges on the host in every step; set it to false, or train.cuda_graph = "
           "false";
  if (options.sampler == Sampler::kFastRg || options.sampler == Sampler::kSqueezed)
    return "the sampler " + std::string(to_string(options.sampler)) +
           " has no kernel on a GPU; use sbm.sampler = auto";
  if (options.unit > 1) return squares_recording_refusal(options);
  ops::LearnerCall learns;
  learns.clusters = options.clusters;
  if (credit_rule(options.estimator, options.present_form) == CreditRule::kLeaveOneOut)
    learns.rule = kernels::CreditRule::kLeaveOneOut;
  learns.poisson_slope = options.law == EdgeLaw::kPoisson && options.estimator == Estimator::kCounterfactual;
  if (const std::string why = ops::cuda_fold_refusal(learns); !why.empty())
    return "the kernels do not have " + why +
           ", and without them edges are listed one by one, whose number the host must wait for; set "
           "train.cuda_graph = false";
  return {};
}

std::string preset_of(const Recipe& recipe) {
  return recipe.sbm.preset + (recipe.attention.unit > 1 ? " squares" : "");
}

// The groups before a query's own are all that it could choose.
std::string sbm_causal_refusal(const Recipe& recipe) {
  if (recipe.attention.unit == 1 || sbm_options(recipe).self_loops) return {};
  return "in squares it chooses among the groups before a query's own, which must come from elsewhere: set "
         "sbm.self_loops = true";
}

std::string sbm_description(const Recipe& recipe) {
  std::ostringstream text;
  text << sbm_options(recipe);
  return text.str();
}

}  // namespace

SbmEdgesOptions sbm_options(const Recipe& recipe) {
  const SbmRecipe& sbm = recipe.sbm;
  SbmEdgesOptions options(recipe.model.heads, recipe.model.head_dim(), parse_sbm_preset(sbm.preset),
                          recipe.attention.unit);
  override_with(options.clusters, sbm.clusters);
  override_with(options.cluster_std, sbm.cluster_std);
  override_with(options.initial_density, sbm.initial_density);
  override_with(options.law, sbm.law, parse_edge_law);
  override_with(options.exploration, sbm.exploration);
  override_with(options.estimator, sbm.estimator, parse_estimator);
  override_with(options.probe_rate, sbm.probe_rate);
  override_with(options.probes_per_row, sbm.probes_per_row);
  override_with(options.probe_unit, sbm.probe_unit);
  override_with(options.density_penalty, sbm.density_penalty, parse_density_penalty);
  override_with(options.self_loops, sbm.self_loops);
  override_with(options.count_padding, sbm.count_padding);
  // Where order counts, every pair by its own random number: a row has the same edges alone as among the
  // others, whatever comes later.
  if (task_kind(recipe).is_causal || task_kind(recipe).has_decoder || recipe.model.causal)
    options.sampler = Sampler::kDirect;
  override_with(options.sampler, sbm.sampler, parse_sampler);
  return options;
}

std::vector<AttentionKind> sbm_kinds() {
  return {{.name = "sbm",
           .meaning = "edges sampled from a learned stochastic block model",
           .sections = {"sbm"},
           .make = [](const Recipe& recipe, int64_t) { return LayerAttention{.edges = sbm_edges(recipe)}; },
           .causal_refusal = sbm_causal_refusal,
           .recording_refusal = sbm_recording_refusal,
           .cost = sbm_cost,
           .takes_squares = true,
           .ignores_places = true,
           // Edges that a pattern adds are counted together with the learned ones, over valid pairs.
           .counts_padding =
               [](const Recipe& recipe) {
                 const SbmEdgesOptions options = sbm_options(recipe);
                 return options.count_padding && !options.self_loops;
               },
           .variant = preset_of,
           .description = sbm_description},
          {.name = "window+sbm",
           .meaning = "a window, and learned edges beyond it",
           .sections = {"window", "sbm"},
           .make = [](const Recipe& recipe,
                      int64_t) { return LayerAttention{.edges = with_window(recipe, sbm_edges(recipe))}; },
           .cost = sbm_cost,
           .takes_squares = true,
           .variant = preset_of,
           .description = sbm_description}};
}

}  // namespace edgewise::train
