// Calls of attention over squares for tests: one table of cases, each with its reason, for every device; and
// how far a result may be from the reference in fp64, row by row.
#pragma once

#include <gtest/gtest.h>

#include <torch/torch.h>

#include <cmath>
#include <string>
#include <vector>

#include "graph/squares/squares.h"
#include "kit/random_inputs.h"
#include "ops/squares/square_attention.h"

namespace edgewise::kit {

struct SquareCase {
  const char* name;  // why it is there
  int64_t queries = 64, keys = 64;
  int64_t dim = 32, value_dim = 32;
  double density = 0.4;  // of the squares
  int64_t batch = 2, heads = 2, key_heads = 2;
  bool padded = false;  // item 0 lacks its last third, item 1 every third key and a whole group
  bool causal = false;
  int64_t query_offset = 0;
  double dropout = 0;
  double logits = 1;     // standard deviation of the logits, about
  double probes = 0.3;   // share of the absent squares
  bool strided = false;  // [B, N, H, D] in memory
  bool gaps = false;     // every row of squares has room for all key groups
};

inline std::string name_of(const ::testing::TestParamInfo<SquareCase>& given) {
  return given.param.name;
}
inline void PrintTo(const SquareCase& given, std::ostream* out) {
  *out << given.name;
}

inline std::vector<SquareCase> square_cases() {
  return {
      {.name = "Plain"},
      {.name = "OnePair", .queries = 1, .keys = 1, .density = 1},
      {.name = "LessThanAGroup", .queries = 7, .keys = 5, .density = 1},
      {.name = "LengthsNotDivisible", .queries = 75, .keys = 53, .density = 0.5},
      {.name = "OneMoreThanAGroup", .queries = 17, .keys = 33, .density = 0.7},
      {.name = "AllSquares", .queries = 80, .keys = 96, .density = 1, .probes = 0},
      {.name = "NoSquares", .density = 0, .probes = 0.5},
      {.name = "FewSquares", .queries = 200, .keys = 300, .density = 0.05, .probes = 0.05},
      {.name = "ManySquares", .queries = 20, .keys = 1300, .density = 0.6, .batch = 1, .probes = 0.1},
      {.name = "HeadDim16", .dim = 16, .value_dim = 16},
      {.name = "HeadDim64", .dim = 64, .value_dim = 64},
      {.name = "HeadDim128", .dim = 128, .value_dim = 128},
      {.name = "OddHeadDim", .dim = 13, .value_dim = 13},
      {.name = "HeadDim1", .dim = 1, .value_dim = 1},
      {.name = "ValuesWiderThanKeys", .dim = 16, .value_dim = 80},
      {.name = "ValuesNarrowerThanKeys", .dim = 48, .value_dim = 8},
      {.name = "OneKeyHeadForFour", .heads = 4, .key_heads = 1},
      {.name = "TwoKeyHeadsForSix", .queries = 50, .keys = 50, .heads = 6, .key_heads = 2, .padded = true},
      {.name = "Padded", .queries = 70, .keys = 70, .padded = true},
      {.name = "Causal", .queries = 100, .keys = 100, .causal = true},
      {.name = "CausalAllSquares", .queries = 72, .keys = 72, .density = 1, .causal = true, .probes = 0},
      {.name = "CausalPadded", .queries = 90, .keys = 90, .padded = true, .causal = true},
      {.name = "CausalWithOffset",
       .queries = 21,
       .keys = 90,
       .density = 0.6,
       .causal = true,
       .query_offset = 69},
      {.name = "CausalLaterKeysOnly", .queries = 40, .keys = 200, .causal = true},
      {.name = "Dropout", .queries = 70, .keys = 90, .dropout = 0.3},
      {.name = "DropoutCausalPadded",
       .queries = 85,
       .keys = 85,
       .padded = true,
       .causal = true,
       .dropout = 0.2},
      {.name = "DropoutGrouped", .heads = 4, .key_heads = 2, .dropout = 0.5},
      {.name = "EverythingDropped", .dropout = 1},
      {.name = "SharpLogits", .queries = 60, .keys = 60, .logits = 6},
      {.name = "Strided", .queries = 70, .keys = 55, .strided = true},
      {.name = "RowsLieApart", .queries = 90, .keys = 120, .gaps = true},
      {.name = "Everything",
       .queries = 117,
       .keys = 117,
       .dim = 24,
       .value_dim = 40,
       .heads = 4,
       .key_heads = 2,
       .padded = true,
       .causal = true,
       .dropout = 0.1,
       .strided = true,
       .gaps = true},
  };
}

// The same squares with room for all key groups in every row; what stands between them is no key group.
inline graph::Squares with_gaps(const graph::Squares& squares) {
  graph::Squares result = squares;
  const int64_t groups = squares.key_groups();
  result.begin = (at::arange(squares.rows(), at::kLong) * groups).to(at::kInt);
  result.cols = at::full({squares.rows() * groups}, -7, at::kInt);
  const graph::ListedSquares list = graph::listed(squares);
  const at::Tensor n = list.places - squares.begin.to(at::kLong).index_select(0, list.rows);
  result.cols.index_put_({list.rows * groups + n}, list.cols.to(at::kInt));
  return result;
}

inline graph::Squares to_device(const graph::Squares& squares, at::Device device) {
  return {squares.shape, squares.begin.to(device), squares.count.to(device), squares.cols.to(device)};
}

// A call with everything that its backward pass is asked for.
struct SquareProblem {
  ops::SquareCall call;
  at::Tensor grad;  // [B, H, L, Dv]
  std::optional<graph::Squares> probes;

  ops::SquareCredit credit(kernels::CreditRule rule) const { return {rule, probes}; }

  SquareProblem to(at::ScalarType dtype, at::Device device) const {
    SquareProblem result = *this;
    for (at::Tensor* tensor : {&result.call.query, &result.call.key, &result.call.value, &result.grad})
      *tensor = tensor->to(device, dtype);
    if (call.key_bits.defined()) result.call.key_bits = call.key_bits.to(device);
    result.call.squares = to_device(call.squares, device);
    if (probes) result.probes = to_device(*probes, device);
    return result;
  }
};

inline at::Tensor padded_keys(int64_t batch, int64_t keys) {
  at::Tensor mask = at::ones({batch, keys}, at::kBool);
  const at::Tensor key = at::arange(keys);
  mask.select(0, 0).logical_and_(key < keys - keys / 3);
  if (batch > 1) mask.select(0, 1).logical_and_((key % 3 != 1).logical_and(key.div(16, "floor") != 1));
  return mask;
}

// On CPU. Numbers are rounded to bf16, so that every type holds the same ones.
inline SquareProblem square_problem(const SquareCase& given, at::ScalarType dtype = at::kDouble,
                                    int64_t seed = 1) {
  const auto tensor = [&](int64_t heads, int64_t tokens, int64_t width, int64_t n, double size) {
    const at::Tensor numbers = given.strided
                                   ? randn({given.batch, tokens, heads, width}, seed + n).transpose(1, 2)
                                   : randn({given.batch, heads, tokens, width}, seed + n);
    return (numbers * size).to(at::kBFloat16).to(dtype);
  };
  SquareProblem result;
  ops::SquareCall& call = result.call;
  call.query = tensor(given.heads, given.queries, given.dim, 10, given.logits);
  call.key = tensor(given.key_heads, given.keys, given.dim, 20, 1);
  call.value = tensor(given.key_heads, given.keys, given.value_dim, 30, 1);
  result.grad = tensor(given.heads, given.queries, given.value_dim, 40, 1);
  call.scale = 1 / std::sqrt(static_cast<double>(given.dim));
  call.is_causal = given.causal;
  call.query_offset = given.query_offset;
  call.dropout_p = given.dropout;
  if (given.dropout > 0) call.head_keys = at::arange(given.batch * given.heads) * 1234567891011 + 99;
  if (given.padded) call.key_bits = graph::key_bits_of(padded_keys(given.batch, given.keys));
  const EdgeShape shape{given.batch, given.heads, given.queries, given.keys};
  const at::Tensor draw =
      rand({shape.batch, shape.heads, graph::groups_of(shape.queries), graph::groups_of(shape.keys)},
           seed + 50, at::kDouble);
  const at::Tensor present = draw < given.density;
  call.squares = graph::squares_from_mask(shape, present);
  if (given.probes > 0)
    result.probes = graph::squares_from_mask(
        shape, present.logical_not().logical_and(draw < given.density + (1 - given.density) * given.probes));
  if (given.gaps) {
    call.squares = with_gaps(call.squares);
    if (result.probes) result.probes = with_gaps(*result.probes);
  }
  return result;
}

// The largest error of any row, over the row's largest number, the mean of that over all rows and
// `size_of_terms`; infinite where one of both is not a number or infinite and the other is not the same.
inline double row_error(const at::Tensor& found, const at::Tensor& expected, double size_of_terms = 1e-30) {
  if (expected.numel() == 0) return found.sizes() == expected.sizes() ? 0 : INFINITY;
  const int64_t width = expected.dim() > 1 ? expected.size(-1) : 1;
  const at::Tensor a = found.cpu().to(at::kDouble).reshape({-1, width}),
                   b = expected.cpu().to(at::kDouble).reshape({-1, width});
  if (a.sizes() != b.sizes()) return INFINITY;
  const at::Tensor same = a == b;  // infinities too
  const at::Tensor difference = (a - b).abs().masked_fill(same, 0);
  const at::Tensor size = b.abs().masked_fill(b.isinf(), 0).amax(1);
  const at::Tensor error = difference.amax(1) / (size + size.mean() + size_of_terms);
  return error.isnan().any().item<bool>() ? INFINITY : error.max().item<double>();
}

// Numbers at the places of squares, in the order of squares; the other places hold anything.
inline at::Tensor of_squares(const graph::Squares& squares, const at::Tensor& numbers) {
  return numbers.cpu().index_select(0, graph::listed(to_device(squares, at::kCPU)).places);
}

// What a pass forward and backward gives.
struct SquareResult {
  ops::SquareForward forward;
  ops::SquareBackward backward;
};

inline SquareResult reference_of(const SquareProblem& problem, kernels::CreditRule rule) {
  const SquareProblem exact = problem.to(at::kDouble, at::kCPU);
  SquareResult result{ops::reference::square_forward(exact.call), {}};
  result.backward =
      ops::reference::square_backward(exact.call, result.forward, exact.grad, exact.credit(rule));
  return result;
}

// On the device and in the type of the problem.
inline SquareResult result_of(const SquareProblem& problem, kernels::CreditRule rule) {
  SquareResult result{ops::square_forward(problem.call), {}};
  result.backward = ops::square_backward(problem.call, result.forward, problem.grad, problem.credit(rule));
  return result;
}

// Credit is a sum over a square's pairs that may well be 0, as that of all squares of a row always is; and so
// are dq and dk of a row with one pair.
inline constexpr double kGradientTerms = 0.1;
inline constexpr double kCreditTerms = 1;

inline void expect_close(const SquareProblem& problem, const SquareResult& found, const SquareResult& want,
                         double tolerance) {
  EXPECT_EQ(found.forward.output.scalar_type(), problem.call.query.scalar_type());
  EXPECT_EQ(found.backward.key.scalar_type(), problem.call.query.scalar_type());
  EXPECT_LT(row_error(found.forward.output, want.forward.output), tolerance) << "output";
  EXPECT_LT(row_error(found.forward.lse.unsqueeze(3), want.forward.lse.unsqueeze(3)), tolerance) << "lse";
  EXPECT_LT(row_error(found.backward.query, want.backward.query, kGradientTerms), tolerance) << "dq";
  EXPECT_LT(row_error(found.backward.key, want.backward.key, kGradientTerms), tolerance) << "dk";
  EXPECT_LT(row_error(found.backward.value, want.backward.value), tolerance) << "dv";
  ASSERT_EQ(found.backward.credit.defined(), want.backward.credit.defined());
  ASSERT_EQ(found.backward.probe_credit.defined(), want.backward.probe_credit.defined());
  if (want.backward.credit.defined()) {
    EXPECT_LT(row_error(of_squares(problem.call.squares, found.backward.credit),
                        of_squares(problem.call.squares, want.backward.credit), kCreditTerms),
              tolerance)
        << "credit";
  }
  if (problem.probes) {
    EXPECT_LT(row_error(of_squares(*problem.probes, found.backward.probe_credit),
                        of_squares(*problem.probes, want.backward.probe_credit), kCreditTerms),
              tolerance)
        << "probe credit";
  }
}

}  // namespace edgewise::kit
