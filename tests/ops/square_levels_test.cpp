// The kernels over squares on every CPU level of this machine: the cases of kit/square_cases.h against the
// reference, and the same bits for any number of threads, whichever way the backward pass goes.
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "kit/cpu_level_guard.h"
#include "kit/square_cases.h"

namespace edgewise::ops {
namespace {

using kernels::CreditRule;

class SquareLevels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!kit::has_cpu_level(GetParam())) GTEST_SKIP() << "this CPU has no " << GetParam();
    level_.emplace(GetParam());
  }
  std::optional<kit::ForcedCpuLevel> level_;
};

class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

TEST_P(SquareLevels, AreTheReference) {
  for (const kit::SquareCase& given : kit::square_cases()) {
    const kit::SquareProblem problem = kit::square_problem(given);
    const kit::SquareResult want = kit::reference_of(problem, CreditRule::kLeaveOneOut);
    for (const auto& [dtype, tolerance] :
         {std::pair(at::kDouble, 1e-11), {at::kFloat, 2e-5}, {at::kBFloat16, 4e-2}}) {
      SCOPED_TRACE(c10::str(given.name, ", ", dtype));
      const kit::SquareProblem mine = problem.to(dtype, at::kCPU);
      kit::expect_close(mine, kit::result_of(mine, CreditRule::kLeaveOneOut), want, tolerance);
    }
  }
}

// One key head for two threads, or three, is done in two passes; two key heads each as a whole.
TEST_P(SquareLevels, SameBitsForAnyNumberOfThreads) {
  for (kit::SquareCase given : {
           kit::SquareCase{
               .name = "OneKeyHead", .queries = 200, .keys = 180, .batch = 1, .heads = 3, .key_heads = 1},
           kit::SquareCase{.name = "TwoHeads",
           .queries = 333,
           .keys = 333,
           .dim = 48,
           .value_dim = 16,
           .batch = 1,
           .padded = true,
           .causal = true,
           .dropout = 0.2},
       })
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(c10::str(given.name, ", ", dtype));
      const kit::SquareProblem problem = kit::square_problem(given, dtype);
      const auto run = [&](int threads) {
        const Threads guard(threads);
        return kit::result_of(problem, CreditRule::kLeaveOneOut);
      };
      const kit::SquareResult want = run(1);
      for (const int threads : {2, 3}) {
        const kit::SquareResult found = run(threads);
        EXPECT_TRUE(at::equal(found.forward.output, want.forward.output)) << threads;
        EXPECT_TRUE(at::equal(found.forward.lse, want.forward.lse)) << threads;
        EXPECT_TRUE(at::equal(found.backward.query, want.backward.query)) << threads;
        EXPECT_TRUE(at::equal(found.backward.key, want.backward.key)) << threads;
        EXPECT_TRUE(at::equal(found.backward.value, want.backward.value)) << threads;
        EXPECT_TRUE(at::equal(found.backward.credit, want.backward.credit)) << threads;
        EXPECT_TRUE(at::equal(found.backward.probe_credit, want.backward.probe_credit)) << threads;
      }
    }
}

// Logits around numbers whose exponentials leave fp32: the subtracted number has to follow the running
// maximum.
TEST_P(SquareLevels, LogitsFarFromZero) {
  for (const double step : {-40.0, -3.0, 3.0, 40.0}) {
    SCOPED_TRACE(step);
    kit::SquareProblem problem =
        kit::square_problem({.name = "", .queries = 40, .keys = 320, .density = 0.8, .padded = true});
    problem.call.scale = 1;
    problem.call.query.select(3, 0).fill_(1);
    // The logits of key group J are about `step` * J.
    problem.call.key.select(3, 0).copy_(at::arange(320).div(16, "floor") * step);
    const kit::SquareProblem mine = problem.to(at::kFloat, at::kCPU);
    kit::expect_close(mine, kit::result_of(mine, CreditRule::kLeaveOneOut),
                      kit::reference_of(problem, CreditRule::kLeaveOneOut), 5e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, SquareLevels, ::testing::Values("scalar", "avx2", "avx512", "avx512bf16"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace edgewise::ops
