// SbmEdges over the nodes of a graph: a number of edges that stays, and pairs to choose among.
//
//   c_h = edges_per_row L / sum of p_ij over the pairs that may become edges;   Q^ := c_h Q^
//
// The gradient passes through c_h: a pair can only become more probable at the cost of others.
#include "edges/sbm/sbm_scope.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <edgewise/ops/additive_attention.h>

#include <algorithm>

#include "edges/graph/graph_requests.h"
#include "edges/sbm/sbm_pairs.h"
#include "graph/repeated_heads.h"

namespace edgewise {
namespace {

// [1, 1, L, S] for every head.
EdgeSet candidate_pairs(EdgeSource& source, const EdgeRequest& request) {
  EdgeRequest of_one = request;
  of_one.query = request.query.narrow(1, 0, 1), of_one.key = request.key.narrow(1, 0, 1);
  return allowed_choice(source, of_one).edges;
}

SparseMatrix ones_at(const EdgeSet& pairs) {
  const EdgeSet host = pairs.to(at::kCPU);
  return SparseMatrix::from_csr(host.shape().keys, host.row_offsets(), host.col_indices(),
                                at::ones({host.edge_count()}, at::kFloat))
      .to(pairs.device());
}

// sum of p_ij over the entries of `pairs`, without a number an entry: [H].
at::Tensor expected_among(const SparseMatrix& pairs, const at::Tensor& queries, const at::Tensor& keys) {
  const SparseMatrix typed = pairs.to(keys.scalar_type());
  const at::Tensor sums = functional::sparse_product(typed.rows, typed.row_values, typed.columns,
                                                     typed.column_values, keys);  // [1, H, L, C]
  return (queries * sums).sum({2, 3}).squeeze(0);
}

// Of `pairs` each with its chance.
EdgeSet drawn_pairs(const EdgeSet& pairs, const at::Tensor& chances, at::Generator generator) {
  const at::Tensor numbers = at::rand({pairs.edge_count()}, generator, at::kDouble).to(pairs.device());
  return pairs.kept(numbers < chances);
}

// p_ij of every edge of `pairs`, head by head: [E].
at::Tensor probabilities(const EdgeSet& pairs, const at::Tensor& queries, const at::Tensor& keys,
                         const SbmEdgesOptions& options) {
  const at::NoGradGuard no_grad;
  const EdgeShape shape = pairs.shape();
  const at::Tensor rows = pairs.edge_rows(), heads = rows.div(std::max<int64_t>(shape.queries, 1), "floor"),
                   columns = heads * shape.keys + pairs.col_indices();
  const at::Tensor p =
      (queries.flatten(0, 2).index_select(0, rows) * keys.flatten(0, 2).index_select(0, columns))
          .sum(1)
          .to(at::kDouble)
          .clamp_max(1);
  return options.law == EdgeLaw::kPoisson ? -(-p).expm1() : p;
}

}  // namespace

bool has_scope(const SbmEdgesOptions& options) {
  return options.edges_per_row > 0 || options.candidates;
}

void check_scope(const SbmEdgesOptions& options) {
  TORCH_CHECK_VALUE(options.edges_per_row >= 0, "SbmEdges: expected edges_per_row of at least 0; got ",
                    options.edges_per_row);
  if (!has_scope(options)) return;
  TORCH_CHECK_VALUE(options.unit == 1 && !options.count_padding && !options.self_loops,
                    "SbmEdges: expected unit 1 without count_padding and self_loops where edges_per_row or "
                    "candidates are set");
  TORCH_CHECK_VALUE(options.exploration == 0,
                    "SbmEdges: expected exploration = 0 where edges_per_row or "
                    "candidates are set, since it adds edges of its own; got ",
                    options.exploration);
}

EdgeChoice SbmEdgesImpl::choose_in_scope(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  TORCH_CHECK_VALUE(
      shape.batch == 1 && !request.key_mask && !request.is_causal && !request.known_keys && !request.is_cross,
      "SbmEdges: expected the nodes of one graph, without masks or causality, where "
      "edges_per_row or candidates are set; got ",
      to_string(shape));
  if (!scope_) scope_ = std::make_shared<SbmScope>();
  Sides all = sides(request.query, request.key, std::nullopt, std::nullopt);
  std::optional<EdgeSet> candidates;
  if (options.candidates) candidates = candidate_pairs(*options.candidates, request);
  const EdgeSet* const relations = request.relations ? &request.relations->edges : nullptr;
  const bool is_new =
      (relations ? !are_same_edges(scope_->relations, *relations) : scope_->relations.has_value()) ||
      (candidates && !are_same_edges(scope_->candidates, *candidates)) ||
      (candidates && scope_->in_heads.shape().heads != shape.heads);
  if (is_new) {
    scope_->relations = relations ? std::optional(*relations) : std::nullopt;
    scope_->candidates = candidates;
    if (candidates) {
      const EdgeSet open = relations ? candidates->minus(*relations) : *candidates;
      scope_->in_heads = graph::repeated_heads(open, shape.heads);
      scope_->counted = ones_at(open);
    } else if (relations) {
      scope_->counted = ones_at(*relations);
    }
  }
  at::Tensor expected;  // [H] beside the relations
  if (candidates)
    expected = expected_among(scope_->counted, all.query, all.key_side);
  else
    expected = expected_edges(all.query, all.key_side, false, 0);
  if (!candidates && relations)
    expected = expected - expected_among(scope_->counted, all.query, all.key_side);
  if (options.edges_per_row > 0) {
    const double wanted = options.edges_per_row * static_cast<double>(shape.queries);
    const at::Tensor factor = wanted / expected.clamp_min(1e-12);
    all.query = all.query * factor.view({1, shape.heads, 1, 1});
    expected = expected * factor;
  }

  const SampleOptions sampling = sampling_options(options, request, is_training());
  EdgeChoice choice;
  choice.edges = candidates ? drawn_pairs(scope_->in_heads,
                                          probabilities(scope_->in_heads, all.query, all.key_side, options),
                                          request_generator(request, kernels::Purpose::kEdges))
                            : sample_sbm_edges(all.query, all.key_side, sampling);
  const double pairs = std::max(1.0, static_cast<double>(shape.queries * shape.keys));
  choice.density = choice.edges.edges_per_head().sum(0).to(at::kDouble) / pairs;
  if (options.density_penalty == DensityPenalty::kExact) choice.density_penalty = expected / pairs;
  EdgeLearner learner = learner_of(options, all.query, all.key_side, sampling);
  learner.pairs_per_head = pairs;
  if (asks_for_probes(options, is_training())) {
    if (candidates) {
      const double open = std::max(1.0, static_cast<double>(scope_->in_heads.edge_count() / shape.heads));
      const double rate =
          options.probes_per_row == 0
              ? options.probe_rate
              : std::min(1.0, static_cast<double>(options.probes_per_row * shape.queries) / open);
      const EdgeSet probes =
          drawn_pairs(scope_->in_heads, at::full({}, rate, at::kDouble).to(all.query.device()),
                      request_generator(request, kernels::Purpose::kProbes));
      learner.probe_rates = {rate};
      learner.probes = probes.minus(choice.edges);
    } else {
      ops::ReplayedNumbers replayed;
      SampleOptions probing = sampling;
      probing.probe_unit = options.probe_unit;
      set_probe_rates(learner, replayed, options, shape, std::nullopt);
      learner.probes = sample_probe_edges(choice.edges, learner.probe_rates, probing);
    }
  }
  choice.learner = std::move(learner);
  return choice;
}

}  // namespace edgewise
