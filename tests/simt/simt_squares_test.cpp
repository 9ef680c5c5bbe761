// The CUDA kernels over squares, lane by lane on a CPU, against the reference in fp64: every case of
// kit/square_cases.h in every type.
#include "graph/squares/joined_squares.h"
#include "kernels/philox.h"
#include "kit/square_cases.h"
#include "ops/squares/square_launch.h"

namespace edgewise {
namespace {

using kernels::CreditRule;
using kernels::cuda::Tf32;

// A type and, of fp32, how products are formed; and how far results may be from exact ones.
struct Kind {
  const char* name;
  at::ScalarType dtype;
  Tf32 products;
  double tolerance;
};
constexpr Kind kBf16{"bf16", at::kBFloat16, Tf32::kOnce, 6e-2},
    kThrice{"tf32x3", at::kFloat, Tf32::kThrice, 2e-5}, kOnce{"tf32", at::kFloat, Tf32::kOnce, 2e-2};

const auto kNoError = [](const char* kernel, int error) { EXPECT_EQ(error, 0) << kernel; };

kit::SquareResult result_of(const kit::SquareProblem& problem, const Kind& kind, CreditRule rule) {
  kit::SquareResult result{ops::square_forward_by_kernels(problem.call, kind.products, nullptr, kNoError),
                           {}};
  result.backward = ops::square_backward_by_kernels(problem.call, result.forward, problem.grad,
                                                    problem.credit(rule), kind.products, nullptr, kNoError);
  return result;
}

void expect_reference(const kit::SquareCase& given, const Kind& kind, CreditRule rule) {
  SCOPED_TRACE(c10::str(given.name, ", ", kind.name, ", rule ", static_cast<int>(rule)));
  const kit::SquareProblem exact = kit::square_problem(given);
  const kit::SquareProblem problem = exact.to(kind.dtype, at::kCPU);
  kit::expect_close(problem, result_of(problem, kind, rule), kit::reference_of(exact, rule), kind.tolerance);
}

class SimtSquareCases : public ::testing::TestWithParam<kit::SquareCase> {};

TEST_P(SimtSquareCases, AreTheReference) {
  expect_reference(GetParam(), kBf16, CreditRule::kLogit);
  expect_reference(GetParam(), kBf16, CreditRule::kLeaveOneOut);
  expect_reference(GetParam(), kThrice, CreditRule::kPaper);
  expect_reference(GetParam(), kThrice, CreditRule::kLeaveOneOut);
  expect_reference(GetParam(), kOnce, CreditRule::kNone);
}

kit::SquareProblem problem_of(kit::SquareCase given, const Kind& kind, int64_t seed = 1) {
  return kit::square_problem(given, at::kDouble, seed).to(kind.dtype, at::kCPU);
}

// Blocks of several warps, lists of more than 32 squares, and more rows than a block transposes at a time.
TEST(SimtSquares, LongAndWide) {
  expect_reference({.name = "wide",
                    .queries = 1500,
                    .keys = 130,
                    .dim = 16,
                    .value_dim = 16,
                    .density = 0.1,
                    .batch = 2,
                    .heads = 3,
                    .key_heads = 3,
                    .probes = 0.02},
                   kBf16, CreditRule::kLogit);
  expect_reference({.name = "long",
                    .queries = 20,
                    .keys = 5000,
                    .dim = 16,
                    .value_dim = 16,
                    .density = 0.3,
                    .batch = 1,
                    .heads = 1,
                    .key_heads = 1,
                    .probes = 0.02},
                   kBf16, CreditRule::kLogit);
}

TEST(SimtSquares, LeaveOneOutWhereOneSquareHoldsAlmostAll) {
  for (const double logits : {10.0, 30.0, 100.0}) {
    SCOPED_TRACE(logits);
    for (const double dropout : {0.0, 0.2}) {
      const kit::SquareProblem problem = problem_of(
          {.name = "", .queries = 40, .keys = 90, .density = 0.6, .dropout = dropout, .logits = logits},
          kThrice);
      kit::expect_close(problem, result_of(problem, kThrice, CreditRule::kLeaveOneOut),
                        kit::reference_of(problem, CreditRule::kLeaveOneOut), 1e-3);
    }
  }
}

TEST(SimtSquares, NegativeAndZeroScale) {
  for (const double scale : {-0.3, 0.0})
    for (const Kind& kind : {kBf16, kThrice}) {
      SCOPED_TRACE(c10::str(scale, " ", kind.name));
      kit::SquareProblem problem = problem_of({.name = "", .queries = 40, .keys = 40, .causal = true}, kind);
      problem.call.scale = scale;
      kit::expect_close(problem, result_of(problem, kind, CreditRule::kLeaveOneOut),
                        kit::reference_of(problem, CreditRule::kLeaveOneOut), kind.tolerance);
    }
}

// What lies where no key takes part is not read: not a number, and yet no trace of it.
TEST(SimtSquares, PaddingMayHoldAnything) {
  for (const Kind& kind : {kBf16, kThrice}) {
    kit::SquareProblem problem = problem_of({.name = "", .queries = 60, .keys = 60, .padded = true}, kind);
    const at::Tensor padding = kit::padded_keys(2, 60).logical_not().view({2, 1, 60, 1});
    const kit::SquareResult clean = result_of(problem, kind, CreditRule::kLeaveOneOut);
    problem.call.key = problem.call.key.masked_fill(padding, NAN);
    problem.call.value = problem.call.value.masked_fill(padding, INFINITY);
    const kit::SquareResult found = result_of(problem, kind, CreditRule::kLeaveOneOut);
    EXPECT_TRUE(at::equal(found.forward.output, clean.forward.output));
    EXPECT_TRUE(at::equal(found.backward.query, clean.backward.query));
    EXPECT_TRUE(at::equal(found.backward.key, clean.backward.key));
    EXPECT_TRUE(at::equal(found.backward.value, clean.backward.value));
    EXPECT_TRUE(at::equal(kit::of_squares(problem.call.squares, found.backward.credit),
                          kit::of_squares(problem.call.squares, clean.backward.credit)));
    EXPECT_TRUE(at::equal(kit::of_squares(*problem.probes, found.backward.probe_credit),
                          kit::of_squares(*problem.probes, clean.backward.probe_credit)));
  }
}

// With one-hot values the output shows every weight: the same pairs are dropped as on a CPU.
TEST(SimtSquares, DropWhatTheCpuDrops) {
  kit::SquareProblem problem = problem_of(
      {.name = "", .queries = 50, .keys = 64, .dim = 64, .value_dim = 64, .density = 1, .dropout = 0.3},
      kThrice);
  problem.call.value = at::eye(64).expand({2, 2, 64, 64}).contiguous();
  const at::Tensor found = result_of(problem, kThrice, CreditRule::kNone).forward.output,
                   expected = ops::cpu_square_forward(problem.call).output;
  EXPECT_TRUE(at::equal(found == 0, expected == 0));
  EXPECT_GT((found == 0).sum().item<int64_t>(), 3000);
}

// Rows that are longer than one block's part, with room between them.
TEST(SimtSquares, TransposedAreTheCpus) {
  for (const auto& [queries, keys, density] :
       {std::tuple{75, 53, 0.5}, {40, 5000, 0.6}, {17000, 40, 0.3}, {33, 33, 0.0}})
    for (const bool gaps : {false, true}) {
      SCOPED_TRACE(c10::str(queries, " x ", keys, gaps ? ", gaps" : ""));
      const EdgeShape shape{1, 2, queries, keys};
      graph::Squares squares = graph::squares_from_mask(
          shape,
          kit::rand({1, 2, graph::groups_of(queries), graph::groups_of(keys)}, 3, at::kDouble) < density);
      if (gaps) squares = kit::with_gaps(squares);
      const graph::TransposedSquares expected = graph::transposed(squares),
                                     found = graph::transposed_by_kernels(squares, true, nullptr, kNoError);
      ASSERT_TRUE(at::equal(found.count, expected.count));
      // Lists may lie elsewhere.
      for (int64_t column = 0; column < found.count.size(0); ++column) {
        const int64_t count = found.count[column].item<int64_t>(), from = found.begin[column].item<int64_t>(),
                      wanted = expected.begin[column].item<int64_t>();
        EXPECT_TRUE(at::equal(found.rows.narrow(0, from, count), expected.rows.narrow(0, wanted, count)));
        EXPECT_TRUE(at::equal(found.places.narrow(0, from, count), expected.places.narrow(0, wanted, count)));
      }
      EXPECT_EQ(found.rows.size(0), squares.cols.size(0));
    }
}

TEST(SimtSquares, JoinedAreTheCpus) {
  for (const auto& [queries, keys, density] :
       {std::tuple{75, 53, 0.5}, {40, 5000, 0.6}, {100, 1100, 0.02}, {33, 33, 0.0}}) {
    SCOPED_TRACE(c10::str(queries, " x ", keys));
    const EdgeShape shape{1, 2, queries, keys};
    const auto squares = [&](int64_t seed, double share) {
      return graph::squares_from_mask(
          shape,
          kit::rand({1, 2, graph::groups_of(queries), graph::groups_of(keys)}, seed, at::kDouble) < share);
    };
    const graph::Squares a = kit::with_gaps(squares(3, density)), b = squares(4, 0.3);
    using kernels::cuda::SquareSetOperation;
    const auto joined = [&](SquareSetOperation operation) {
      const graph::Squares found = graph::joined_by_kernels(a, b, operation, nullptr, kNoError);
      graph::check_squares("test", found);
      return graph::mask_of_squares(found);
    };
    EXPECT_TRUE(at::equal(joined(SquareSetOperation::kUnion), graph::mask_of_squares(graph::united(a, b))));
    EXPECT_TRUE(
        at::equal(joined(SquareSetOperation::kDifference), graph::mask_of_squares(graph::without(a, b))));
    const at::Tensor values = kit::randn({a.cols.size(0)}, 5, at::kFloat), before = values.clone();
    graph::clear_by_kernels(values, a, b, nullptr, kNoError);
    const graph::ListedSquares list = graph::listed(a);
    const at::Tensor both =
        graph::mask_of_squares(b).view({-1, a.key_groups()}).index({list.rows, list.cols});
    const auto of_list = [&](const at::Tensor& x) { return x.index_select(0, list.places); };
    EXPECT_TRUE(at::equal(of_list(values), of_list(before).masked_fill(both, 0)));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SimtSquareCases, ::testing::ValuesIn(kit::square_cases()), kit::name_of);

}  // namespace
}  // namespace edgewise
