// The predictor's arithmetic: LSTM step, scores of nodes, distance encoding, log-probabilities.
//
//   i, f, g, o = x W_ih + h W_hh + b;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')
//   dot: score_j = h . w_j            mlp: score_j = v . tanh(A h + C w_j + b)
//   destinations: + b[bucket(j - i)], or + h . v[bucket(j - i)], and the same for relations
#include <ATen/TensorOperators.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include "edges/sac/sac_walk.h"

namespace edgewise::sac {
namespace {

at::Tensor grouped(const at::Tensor& x,
                   const at::Tensor& weight) {  // [B, G, R, P] x [G, P, Q] -> [B, G, R, Q]
  return at::matmul(x, weight);
}
at::Tensor row_of(const at::Tensor& bias) {  // [G, Q] -> [G, 1, Q]
  return bias.unsqueeze(1);
}

// table[G, N] or [G, N, P] at ids [B or 1, 1, R, S]: [B, G, R, S].
at::Tensor encoded(const at::Tensor& table, const at::Tensor& hidden, const at::Tensor& ids) {
  const int64_t batch = hidden.size(0), groups = hidden.size(1), rows = hidden.size(2), keys = ids.size(3);
  const at::Tensor wide = ids.expand({batch, groups, rows, keys});
  const at::Tensor values =
      table.dim() == 3 ? at::matmul(hidden, table.transpose(1, 2))  // h . v
                       : table.view({1, groups, 1, -1}).expand({batch, groups, rows, table.size(1)});  // b
  return values.gather(3, wide);
}

// The rows of a [B or 1, L, X] table of ids that belong to the walkers' sources: [B or 1, G or 1, R, X].
at::Tensor rows_of(const at::Tensor& ids, const at::Tensor& source) {
  const at::Tensor wide = ids.unsqueeze(1);
  if (!source.defined()) return wide;
  return wide.expand({source.size(0), source.size(1), ids.size(1), ids.size(2)})
      .gather(2, source.unsqueeze(-1).expand({-1, -1, -1, ids.size(2)}));
}

// What relations add to the scores of destinations; undefined without.
at::Tensor relation_scores(const SacEdgesImpl& predictor, const WalkInputs& inputs, const at::Tensor& hidden,
                           const at::Tensor& source) {
  if (!inputs.relations.defined()) return {};
  return encoded(predictor.relation_table, hidden, rows_of(inputs.relations, source));
}

}  // namespace

LstmState lstm_start(const at::Tensor& like) {
  return {at::zeros_like(like), at::zeros_like(like)};
}

LstmState lstm_step(const SacEdgesImpl& predictor, const at::Tensor& input, const LstmState& state) {
  const at::Tensor gates = grouped(input, predictor.lstm_weight_ih) +
                           grouped(state.hidden, predictor.lstm_weight_hh) + row_of(predictor.lstm_bias);
  const auto parts = gates.chunk(4, -1);
  const at::Tensor cell = parts[1].sigmoid() * state.cell + parts[0].sigmoid() * parts[2].tanh();
  return {parts[3].sigmoid() * cell.tanh(), cell};
}

at::Tensor prepare_nodes(const SacEdgesImpl& predictor, const at::Tensor& nodes) {
  if (predictor.options.scorer == SacScorer::kDot) return nodes;
  return grouped(nodes, predictor.mlp_node) + row_of(predictor.mlp_bias);
}

at::Tensor node_scores(const SacEdgesImpl& predictor, const at::Tensor& hidden, const at::Tensor& prepared) {
  if (predictor.options.scorer == SacScorer::kDot) return at::matmul(hidden, prepared.transpose(2, 3));
  const at::Tensor sum =
      grouped(hidden, predictor.mlp_state).unsqueeze(3) + prepared.unsqueeze(2);  // [B, G, R, N, P]
  return at::matmul(sum.tanh(), predictor.mlp_out.view({1, -1, 1, predictor.mlp_out.size(1), 1})).squeeze(4);
}

at::Tensor distance_scores(const SacEdgesImpl& predictor, const WalkInputs& inputs, const at::Tensor& hidden,
                           const at::Tensor& source) {
  const at::Tensor related = relation_scores(predictor, inputs, hidden, source);
  if (!inputs.buckets.defined()) return related.defined() ? related : at::zeros({1}, hidden.options());
  const at::Tensor far =
      encoded(predictor.distance_table, hidden, rows_of(inputs.buckets.unsqueeze(0), source));
  return related.defined() ? far + related : far;
}

at::Tensor log_probabilities(const at::Tensor& scores, const at::Tensor& allowed, const at::Tensor& is_live) {
  // A walker that has stopped may have nothing left: it gets everything, so that no softmax is over nothing.
  const at::Tensor forbidden = (allowed | is_live.logical_not().unsqueeze(-1)).logical_not();
  return scores.masked_fill(forbidden, kForbidden).log_softmax(-1);
}

at::Tensor entropy_of(const at::Tensor& log_p) {
  return -(log_p.exp() * log_p).sum(-1);
}

at::Tensor pick(const at::Tensor& values, const at::Tensor& index) {
  return values.gather(-1, index.unsqueeze(-1)).squeeze(-1);
}

at::Tensor pick_rows(const at::Tensor& nodes, const at::Tensor& index) {
  return nodes.gather(2, index.unsqueeze(-1).expand({-1, -1, -1, nodes.size(3)}));
}

}  // namespace edgewise::sac
