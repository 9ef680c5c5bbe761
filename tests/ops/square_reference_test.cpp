// The reference of attention over squares against loops over pairs, finite differences and enumeration, in
// fp64: what everything else is tested against.
#include <gtest/gtest.h>

#include "kit/plain_attention.h"
#include "kit/square_cases.h"

namespace edgewise::ops {
namespace {

using kernels::CreditRule;

// The pairs of the squares, written out.
at::Tensor pairs_by_loops(const SquareCall& call) {
  const EdgeShape& shape = call.squares.shape;
  const at::Tensor mask = at::zeros({shape.batch, shape.heads, shape.queries, shape.keys}, at::kBool);
  auto out = mask.accessor<bool, 4>();
  const auto begin = call.squares.begin.accessor<int32_t, 1>(),
             count = call.squares.count.accessor<int32_t, 1>(),
             cols = call.squares.cols.accessor<int32_t, 1>();
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t h = 0; h < shape.heads; ++h)
      for (int64_t i = 0; i < shape.queries; ++i) {
        const int64_t row = (b * shape.heads + h) * call.squares.query_groups() + i / 16;
        for (int32_t place = begin[row]; place < begin[row] + count[row]; ++place)
          for (int64_t j = cols[place] * 16; j < std::min<int64_t>(cols[place] * 16 + 16, shape.keys); ++j) {
            if (call.is_causal && j > i + call.query_offset) continue;
            if (call.key_bits.defined() && !(call.key_bits[b][j / 16].item<int32_t>() >> (j % 16) & 1))
              continue;
            out[b][h][i][j] = true;
          }
      }
  return mask;
}

at::Tensor for_query_heads(const SquareCall& call, const at::Tensor& rows) {
  return rows.repeat_interleave(call.query.size(1) / rows.size(1), 1);
}

// sum(grad * output)
double loss(const SquareCall& call, const at::Tensor& grad) {
  return (reference::square_forward(call).output * grad).sum().item<double>();
}

std::vector<kit::SquareCase> tiny_cases() {
  return {
      {.name = "Plain", .queries = 40, .keys = 50, .dim = 3, .value_dim = 2, .density = 0.5, .batch = 1},
      {.name = "Padded", .queries = 35, .keys = 50, .dim = 2, .value_dim = 3, .density = 0.6, .padded = true},
      {.name = "Causal",
       .queries = 45,
       .keys = 45,
       .dim = 2,
       .value_dim = 2,
       .density = 0.7,
       .batch = 1,
       .causal = true},
      {.name = "Offset",
       .queries = 20,
       .keys = 45,
       .dim = 2,
       .value_dim = 2,
       .density = 0.7,
       .batch = 1,
       .causal = true,
       .query_offset = 25},
      {.name = "Grouped",
       .queries = 33,
       .keys = 40,
       .dim = 3,
       .value_dim = 2,
       .batch = 1,
       .heads = 4,
       .key_heads = 2,
       .padded = true},
      {.name = "Sharp",
       .queries = 33,
       .keys = 60,
       .dim = 2,
       .value_dim = 2,
       .density = 0.6,
       .batch = 1,
       .logits = 8},
  };
}

class SquareReference : public ::testing::TestWithParam<kit::SquareCase> {};

TEST_P(SquareReference, IsSoftmaxOverThePairs) {
  const SquareCall call = kit::square_problem(GetParam()).call;
  const at::Tensor mask = pairs_by_loops(call);
  EXPECT_TRUE(
      at::equal(graph::pair_mask(call.squares, {call.key_bits, call.is_causal, call.query_offset}), mask));
  const SquareForward found = reference::square_forward(call);
  const at::Tensor key = for_query_heads(call, call.key), value = for_query_heads(call, call.value);
  EXPECT_LT(kit::row_error(found.output, kit::plain_attention(call.query, key, value, mask, call.scale)),
            1e-13);
  const at::Tensor scores =
      (at::matmul(call.query, key.transpose(2, 3)) * call.scale).masked_fill(mask.logical_not(), -INFINITY);
  EXPECT_LT(kit::row_error(found.lse.unsqueeze(3), scores.logsumexp(-1, true)), 1e-13);
}

TEST_P(SquareReference, GradientsAreFiniteDifferences) {
  for (const double dropout : {0.0, 0.4}) {
    kit::SquareCase given = GetParam();
    given.dropout = dropout;
    kit::SquareProblem problem = kit::square_problem(given);
    const SquareBackward back =
        reference::square_backward(problem.call, reference::square_forward(problem.call), problem.grad, {});
    constexpr double kStep = 1e-6;
    for (const auto& [tensor, gradient, name] : {std::tuple(&problem.call.query, back.query, "query"),
                                                 {&problem.call.key, back.key, "key"},
                                                 {&problem.call.value, back.value, "value"}}) {
      *tensor = tensor->contiguous();
      const at::Tensor flat = tensor->view(-1), want = at::zeros_like(flat);
      double* const x = flat.mutable_data_ptr<double>();
      for (int64_t n = 0; n < flat.numel(); ++n) {
        const double before = x[n];
        x[n] = before + kStep;
        const double more = loss(problem.call, problem.grad);
        x[n] = before - kStep;
        want[n] = (more - loss(problem.call, problem.grad)) / (2 * kStep);
        x[n] = before;
      }
      EXPECT_LT(kit::row_error(gradient.contiguous().view_as(want).unsqueeze(1), want.unsqueeze(1)), 1e-7)
          << name << ", dropout " << dropout;
    }
  }
}

// The loss is linear in the output, so credit is to be the whole effect of switching a square: with it minus
// without it, by recomputation.
TEST_P(SquareReference, CreditIsTheEffectOfSwitchingASquare) {
  for (const double dropout : {0.0, 0.4}) {
    kit::SquareCase given = GetParam();
    given.dropout = dropout;
    given.probes = dropout > 0 ? 0 : 1;  // probes ask for the effect before dropout
    const kit::SquareProblem problem = kit::square_problem(given);
    const SquareCall& call = problem.call;
    const SquareBackward back = reference::square_backward(
        call, reference::square_forward(call), problem.grad, problem.credit(CreditRule::kLeaveOneOut));
    const auto effects = [&](const graph::Squares& switched, double sign) {
      const graph::ListedSquares list = graph::listed(switched);
      const at::Tensor mask = graph::mask_of_squares(call.squares);
      const double now = loss(call, problem.grad);
      std::vector<double> result;
      for (int64_t n = 0; n < list.rows.size(0); ++n) {
        at::Tensor other = mask.clone();
        at::Tensor flat = other.view({call.squares.rows(), call.squares.key_groups()});
        at::Tensor entry = flat[list.rows[n].item<int64_t>()][list.cols[n].item<int64_t>()];
        entry.fill_(!entry.item<bool>());
        SquareCall changed = call;
        changed.squares = graph::squares_from_mask(call.squares.shape, other);
        result.push_back(sign * (loss(changed, problem.grad) - now));
      }
      return torch::tensor(result, at::kDouble).unsqueeze(1);
    };
    EXPECT_LT(
        kit::row_error(kit::of_squares(call.squares, back.credit).unsqueeze(1), effects(call.squares, -1)),
        1e-10)
        << "dropout " << dropout;
    if (problem.probes) {
      EXPECT_LT(kit::row_error(kit::of_squares(*problem.probes, back.probe_credit).unsqueeze(1),
                               effects(*problem.probes, 1)),
                1e-10);
    }
  }
}

// kLogit and kPaper as they are written down, pair by pair.
TEST_P(SquareReference, LogitAndPaperAreSumsOverPairs) {
  const kit::SquareProblem problem = kit::square_problem(GetParam());
  const SquareCall& call = problem.call;
  const SquareForward forward = reference::square_forward(call);
  const at::Tensor mask = pairs_by_loops(call), key = for_query_heads(call, call.key),
                   value = for_query_heads(call, call.value);
  const at::Tensor scores = at::matmul(call.query, key.transpose(2, 3)) * call.scale,
                   u = at::matmul(problem.grad, value.transpose(2, 3)),
                   ubar = (problem.grad * forward.output).sum(-1, true);
  const at::Tensor weights = (scores - forward.lse.unsqueeze(3)).exp().masked_fill(mask.logical_not(), 0);
  for (const CreditRule rule : {CreditRule::kLogit, CreditRule::kPaper}) {
    at::Tensor of_pairs = weights * (u - ubar);
    if (rule == CreditRule::kPaper) of_pairs = of_pairs * scores;
    of_pairs = of_pairs.masked_fill(mask.logical_not(), 0).flatten(0, 1);
    const graph::ListedSquares list = graph::listed(call.squares);
    const int64_t groups = call.squares.query_groups();
    std::vector<double> want;
    for (int64_t n = 0; n < list.rows.size(0); ++n) {
      const int64_t row = list.rows[n].item<int64_t>(), col = list.cols[n].item<int64_t>();
      want.push_back(of_pairs[row / groups]
                         .slice(0, row % groups * 16, row % groups * 16 + 16)
                         .slice(1, col * 16, col * 16 + 16)
                         .sum()
                         .item<double>());
    }
    const SquareBackward back = reference::square_backward(call, forward, problem.grad, {rule, {}});
    EXPECT_LT(kit::row_error(kit::of_squares(call.squares, back.credit).unsqueeze(1),
                             torch::tensor(want, at::kDouble).unsqueeze(1)),
              1e-12);
    EXPECT_FALSE(back.probe_credit.defined());
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, SquareReference, ::testing::ValuesIn(tiny_cases()), kit::name_of);

}  // namespace
}  // namespace edgewise::ops
