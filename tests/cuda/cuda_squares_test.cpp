// Attention over squares on a GPU, where tests/ops/square_attention_test.cpp does not go: sizes that fill the
// device, every way to multiply fp32, what the kernels refuse, bits that repeat, and steps that are recorded.
#include <edgewise/ops/float32_matmul.h>

#include "kit/devices.h"
#include "kit/square_cases.h"
#include "ops/step_graph.h"

namespace edgewise::squares_on_cuda {
namespace {

using kernels::CreditRule;

class CudaSquares : public kit::CudaTest {
 protected:
  void TearDown() override { set_float32_matmul(std::nullopt); }
};

kit::SquareCase large(int64_t dim) {
  return {.name = "large",
          .queries = 2061,
          .keys = 4111,
          .dim = dim,
          .value_dim = dim,
          .density = 0.15,
          .batch = 2,
          .heads = 8,
          .key_heads = 4,
          .padded = true,
          .causal = true,
          .query_offset = 2050,
          .dropout = 0.1,
          .probes = 0.05,
          .strided = true,
          .gaps = true};
}

// Everything that a pass gives, of squares only what is at their places.
std::vector<at::Tensor> numbers_of(const kit::SquareProblem& problem, const kit::SquareResult& result) {
  std::vector<at::Tensor> all = {result.forward.output.cpu(), result.forward.lse.cpu(),
                                 result.backward.query.cpu(), result.backward.key.cpu(),
                                 result.backward.value.cpu()};
  if (result.backward.credit.defined())
    all.push_back(kit::of_squares(problem.call.squares, result.backward.credit));
  if (problem.probes) all.push_back(kit::of_squares(*problem.probes, result.backward.probe_credit));
  return all;
}
void expect_same(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t n = 0; n < found.size(); ++n) EXPECT_TRUE(at::equal(found[n], expected[n])) << n;
}

TEST_F(CudaSquares, TakeEveryCaseInBf16AndFp32) {
  for (const kit::SquareCase& given : kit::square_cases())
    for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat})
      EXPECT_EQ(ops::cuda_square_refusal(kit::square_problem(given).to(dtype, at::kCUDA).call), "")
          << given.name;
}

TEST_F(CudaSquares, RefuseWhatTensorCoresDoNotHave) {
  const kit::SquareProblem problem = kit::square_problem({.name = ""});
  const auto refusal = [&](const kit::SquareProblem& given) { return ops::cuda_square_refusal(given.call); };
  EXPECT_NE(refusal(problem.to(at::kDouble, at::kCUDA)), "");
  EXPECT_NE(refusal(problem.to(at::kHalf, at::kCUDA)), "");
  EXPECT_NE(refusal(kit::square_problem({.name = "", .dim = 129, .value_dim = 16}).to(at::kFloat, at::kCUDA)),
            "");
  set_float32_matmul(Float32Matmul::kIeee);
  EXPECT_NE(refusal(problem.to(at::kFloat, at::kCUDA)), "");
  EXPECT_EQ(refusal(problem.to(at::kBFloat16, at::kCUDA)), "");
}

// The reference in fp64 on the GPU: on a CPU it would take minutes.
TEST_F(CudaSquares, AreTheReferenceWhereTheyFillTheDevice) {
  for (const int64_t dim : {16, 32, 64, 128}) {
    const kit::SquareProblem exact = kit::square_problem(large(dim)).to(at::kDouble, at::kCUDA);
    kit::SquareResult want{ops::reference::square_forward(exact.call), {}};
    want.backward = ops::reference::square_backward(exact.call, want.forward, exact.grad,
                                                    exact.credit(CreditRule::kLeaveOneOut));
    const auto expect = [&](at::ScalarType dtype, Float32Matmul matmul, double tolerance) {
      SCOPED_TRACE(c10::str("head dim ", dim, ", ", dtype, ", ", to_string(matmul)));
      set_float32_matmul(matmul);
      const kit::SquareProblem problem = exact.to(dtype, at::kCUDA);
      kit::expect_close(problem, kit::result_of(problem, CreditRule::kLeaveOneOut), want, tolerance);
    };
    expect(at::kFloat, Float32Matmul::kTf32x3, 1e-4);
    expect(at::kFloat, Float32Matmul::kTf32, 2e-2);
    expect(at::kBFloat16, Float32Matmul::kTf32x3, 8e-2);
  }
}

TEST_F(CudaSquares, RepeatBitForBit) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    const kit::SquareProblem problem = kit::square_problem(large(32)).to(dtype, at::kCUDA);
    const std::vector<at::Tensor> first =
        numbers_of(problem, kit::result_of(problem, CreditRule::kLeaveOneOut));
    for (int again = 0; again < 3; ++again)
      expect_same(numbers_of(problem, kit::result_of(problem, CreditRule::kLeaveOneOut)), first);
  }
}

// Forward, lists by keys, backward, credit and probes in one recording, replayed over squares that were not
// known when it was made.
TEST_F(CudaSquares, AStepIsRecordedAndFollowsTheSquares) {
  const kit::SquareProblem first = kit::square_problem(large(32)).to(at::kBFloat16, at::kCUDA),
                           second =
                               kit::square_problem(large(32), at::kDouble, 7).to(at::kBFloat16, at::kCUDA);
  kit::SquareProblem problem = first;
  problem.call.head_keys = problem.call.head_keys.to(at::kCUDA);
  for (at::Tensor* tensor : {&problem.call.squares.count, &problem.call.squares.cols, &problem.probes->count,
                             &problem.probes->cols})
    *tensor = tensor->clone();
  const auto run = [&] { return kit::result_of(problem, CreditRule::kLogit); };
  run();
  const ops::StepGraphs shared(at::kCUDA);
  kit::SquareResult recorded;
  ops::StepGraph graph(shared, [&] { recorded = run(); });
  for (const kit::SquareProblem* squares : {&second, &first}) {
    problem.call.squares.count.copy_(squares->call.squares.count);
    problem.call.squares.cols.copy_(squares->call.squares.cols);
    problem.probes->count.copy_(squares->probes->count);
    problem.probes->cols.copy_(squares->probes->cols);
    graph.replay();
    shared.wait();
    const std::vector<at::Tensor> found = numbers_of(problem, recorded);
    expect_same(found, numbers_of(problem, run()));
  }
}

}  // namespace
}  // namespace edgewise::squares_on_cuda
