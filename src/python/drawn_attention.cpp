// Attention over edges drawn from probabilities that the caller gives, as operations: for edge sources that
// are written in Python. Every pair, or every square, is looked at.
#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <edgewise/graph/square_lists.h>

#include "edges/sbm/sbm_pairs.h"
#include "edges/square_patterns.h"
#include "ops/attention/reference.h"
#include "ops/streams.h"
#include "python/plain_call.h"
#include "python/plans.h"
#include "python/source_call.h"

namespace edgewise::python {
namespace {

constexpr const char* kName = "drawn_attention";

// shape: of tokens, or of groups where squares are drawn.
void check_probabilities(const at::Tensor& probabilities, const EdgeShape& shape) {
  TORCH_CHECK_VALUE(
      probabilities.sizes() == at::IntArrayRef({shape.batch, shape.heads, shape.queries, shape.keys}), kName,
      ": expected probabilities ", to_string(shape), "; got ", probabilities.sizes());
  TORCH_CHECK_TYPE(at::isFloatingType(probabilities.scalar_type()), kName,
                   ": expected probabilities of a floating type; got ", probabilities.scalar_type());
  if (!probabilities.is_cpu()) return;  // to look would stop the device
  TORCH_CHECK_VALUE(
      probabilities.numel() == 0 || probabilities.ge(0).logical_and(probabilities.le(1)).all().item<bool>(),
      kName,
      ": expected probabilities from 0 to 1; got others, or NaN. Scores become probabilities by "
      "sigmoid()");
}

// What is drawn: edges one by one, or squares as edges of groups.
struct Nodes {
  EdgeShape shape;
  std::optional<at::Tensor> query_mask, key_mask;
  at::Tensor allowed;  // [B, 1, queries, keys] bool
};

Nodes tokens_of(const EdgeRequest& request) {
  return {request.shape(), request.query_mask(), request.key_mask, request.allowed()};
}

// Groups with a valid token; in a causal request those before the query's own, of which nothing lies ahead.
Nodes groups_of(const EdgeRequest& request) {
  Nodes result{
      shape_of_groups(request.shape()), group_mask(request.query_mask()), group_mask(request.key_mask), {}};
  EdgeRequest of_groups;
  of_groups.query = request.query.detach().slice(2, 0, request.query.size(2), graph::kSquare);
  of_groups.key = request.key.detach().slice(2, 0, request.key.size(2), graph::kSquare);
  of_groups.key_mask = result.key_mask;
  result.allowed = of_groups.allowed();
  if (request.is_causal) result.allowed = result.allowed.tril(-1);
  return result;
}

EdgeSet draw(const Nodes& nodes, const SampleOptions& sampling, const at::Tensor& probabilities) {
  const at::Tensor keys = ops::stream_keys(sampling.random, kernels::Purpose::kEdges, nodes.shape);
  const at::Tensor numbers = ops::reference::pair_numbers(keys, nodes.shape, probabilities.device());
  const at::Tensor drawn =
      (probabilities.detach().to(at::kDouble) + sampling.exploration) * 0x1.0p32 > numbers;
  return EdgeSet::from_mask(drawn & nodes.allowed);
}

// p of each edge, in CSR order: [E].
at::Tensor numbers_of(const EdgeSet& edges, const at::Tensor& probabilities) {
  const int64_t keys = std::max<int64_t>(edges.shape().keys, 1);
  return probabilities.reshape(-1).index_select(0, edges.edge_rows() * keys + edges.col_indices());
}

EdgeChoice choose(const SourceCall& call, const EdgeRequest& request, const at::Tensor& probabilities) {
  const SourceOptions options = parse_source_options({call.options.data(), call.options.size()},
                                                     request.query.size(1), request.query.size(3));
  const SbmEdgesOptions& sbm = options.sbm;
  check_unit(kName, sbm.unit);
  const bool in_squares = sbm.unit > 1;
  const Nodes nodes = in_squares ? groups_of(request) : tokens_of(request);
  check_probabilities(probabilities, nodes.shape);
  const SampleOptions sampling = sampling_options(sbm, request, call.training);
  const graph::SquarePairs pairs = in_squares ? allowed_square_pairs(request) : graph::SquarePairs{};
  const auto whole = [&](const EdgeSet& drawn) {
    return in_squares ? EdgeSet::from_square_groups(request.shape(), drawn, pairs) : drawn;
  };
  const EdgeSet drawn = draw(nodes, sampling, probabilities);
  EdgeChoice choice;
  choice.edges = whole(drawn);
  if (!at::GradMode::is_enabled()) return with_window(choice, options, request);
  EdgeLearner learner;
  learner.rule = credit_rule(sbm.estimator, sbm.present_form);
  if (in_squares) {
    // A square learns by memberships: with as many clusters as key groups, p_IJ = p_I . e_J.
    learner.query_membership = probabilities;
    learner.key_side = at::eye(nodes.shape.keys, probabilities.options().requires_grad(false))
                           .expand({nodes.shape.batch, nodes.shape.heads, -1, -1});
  } else {
    learner.values = numbers_of(drawn, probabilities);
  }
  if (asks_for_probes(sbm, call.training)) {
    SampleOptions probing = sampling;
    probing.key_mask = nodes.key_mask;
    probing.query_mask = nodes.query_mask;
    probing.probe_unit = in_squares ? 1 : sbm.probe_unit;
    ops::ReplayedNumbers replayed;
    set_probe_rates(learner, replayed, sbm, nodes.shape, request.key_mask);
    const EdgeSet probes = sample_probe_edges(drawn, learner.probe_rates, probing);
    if (!in_squares) learner.probe_values = numbers_of(probes, probabilities);
    learner.probes = whole(probes);
  }
  choice.learner = std::move(learner);
  return with_window(choice, options, request);
}

struct Attended {
  at::Tensor output, density;
};

Attended attend(const SourceCall& call, const at::Tensor& probabilities) {
  check_heads(kName, call.query, call.key, call.value);
  const at::Tensor query = widened(call.query), key = widened(call.key), value = widened(call.value);
  const EdgeRequest request = request_of(kName, call, query, with_heads(key, query.size(1)));
  const AttentionOutput out = attend_call(call, request, choose(call, request, probabilities), key, value);
  return {out.output, out.density.detach()};
}

struct Taped {
  std::shared_ptr<Tape> tape;  // leaves: query, key, value, probabilities; output alone
  at::Tensor density;
};

Taped taped(const SourceCall& call, const at::Tensor& probabilities) {
  auto tape = std::make_shared<Tape>();
  const at::Tensor query = tape->leaf(call.query), key = tape->leaf(call.key), value = tape->leaf(call.value),
                   numbers = tape->leaf(probabilities);
  const Attended out = attend({query, key, value, call.key_mask, call.seed, call.options, call.training,
                               call.is_causal, call.scale, call.dropout_p},
                              numbers);
  tape->outputs = {out.output};
  return {std::move(tape), out.density};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attend_drawn(const at::Tensor& query, const at::Tensor& key,
                                                const at::Tensor& value, const at::Tensor& probabilities,
                                                const std::optional<at::Tensor>& key_mask,
                                                const at::Tensor& seed, c10::string_view options,
                                                bool training, bool is_causal, std::optional<double> scale,
                                                double dropout_p) {
  const Attended out = attend(
      {query, key, value, key_mask, seed, options, training, is_causal, scale, dropout_p}, probabilities);
  return {out.output, out.density};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> drawn_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& probabilities,
    const std::optional<at::Tensor>& key_mask, const at::Tensor& seed, c10::string_view options,
    bool training, bool is_causal, std::optional<double> scale, double dropout_p, bool keep) {
  const PlainCall guard(keep);
  Taped done = taped({query, key, value, key_mask, seed, options, training, is_causal, scale, dropout_p},
                     probabilities);
  const at::Tensor output = done.tape->outputs[0].detach();
  return {output, done.density, guard.records() ? make_ticket(std::move(done.tape)) : empty_ticket()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> drawn_attention_backward(
    const at::Tensor& grad_output, const at::Tensor& ticket, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& probabilities, const std::optional<at::Tensor>& key_mask,
    const at::Tensor& seed, c10::string_view options, bool training, bool is_causal,
    std::optional<double> scale, double dropout_p) {
  const PlainCall guard(true);
  std::shared_ptr<Tape> tape = tape_of(ticket, {query, key, value, probabilities});
  if (!tape)
    tape = taped({query, key, value, key_mask, seed, options, training, is_causal, scale, dropout_p},
                 probabilities)
               .tape;
  std::vector<at::Tensor> grads = gradients(*tape, {grad_output});
  return {grads[0], grads[1], grads[2], grads[3]};
}

std::vector<at::Tensor> drawn_edges(const at::Tensor& query, const at::Tensor& key,
                                    const at::Tensor& probabilities,
                                    const std::optional<at::Tensor>& key_mask, const at::Tensor& seed,
                                    c10::string_view options, bool training, bool is_causal) {
  const PlainCall guard(false);
  check_heads(kName, query, key, key);
  const SourceCall call{query, key, key, key_mask, seed, options, training, is_causal, std::nullopt, 0};
  const EdgeRequest request =
      request_of(kName, call, widened(query), with_heads(widened(key), query.size(1)));
  return plan_of_edges(choose(call, request, probabilities).edges);
}

}  // namespace edgewise::python
