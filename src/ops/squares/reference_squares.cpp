// Attention over squares in plain ATen on masked dense matrices [B, H, L, S]: the documentation, the fallback
// on devices without kernels, and the oracle of the tests. Equations: ops/squares/square_attention.h.
//
// Keys and values that take part in no pair are zeroed first, so that what lies there (NaN, infinity) is
// never used.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ops/attention/reference.h"
#include "ops/squares/square_attention.h"

namespace edgewise::ops::reference {
namespace {

using graph::kSquare;

at::ScalarType accumulator_of(const SquareCall& call) {
  return call.query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Query head h reads key head h / (H / Hk): [B, Hk, S, D] -> [B, H, S, D], and the sum back.
at::Tensor for_query_heads(const SquareCall& call, const at::Tensor& rows) {
  return rows.repeat_interleave(call.query.size(1) / std::max<int64_t>(rows.size(1), 1), 1);
}
at::Tensor sum_over_query_heads(const SquareCall& call, const at::Tensor& rows) {
  const int64_t key_heads = call.key.size(1);
  return rows
      .view({rows.size(0), key_heads, rows.size(1) / std::max<int64_t>(key_heads, 1), rows.size(2),
             rows.size(3)})
      .sum(2);
}

// [B, H, L, S] -> [B, H, groups(L), 16, groups(S), 16]; `rest` where a last group is short.
at::Tensor by_squares(const at::Tensor& matrix, double rest) {
  const int64_t query_groups = graph::groups_of(matrix.size(2)),
                key_groups = graph::groups_of(matrix.size(3));
  return at::constant_pad_nd(
             matrix, {0, key_groups * kSquare - matrix.size(3), 0, query_groups * kSquare - matrix.size(2)},
             rest)
      .view({matrix.size(0), matrix.size(1), query_groups, kSquare, key_groups, kSquare});
}
// [B, H, L] -> [B, H, groups(L), 16, 1]
at::Tensor by_groups(const at::Tensor& rows, double rest) {
  const int64_t groups = graph::groups_of(rows.size(2));
  return at::constant_pad_nd(rows, {0, groups * kSquare - rows.size(2)}, rest)
      .view({rows.size(0), rows.size(1), groups, kSquare, 1});
}
// [B, H, groups(L), groups(S)] -> a number at the place of every square, 0 elsewhere.
at::Tensor at_places(const graph::Squares& squares, const at::Tensor& numbers) {
  const graph::ListedSquares list = graph::listed(squares);
  return at::zeros({squares.cols.size(0)}, numbers.options())
      .index_copy_(0, list.places,
                   numbers.reshape(-1).index_select(0, list.rows * squares.key_groups() + list.cols));
}

struct DenseSquares {
  at::Tensor absent;             // [B, H, L, S] bool: no pair
  at::Tensor query, key, value;  // for the H query heads, in the accumulator's type
  at::Tensor scores;             // [B, H, L, S], -inf where there is no pair
  at::Tensor factors;            // of dropout, undefined without

  DenseSquares(const SquareCall& call, const graph::Squares& squares, double dropout_p) {
    const at::ScalarType dtype = accumulator_of(call);
    const at::Tensor pairs = graph::pair_mask(squares, {call.key_bits, call.is_causal, call.query_offset});
    absent = pairs.logical_not();
    const at::Tensor unused = pairs.any(2).logical_not().unsqueeze(3);  // [B, H, S, 1]
    query = call.query.to(dtype).masked_fill(pairs.any(3).logical_not().unsqueeze(3), 0);
    key = for_query_heads(call, call.key.to(dtype)).masked_fill(unused, 0);
    value = for_query_heads(call, call.value.to(dtype)).masked_fill(unused, 0);
    scores = (at::matmul(query, key.transpose(2, 3)) * call.scale).masked_fill(absent, -kInfinity);
    if (dropout_p > 0) {
      const at::Tensor words = pair_words(call.head_keys, squares.shape, query.device());
      factors = (words.to(at::kDouble) >= dropout_p * 4294967296.0).to(dtype) *
                (dropout_p < 1 ? 1 / (1 - dropout_p) : 0);
    }
  }
  // Softmax over the pairs of each row; a row with none has weights 0.
  at::Tensor weights() const { return scores.softmax(-1).masked_fill(absent, 0); }
  at::Tensor dropped(const at::Tensor& numbers) const {
    return factors.defined() ? numbers * factors : numbers;
  }
};

// What the row's output loses, times g, when one of its squares is taken away, summed over the rows: with the
// square's share A = sum a and E = sum a u,  (E - A ubar) / (1 - A). For a row's largest square that cancels:
// there E - A * (mean of u over the row's other pairs); without other pairs the output becomes 0, and E is
// lost.
at::Tensor leave_one_out(const DenseSquares& dense, const at::Tensor& weights, const at::Tensor& u,
                         const at::Tensor& ubar) {
  const at::Tensor share = by_squares(weights, 0).sum(5), effect = by_squares(weights * u, 0).sum(5);
  const at::Tensor top = share.argmax(4, true);  // [B, H, groups(L), 16, 1]
  const at::Tensor is_top = at::zeros_like(share, at::kBool).scatter(4, top, true);
  const at::Tensor scores = by_squares(dense.scores, -kInfinity);
  const at::Tensor others = scores.masked_fill(is_top.unsqueeze(5), -kInfinity);
  const at::Tensor highest = others.amax({4, 5}, true);  // of the row, -inf: no other pairs
  const at::Tensor b = (others - highest).exp().masked_fill(others == -kInfinity, 0);
  const at::Tensor mean = (b * by_squares(u, 0)).sum({4, 5}) / b.sum({4, 5});
  const at::Tensor alone = highest.squeeze(5) == -kInfinity;
  const at::Tensor top_effect = effect - share * mean.unsqueeze(4).masked_fill(alone, 0);
  return at::where(is_top, top_effect, (effect - share * by_groups(ubar, 0)) / (1 - share))
      .masked_fill(share == 0, 0)
      .sum(3);
}

// What the row's output gains, times g, when a square is added, summed over the rows: with b = exp(s - l),
// [sum b (u - ubar)] / (1 + sum b), both divided by the largest of 1 and the b; where the row has no pair so
// far, the mean of u under the softmax of its pairs in the square. Dropout has no say.
at::Tensor probe_credit(const SquareCall& call, const graph::Squares& probes, const at::Tensor& lse,
                        const at::Tensor& grad, const at::Tensor& ubar) {
  const DenseSquares dense(call, probes, 0);
  const at::Tensor u = at::matmul(grad, dense.value.transpose(2, 3));
  const at::Tensor is_empty = by_groups(lse == -kInfinity, true).unsqueeze(5);  // [.., 16, 1, 1]
  const at::Tensor from = by_groups(lse, 0).unsqueeze(5).masked_fill(is_empty, 0);
  const at::Tensor x = by_squares(dense.scores, -kInfinity) - from;  // ln b
  const at::Tensor highest = x.amax(5, true);
  const at::Tensor most = at::where(is_empty, highest, highest.clamp_min(0));
  const at::Tensor b = (x - most).exp().masked_fill(x == -kInfinity, 0);
  const at::Tensor gain = (b * (by_squares(u, 0) - by_groups(ubar, 0).unsqueeze(5))).sum(5);
  const at::Tensor total = b.sum(5) + (-most).exp().masked_fill(is_empty, 0).squeeze(5);
  return (gain / total).masked_fill((highest == -kInfinity).squeeze(5), 0).sum(3);
}

}  // namespace

SquareForward square_forward(const SquareCall& call) {
  const DenseSquares dense(call, call.squares, call.dropout_p);
  const at::Tensor output = at::matmul(dense.dropped(dense.weights()), dense.value);
  return {output.to(call.query.scalar_type()), dense.scores.logsumexp(-1)};
}

SquareBackward square_backward(const SquareCall& call, const SquareForward& forward,
                               const at::Tensor& grad_output, const SquareCredit& credit) {
  const DenseSquares dense(call, call.squares, call.dropout_p);
  const at::ScalarType dtype = call.query.scalar_type();
  const at::Tensor given_grad = grad_output.to(accumulator_of(call));
  const at::Tensor grad = given_grad.masked_fill(forward.lse.unsqueeze(3) == -kInfinity, 0);
  const at::Tensor ubar = (grad * forward.output.to(grad.scalar_type())).sum(-1);  // [B, H, L]
  const at::Tensor weights = dense.weights();
  const at::Tensor u = dense.dropped(at::matmul(grad, dense.value.transpose(2, 3)));
  const at::Tensor logit_grads = (weights * (u - ubar.unsqueeze(3))).masked_fill(dense.absent, 0);

  SquareBackward result;
  result.query = (at::matmul(logit_grads, dense.key) * call.scale).to(dtype);
  result.key =
      sum_over_query_heads(call, at::matmul(logit_grads.transpose(2, 3), dense.query) * call.scale).to(dtype);
  result.value =
      sum_over_query_heads(call, at::matmul(dense.dropped(weights).transpose(2, 3), grad)).to(dtype);
  switch (credit.rule) {
    case kernels::CreditRule::kNone:
      break;
    case kernels::CreditRule::kLogit:
      result.credit = at_places(call.squares, by_squares(logit_grads, 0).sum({3, 5}));
      break;
    case kernels::CreditRule::kPaper:
      result.credit = at_places(
          call.squares, by_squares(logit_grads * dense.scores.masked_fill(dense.absent, 0), 0).sum({3, 5}));
      break;
    case kernels::CreditRule::kLeaveOneOut:
      result.credit = at_places(call.squares, leave_one_out(dense, weights, u, ubar));
      break;
  }
  if (credit.probes)
    result.probe_credit =
        at_places(*credit.probes, probe_credit(call, *credit.probes, forward.lse, given_grad, ubar));
  return result;
}

}  // namespace edgewise::ops::reference
