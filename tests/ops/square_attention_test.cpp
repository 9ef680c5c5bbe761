// Attention over squares on each device: the cases of kit/square_cases.h against the reference, and what must
// hold whoever computes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/philox.h"
#include "kit/devices.h"
#include "kit/message_of.h"
#include "kit/square_cases.h"

namespace edgewise::ops {
namespace {

using kernels::CreditRule;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr CreditRule kRules[] = {CreditRule::kNone, CreditRule::kLogit, CreditRule::kPaper,
                                 CreditRule::kLeaveOneOut};

// On CUDA ubar = g . o is formed from the output as it was stored, in bf16 of eight bits.
double tolerance_of(at::ScalarType dtype, at::Device device) {
  const double bf16 = device.is_cuda() ? 6e-2 : 4e-2;
  return dtype == at::kDouble ? 1e-11 : dtype == at::kFloat ? 2e-5 : dtype == at::kHalf ? 1e-2 : bf16;
}

class SquareAttention : public kit::DeviceTest {
 protected:
  // A problem whose loss is linear in the output: sum(grad * output).
  static kit::SquareCase causal_case() {
    return {.name = "", .queries = 75, .keys = 75, .density = 0.7, .causal = true};
  }
  SquareForward forward(const kit::SquareProblem& problem) const { return square_forward(problem.call); }
  SquareBackward backward(const kit::SquareProblem& problem, CreditRule rule) const {
    return square_backward(problem.call, square_forward(problem.call), problem.grad, problem.credit(rule));
  }
};

TEST_P(SquareAttention, IsTheReference) {
  for (const kit::SquareCase& given : kit::square_cases()) {
    const kit::SquareProblem problem = kit::square_problem(given);
    for (const CreditRule rule : kRules) {
      const kit::SquareResult want = kit::reference_of(problem, rule);
      for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        SCOPED_TRACE(c10::str(given.name, ", ", dtype, ", rule ", static_cast<int>(rule)));
        const kit::SquareProblem mine = problem.to(dtype, device());
        kit::expect_close(mine, kit::result_of(mine, rule), want, tolerance_of(dtype, device()));
      }
    }
  }
}

// Squares that hold most of a row's weight, beside others whose weights are no numbers of fp32.
TEST_P(SquareAttention, LeaveOneOutWhereOneSquareHoldsAlmostAll) {
  for (const double logits : {10.0, 30.0, 100.0}) {
    SCOPED_TRACE(logits);
    const kit::SquareProblem problem =
        kit::square_problem({.name = "", .queries = 40, .keys = 90, .density = 0.6, .logits = logits})
            .to(at::kFloat, device());
    kit::expect_close(problem, kit::result_of(problem, CreditRule::kLeaveOneOut),
                      kit::reference_of(problem, CreditRule::kLeaveOneOut), 1e-3);
  }
}

// With large logits too, where sums are formed anew while a row goes on.
TEST_P(SquareAttention, NoOutputBeforeAChangedToken) {
  for (const double logits : {1.0, 8.0}) {
    kit::SquareCase given = causal_case();
    given.logits = logits;
    const kit::SquareProblem problem = kit::square_problem(given, at::kFloat).to(at::kFloat, device());
    const at::Tensor before = forward(problem).output;
    for (const int64_t token : {0, 15, 16, 40, 74}) {
      kit::SquareProblem changed = problem;
      for (at::Tensor* tensor : {&changed.call.query, &changed.call.key, &changed.call.value}) {
        *tensor = tensor->clone();
        tensor->select(2, token).add_(1.5 * logits);
      }
      const at::Tensor after = forward(changed).output;
      EXPECT_TRUE(at::equal(after.narrow(2, 0, token), before.narrow(2, 0, token))) << "token " << token;
      EXPECT_FALSE(at::equal(after.narrow(2, token, 75 - token), before.narrow(2, token, 75 - token)));
    }
  }
}

// Two squares with half of a row each: rounding may put both above one half.
TEST_P(SquareAttention, SquaresOfEqualWeightBothHaveCredit) {
  kit::SquareProblem problem = kit::square_problem({.name = "", .queries = 64, .keys = 32, .density = 1});
  problem.probes.reset();
  problem.call.scale = 0;
  const at::Tensor want = kit::reference_of(problem, CreditRule::kLeaveOneOut).backward.credit;
  const kit::SquareProblem mine = problem.to(at::kFloat, device());
  const at::Tensor found = kit::result_of(mine, CreditRule::kLeaveOneOut).backward.credit;
  EXPECT_TRUE(at::allclose(found.cpu().to(at::kDouble), want, 1e-4, 1e-4));
}

TEST_P(SquareAttention, DependsOnNoBatchMate) {
  kit::SquareCase given{.name = "", .queries = 50, .keys = 50, .density = 0.5, .batch = 3, .padded = true};
  const kit::SquareProblem all = kit::square_problem(given, at::kFloat).to(at::kFloat, device());
  const SquareForward out = forward(all);
  const SquareBackward back = backward(all, CreditRule::kLeaveOneOut);
  const at::Tensor group_mask = graph::mask_of_squares(all.call.squares);
  for (int64_t item = 0; item < 3; ++item) {
    kit::SquareProblem one = all;
    one.probes.reset();
    for (at::Tensor* tensor :
         {&one.call.query, &one.call.key, &one.call.value, &one.grad, &one.call.key_bits})
      *tensor = tensor->narrow(0, item, 1);
    one.call.squares = graph::squares_from_mask({1, 2, 50, 50}, group_mask.narrow(0, item, 1));
    EXPECT_TRUE(at::equal(forward(one).output, out.output.narrow(0, item, 1)));
    const SquareBackward mine = backward(one, CreditRule::kLeaveOneOut);
    EXPECT_TRUE(at::equal(mine.query, back.query.narrow(0, item, 1)));
    EXPECT_TRUE(at::equal(mine.key, back.key.narrow(0, item, 1)));
    EXPECT_TRUE(at::equal(mine.value, back.value.narrow(0, item, 1)));
  }
}

TEST_P(SquareAttention, RowsWithoutAPair) {
  kit::SquareProblem problem =
      kit::square_problem({.name = "", .queries = 40, .keys = 40, .density = 1, .probes = 0}, at::kFloat);
  // Item 0: no key takes part. Item 1: its second query group has no square.
  problem.call.key_bits =
      graph::key_bits_of(at::cat({at::zeros({1, 40}, at::kBool), at::ones({1, 40}, at::kBool)}));
  at::Tensor mask = at::ones({2, 2, 3, 3}, at::kBool);
  mask.select(0, 1).select(1, 1).zero_();
  problem.call.squares = graph::squares_from_mask({2, 2, 40, 40}, mask);
  problem.probes = graph::squares_from_mask({2, 2, 40, 40}, mask.logical_not());
  problem = problem.to(at::kFloat, device());
  const SquareForward out = forward(problem);
  EXPECT_TRUE((out.output[0] == 0).all().item<bool>());
  EXPECT_TRUE((out.lse[0] == -INFINITY).all().item<bool>());
  EXPECT_TRUE((out.output[1].narrow(1, 16, 16) == 0).all().item<bool>());
  EXPECT_TRUE((out.output[1].narrow(1, 0, 16) != 0).all().item<bool>());
  for (const CreditRule rule : kRules) {
    const SquareBackward back = backward(problem, rule);
    EXPECT_TRUE((back.query[0] == 0).all().item<bool>());
    EXPECT_TRUE((back.key[0] == 0).all().item<bool>());
    EXPECT_TRUE((back.value[0] == 0).all().item<bool>());
    EXPECT_TRUE((back.query[1].narrow(1, 16, 16) == 0).all().item<bool>());
    EXPECT_TRUE(back.key.isfinite().all().item<bool>());
  }
}

// What lies where no key takes part is not read: not a number, and yet no trace of it.
TEST_P(SquareAttention, PaddingMayHoldAnything) {
  kit::SquareProblem problem =
      kit::square_problem({.name = "", .queries = 60, .keys = 60, .padded = true}, at::kFloat);
  const at::Tensor padding = kit::padded_keys(2, 60).logical_not().view({2, 1, 60, 1});
  const SquareForward clean = forward(problem.to(at::kFloat, device()));
  const SquareBackward clean_back = backward(problem.to(at::kFloat, device()), CreditRule::kLeaveOneOut);
  problem.call.key = problem.call.key.masked_fill(padding, NAN);
  problem.call.value = problem.call.value.masked_fill(padding, INFINITY);
  problem = problem.to(at::kFloat, device());
  EXPECT_TRUE(at::equal(forward(problem).output, clean.output));
  const SquareBackward back = backward(problem, CreditRule::kLeaveOneOut);
  EXPECT_TRUE(at::equal(back.query, clean_back.query));
  EXPECT_TRUE(at::equal(back.key, clean_back.key));
  EXPECT_TRUE(at::equal(back.value, clean_back.value));
  EXPECT_TRUE(at::equal(kit::of_squares(problem.call.squares, back.credit),
                        kit::of_squares(problem.call.squares, clean_back.credit)));
  EXPECT_TRUE(at::equal(kit::of_squares(*problem.probes, back.probe_credit),
                        kit::of_squares(*problem.probes, clean_back.probe_credit)));
}

// With one-hot values the output shows every weight: which pairs are dropped, one by one.
TEST_P(SquareAttention, DropsThePairsOfTheirPhiloxWords) {
  constexpr int64_t kQueries = 150, kKeys = 90, kHeads = 4;
  constexpr double kDropout = 0.3;
  SquareCall call;
  const auto options = at::TensorOptions().device(device());
  call.query = at::zeros({2, 2, kQueries, 16}, options);
  call.key = at::zeros({2, 2, kKeys, 16}, options);
  call.value = at::eye(kKeys, options).expand({2, 2, kKeys, kKeys}).contiguous();
  call.squares = kit::to_device(
      graph::squares_from_mask({2, 2, kQueries, kKeys}, at::ones({2, 2, 10, 6}, at::kBool)), device());
  call.dropout_p = kDropout;
  call.head_keys = at::arange(kHeads) * 987654321987 + 5;
  const at::Tensor weights = square_forward(call).output.cpu().view({kHeads, kQueries, kKeys});
  const auto weight = weights.accessor<float, 3>();
  int64_t kept = 0;
  for (int64_t head = 0; head < kHeads; ++head) {
    const auto key = static_cast<uint64_t>(call.head_keys[head].item<int64_t>());
    for (int64_t i = 0; i < kQueries; ++i)
      for (int64_t j = 0; j < kKeys; ++j) {
        const uint32_t word = kernels::block_words(key, i, j / 4)[static_cast<size_t>(j % 4)];
        const bool keeps = word >= kDropout * 4294967296.0;
        ASSERT_NEAR(weight[head][i][j], keeps ? 1 / (0.7 * kKeys) : 0, 1e-6) << head << " " << i << " " << j;
        kept += keeps;
      }
  }
  const double pairs = kHeads * kQueries * kKeys;
  EXPECT_NEAR(static_cast<double>(kept) / pairs, 0.7, 4 * std::sqrt(0.3 * 0.7 / pairs));
}

TEST_P(SquareAttention, TwoRunsAreTheSameBits) {
  const kit::SquareProblem problem =
      kit::square_problem({.name = "", .queries = 300, .keys = 300, .dropout = 0.1}, at::kFloat)
          .to(at::kFloat, device());
  const SquareForward first = forward(problem), second = forward(problem);
  EXPECT_TRUE(at::equal(first.output, second.output));
  EXPECT_TRUE(at::equal(first.lse, second.lse));
  const SquareBackward a = backward(problem, CreditRule::kLeaveOneOut),
                       b = backward(problem, CreditRule::kLeaveOneOut);
  for (const auto& [x, y] : {std::pair(a.query, b.query),
                             {a.key, b.key},
                             {a.value, b.value},
                             {a.credit, b.credit},
                             {a.probe_credit, b.probe_credit}})
    EXPECT_TRUE(at::equal(x, y));
}

TEST_P(SquareAttention, NoTokensAndNoHeads) {
  for (const EdgeShape& shape : {EdgeShape{0, 2, 20, 20}, {2, 0, 20, 20}, {2, 2, 0, 20}, {2, 2, 20, 0}}) {
    SCOPED_TRACE(to_string(shape));
    kit::SquareProblem problem;
    SquareCall& call = problem.call;
    const auto options = at::TensorOptions().device(device());
    call.query = at::ones({shape.batch, shape.heads, shape.queries, 8}, options);
    call.key = at::ones({shape.batch, shape.heads, shape.keys, 8}, options);
    call.value = at::ones({shape.batch, shape.heads, shape.keys, 4}, options);
    call.squares = kit::to_device(
        graph::squares_from_mask(shape, at::ones({shape.batch, shape.heads, graph::groups_of(shape.queries),
                                                  graph::groups_of(shape.keys)},
                                                 at::kBool)),
        device());
    problem.grad = at::ones({shape.batch, shape.heads, shape.queries, 4}, options);
    const SquareForward out = forward(problem);
    EXPECT_EQ(out.output.sizes(), problem.grad.sizes());
    EXPECT_TRUE((out.output == 0).all().item<bool>());
    const SquareBackward back = backward(problem, CreditRule::kLogit);
    EXPECT_EQ(back.key.sizes(), call.key.sizes());
    EXPECT_TRUE((back.key == 0).all().item<bool>());
    EXPECT_TRUE((back.value == 0).all().item<bool>());
  }
}

TEST_P(SquareAttention, SaysWhatIsWrong) {
  const kit::SquareProblem good = kit::square_problem({.name = ""}, at::kFloat).to(at::kFloat, device());
  const auto refusal = [&](const auto& spoil) {
    kit::SquareProblem problem = good;
    spoil(problem);
    return kit::message_of([&] { square_forward(problem.call); });
  };
  EXPECT_THAT(refusal([](auto& p) { p.call.key = p.call.key.to(at::kDouble); }),
              AllOf(HasSubstr("expected key of dtype Float"), HasSubstr("Double")));
  EXPECT_THAT(refusal([](auto& p) { p.call.value = p.call.value.narrow(2, 0, 60); }),
              AllOf(HasSubstr("as many heads and tokens as key"), HasSubstr("[2, 2, 60, 32]")));
  EXPECT_THAT(refusal([](auto& p) { p.call.query = p.call.query.narrow(2, 0, 60); }),
              AllOf(HasSubstr("expected squares of shape [B=2, H=2, L=60, S=64]"), HasSubstr("L=64")));
  EXPECT_THAT(refusal([](auto& p) {
                p.call.key = p.call.key.repeat({1, 2, 1, 1});
                p.call.value = p.call.value.repeat({1, 2, 1, 1});
              }),
              HasSubstr("divides the 2 query heads; got 4"));
  EXPECT_THAT(refusal([](auto& p) {
                p.call.key_bits = at::zeros({2, 3}, p.call.squares.cols.options());
              }),
              HasSubstr("expected key_bits [2, 4] of dtype int32"));
  EXPECT_THAT(refusal([](auto& p) { p.call.dropout_p = 1.5; }), HasSubstr("dropout_p in [0, 1]; got 1.5"));
  EXPECT_THAT(refusal([](auto& p) { p.call.dropout_p = 0.5; }), HasSubstr("head_keys [B*H] = [4]"));
  EXPECT_THAT(
      kit::message_of(
          [&] { square_backward(good.call, square_forward(good.call), good.grad.narrow(3, 0, 8), {}); }),
      AllOf(HasSubstr("expected grad_output [2, 2, 64, 32] on "), HasSubstr("; got [2, 2, 64, 8] on ")));
  EXPECT_THAT(kit::message_of([&] {
                SquareForward forward = square_forward(good.call);
                forward.lse = forward.lse.narrow(2, 0, 8);
                square_backward(good.call, forward, good.grad, {});
              }),
              HasSubstr("expected lse [2, 2, 64]; got [2, 2, 8]"));
}

INSTANTIATE_TEST_SUITE_P(Devices, SquareAttention, kit::devices(), kit::device_name);

}  // namespace
}  // namespace edgewise::ops
