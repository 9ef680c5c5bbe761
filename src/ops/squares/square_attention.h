// Attention over squares of 16 x 16 pairs (edgewise/graph/square_lists.h), forward and backward, as CPU and
// CUDA kernels and the plain reference take it. Pairs outside of the key mask, after the query (causal) or
// beyond the last token take no part: keys that no query may use are not read. A key that only some queries
// of a square may use (on the causal diagonal) has weight 0 for the others, so what it holds must be finite.
//
// The backward pass also gives a number per square, dL/d(square present), for whoever chose the squares, and
// the same for probe squares, which are absent. With a = weights, s = logits, l = log-sum-exp of the row,
// b = exp(s - l), g = dL/do, u = g . v, ubar = g . o, over the pairs (i, j) of a square:
//   kLogit        sum_ij a (u - ubar)
//   kLeaveOneOut  sum_i [sum_j a (u - ubar)] / (1 - sum_j a);  sum_j a u where the square is all a row has
//   probe         sum_i [sum_j b (u - ubar)] / (1 + sum_j b);  softmax-weighted u where the row is empty
#pragma once

#include <ATen/core/Tensor.h>
#include <edgewise/ops/functional.h>

#include <optional>
#include <string>

#include "graph/squares/squares.h"
#include "kernels/params.h"

namespace edgewise::ops {

struct SquareCall {
  at::Tensor query;  // [B, H, L, D]
  at::Tensor key;    // [B, Hk, S, D]; Hk divides H: query head h reads key head h / (H / Hk)
  at::Tensor value;  // [B, Hk, S, Dv]
  graph::Squares squares;
  // [B, groups(S)] int32, bit j of a word: key 16 J + j takes part. Undefined: all keys do.
  at::Tensor key_bits;
  bool is_causal = false;  // pairs with key <= query_offset + query only
  int64_t query_offset = 0;
  double scale = 1;
  double dropout_p = 0;
  at::Tensor head_keys;  // [B*H] int64 stream keys of the dropout; undefined when dropout_p = 0
};

struct SquareForward {
  at::Tensor output;  // [B, H, L, Dv]
  at::Tensor lse;     // [B, H, L] fp32 (fp64 for fp64), -inf for a row without pairs
};

struct SquareCredit {
  kernels::CreditRule rule = kernels::CreditRule::kNone;
  std::optional<graph::Squares> probes;  // none of them among the squares
};

struct SquareBackward {
  at::Tensor query, key, value;  // gradients
  at::Tensor credit;        // like squares.cols, accumulator type; places that hold no square are undefined
  at::Tensor probe_credit;  // like probes.cols
  std::optional<graph::TransposedSquares> by_keys =
      std::nullopt;  // with places; where the pass made them anyway
};

// By the first kernel that takes the call (square_kernels.h), after a look at what it is.
SquareForward square_forward(const SquareCall& call,
                             functional::Backend backend = functional::Backend::kAuto);
SquareBackward square_backward(const SquareCall& call, const SquareForward& forward,
                               const at::Tensor& grad_output, const SquareCredit& credit,
                               functional::Backend backend = functional::Backend::kAuto);

// In plain ATen over dense masks.
namespace reference {
SquareForward square_forward(const SquareCall& call);
SquareBackward square_backward(const SquareCall& call, const SquareForward& forward,
                               const at::Tensor& grad_output, const SquareCredit& credit);
}  // namespace reference

// On CPU: every call.
SquareForward cpu_square_forward(const SquareCall& call);
SquareBackward cpu_square_backward(const SquareCall& call, const SquareForward& forward,
                                   const at::Tensor& grad_output, const SquareCredit& credit);

// On CUDA: why the kernels do not take the call; empty when they do.
std::string cuda_square_refusal(const SquareCall& call);
SquareForward cuda_square_forward(const SquareCall& call);
SquareBackward cuda_square_backward(const SquareCall& call, const SquareForward& forward,
                                    const at::Tensor& grad_output, const SquareCredit& credit);

}  // namespace edgewise::ops
