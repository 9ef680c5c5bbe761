// edge_attention in plain ATen on masked dense matrices. Keys and values that no edge selects are zeroed
// first, so that what lies there (NaN, infinity) is never used.
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>

#include <limits>

#include "ops/attention/reference.h"

namespace edgewise::ops::reference {
namespace {

struct DenseState {
  at::Tensor mask;  // [B, H, L, S] bool
  at::Tensor query, key, value;
  at::Tensor scores;   // [B, H, L, S]
  at::Tensor factors;  // dropout factors, undefined without dropout

  explicit DenseState(const AttentionInputs& in) {
    const at::ScalarType dtype = in.accumulator();
    mask = in.edges.to_mask();
    const at::Tensor unused = mask.any(2).logical_not().unsqueeze(3);  // [B, H, S, 1]
    query = in.query.to(dtype).masked_fill(mask.any(3).logical_not().unsqueeze(3),
                                           0);  // rows with no edge: not read either
    key = in.key.to(dtype).masked_fill(unused, 0);
    value = in.value.to(dtype).masked_fill(unused, 0);
    scores = at::matmul(query, key.transpose(2, 3)) * in.scale;
    if (in.dropout_p > 0) {
      const at::Tensor words = pair_words(in.head_keys, in.edges.shape(), in.query.device());
      factors = (words.to(at::kDouble) >= in.dropout_p * 4294967296.0).to(dtype) *
                (in.dropout_p < 1 ? 1 / (1 - in.dropout_p) : 0);
    }
  }
};

// Softmax over the edges of each row; a row with none has weights 0.
at::Tensor masked_softmax(const DenseState& state) {
  const at::Tensor absent = state.mask.logical_not();
  const at::Tensor weights = state.scores.masked_fill(absent, -kInfinity).softmax(-1);
  return weights.masked_fill(absent, 0);
}

at::Tensor on_edges(const EdgeSet& edges, const at::Tensor& matrix) {  // [B, H, L, S] -> [E]
  return matrix.reshape(-1).index_select(0, edges.edge_rows() * edges.shape().keys + edges.col_indices());
}

}  // namespace

// Where edges are not rare, matrices are faster than a gathered row an edge, on a GPU; they take memory for
// every pair.
std::string dense_refusal(const AttentionCall& call) {
  using functional::Backend;
  if (call.backend == Backend::kDense) return "";
  if (call.backend == Backend::kKernel) return "our kernels were asked for";
  if (call.backend == Backend::kReference) return "lists of edges were asked for";
  const double pairs = static_cast<double>(call.shape.pairs());
  if (pairs >= 0x1.0p32) return "too many pairs for matrices";
  if (!call.edge_count) return "the edges have not been counted";
  return static_cast<double>(*call.edge_count) > pairs / 64 ? "" : "edges are rare";
}

AttentionForward dense_forward(const AttentionInputs& in) {
  const DenseState state(in);
  const at::Tensor lse = state.scores.masked_fill(state.mask.logical_not(), -kInfinity).logsumexp(-1);
  at::Tensor weights = masked_softmax(state);
  if (in.dropout_p > 0) weights = weights * state.factors;
  return {at::matmul(weights, state.value).to(in.query.scalar_type()), lse};
}

AttentionBackward dense_backward(const AttentionInputs& in, const AttentionForward& forward,
                                 const at::Tensor& grad_output, const at::Tensor&) {
  const DenseState state(in);
  const at::Tensor absent = state.mask.logical_not();
  const at::Tensor given_grad = grad_output.to(in.accumulator());
  const at::Tensor grad = given_grad.masked_fill(state.mask.any(3).logical_not().unsqueeze(3), 0);
  const at::Tensor lse = forward.lse.unsqueeze(-1);
  const at::Tensor ubar = (grad * forward.output.to(in.accumulator())).sum(-1, true);
  const at::Tensor weights = masked_softmax(state);
  const at::Tensor u_clean = at::matmul(grad, state.value.transpose(2, 3));
  const at::Tensor u = in.dropout_p > 0 ? u_clean * state.factors : u_clean;
  const at::Tensor logit_grads = (weights * (u - ubar)).masked_fill(absent, 0);
  const at::Tensor dropped = in.dropout_p > 0 ? weights * state.factors : weights;

  AttentionBackward result;
  const at::ScalarType dtype = in.query.scalar_type();
  result.query = (at::matmul(logit_grads, state.key) * in.scale).to(dtype);
  result.key = (at::matmul(logit_grads.transpose(2, 3), state.query) * in.scale).to(dtype);
  result.value = at::matmul(dropped.transpose(2, 3), grad).to(dtype);
  switch (in.learns.rule) {
    case kernels::CreditRule::kNone:
      break;
    case kernels::CreditRule::kLogit:
      result.credit = on_edges(in.edges, logit_grads);
      break;
    case kernels::CreditRule::kPaper:
      result.credit = on_edges(in.edges, logit_grads * state.scores);
      break;
    case kernels::CreditRule::kLeaveOneOut: {
      // The row's largest edge takes the mean over the others directly; see the edge list version.
      const at::Tensor masked = state.scores.masked_fill(absent, -kInfinity);
      const at::Tensor top = masked.argmax(-1, true);
      const at::Tensor is_top = at::zeros_like(state.mask).scatter(-1, top, true).logical_and(state.mask);
      const at::Tensor others = masked.masked_fill(is_top, -kInfinity);
      const at::Tensor runner_up = others.amax(-1, true);
      const at::Tensor share = (others - runner_up).exp().masked_fill(others == -kInfinity, 0);
      const at::Tensor mean = (share * u).sum(-1, true) / share.sum(-1, true);
      const at::Tensor top_credit = at::where(runner_up == -kInfinity, u, weights * (u - mean));
      result.credit = on_edges(in.edges, at::where(is_top, top_credit, weights / (1 - weights) * (u - ubar)));
      break;
    }
  }
  if (in.learns.has_probes) {
    // Probes may select keys that no edge does, so their scores and values come from the tensors as given.
    AttentionInputs at_probes = in;
    at_probes.edges = *in.learner->probes;
    at_probes.dropout_p = 0;
    const DenseState probe(at_probes);
    const at::Tensor probe_u = at::matmul(given_grad, probe.value.transpose(2, 3));
    result.probe_credit = on_edges(*in.learner->probes, (probe.scores - lse).sigmoid() * (probe_u - ubar));
  }
  return result;
}

}  // namespace edgewise::ops::reference
